import dataclasses
import json
from typing import ClassVar

import chex
import jax
import numpy as np
import pytest
import safetensors.numpy

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.privacy.cost.sampling import Poisson
from meta_train.config import EveryModel, Plain
from meta_train.config.drawn import Shape
from meta_train.config.many_sources import ManySources
from meta_train.config.one_source import OneSource
from meta_train.evaluation import resolved
from meta_train.evaluation.held_out import Evaluator
from meta_train.recipes import resolve
from meta_train.tasks.sources import families
from meta_train.training import gradients, mappings
from meta_train.training.loop import MOST_LOST, meta_train
from meta_train.training.shipping import ship
from meta_train.training.starting_points import starting_point

SIZES = {"steps": 4, "tasks": 8, "rows": 32, "eval_every": 2, "eval_tasks": 8}
CONFIG = Plain.of("tiny", "noisygd", source="breast_cancer", num_features=(3,), **SIZES)


#: Tasks of two shapes with a source each.
EVERY_MODEL = EveryModel.of(
    "tiny", "noisygd", num_features=(3, 4), sources=("adult", "synthetic"), models=("logistic", "svm"), **SIZES
)


def evaluator_of(config, start):
    """An evaluator of a training from this start."""
    shapes = resolved.resolve(config.tasks, config.simulated, start)
    return Evaluator(config.tasks, shapes, config.judging, config.scoring, start)


def read(path):
    return safetensors.numpy.load_file(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The checkpoint of an uninterrupted training."""
    return meta_train(CONFIG, tmp_path_factory.mktemp("whole"))


@pytest.mark.long
def test_an_interrupted_training_resumes_to_the_same_bits(trained, tmp_path, monkeypatch):
    compiled = gradients.compiled

    def interrupted(*args):
        update = compiled(*args)

        def step(state, number):
            if number == 3:
                raise KeyboardInterrupt
            return update(state, number)

        return step

    monkeypatch.setattr(gradients, "compiled", interrupted)
    with pytest.raises(KeyboardInterrupt):
        meta_train(CONFIG, tmp_path / "cut")
    monkeypatch.undo()
    resumed = meta_train(CONFIG, tmp_path / "cut")
    first, second = read(trained), read(resumed)
    assert first.keys() == second.keys()
    for name in first:
        assert np.array_equal(first[name], second[name]), name
    lines = [json.loads(line)["step"] for line in (tmp_path / "cut" / "log.jsonl").read_text().splitlines()]
    assert lines == [0, 1, 2, 3]


@pytest.mark.slow
def test_the_checkpoint_loads_and_its_card_says_where_it_comes_from(trained):
    loaded = checkpoint.load(trained)
    assert loaded.card["sources"] == ["breast_cancer"]
    assert loaded.card["range"]["num_features"] == [3, 3]
    assert loaded.card["command"] == "l2p meta-train --like tiny --out OUT"
    assert resolve.like(str(trained)) == CONFIG
    assert loaded.card["seconds"] > 0
    assert loaded.card["peak_memory_mib"] > 0
    lines = [json.loads(line) for line in (trained.parent / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert ["held_out_score" in line for line in lines] == [False, True, False, True]


def test_a_shortage_of_mappings_is_told_near_the_limit_and_only_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(mappings, "MAPPINGS", tmp_path / "maps")
    monkeypatch.setattr(mappings, "LIMIT", tmp_path / "max_map_count")
    (tmp_path / "max_map_count").write_text("100\n")
    assert mappings.shortage() is None
    (tmp_path / "maps").write_text("a mapping\n" * 90)
    assert mappings.shortage() is None
    (tmp_path / "maps").write_text("a mapping\n" * 91)
    assert "91 of the 100 memory mappings" in mappings.shortage()


@pytest.mark.long
def test_a_training_ends_before_xla_would_and_keeps_its_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(mappings, "LIMIT", tmp_path / "max_map_count")
    (tmp_path / "max_map_count").write_text("100")
    with pytest.raises(InputError, match=r"max_map_count=.* 1 of 4 steps are kept .* --resume"):
        meta_train(CONFIG, tmp_path / "out")


@pytest.mark.parametrize(("lost", "ends"), [(MOST_LOST, True), (MOST_LOST - 1, False)])
def test_a_training_whose_gradients_are_never_finite_ends_with_a_sentence(tmp_path, monkeypatch, lost, ends):
    """A training that has a finite gradient now and then goes on."""

    def compiled(*_):
        return lambda state, number: (state, {"score": 0.0, "finite": float((number + 1) % (lost + 1) == 0)})

    monkeypatch.setattr(gradients, "compiled", compiled)
    monkeypatch.setattr("meta_train.training.methods.Evaluator", HarmEverywhere)
    config = CONFIG.but(steps=2 * MOST_LOST, eval_every=2 * MOST_LOST)
    if ends:
        with pytest.raises(InputError, match=f"no task had a finite gradient .* step {MOST_LOST}, .* damping"):
            meta_train(config, tmp_path)
    else:
        assert meta_train(config, tmp_path).exists()


@pytest.mark.slow
def test_gradients_say_in_how_many_tasks_they_are_finite():
    start = starting_point(CONFIG)
    shapes = resolved.resolve(CONFIG.tasks, CONFIG.simulated, start)
    update = gradients.compiled(CONFIG.tasks, shapes, CONFIG.learner, CONFIG.outer, CONFIG.scoring)
    for factor, share in ((1.0, 1.0), (np.nan, 0.0)):
        broken = jax.tree.map(lambda leaf: leaf * factor, start)  # noqa: B023
        metrics = update(gradients.init(broken), 0)[1]
        assert float(metrics["finite"]) == share


def test_shapes_are_the_range_on_the_card_and_what_ships_draws_batches_of_the_first_rate(tmp_path):
    shapes = {"num_features": (3, 5), "num_classes": (4, 3), "sampling_rates": (0.5, 0.25)}
    drawn = {"source": "synthetic:classes:3", "model": "softmax:3", "accountant": "rdp"}
    config = CONFIG.but(**shapes, **drawn)
    source_and_model = drawn["source"], drawn["model"]
    assert config.shapes == (Shape(3, *source_and_model, 4, 0.5), Shape(5, *source_and_model, 3, 0.25))
    start = starting_point(config)
    assert start.sampler == Poisson(0.5)
    trained = checkpoint.load(ship(config, tmp_path, start, {}, 0.0, (3, 5))).card["range"]
    assert trained["num_features"] == [3, 5]
    assert trained["num_classes"] == [3, 4]
    assert trained["sampling_rate"] == [0.25, 0.5]


@pytest.mark.parametrize(
    "change",
    [
        {"sources": ("adult",)},
        {"models": ("logistic", "svm", "mlp")},
        {"sources": ()},
    ],
)
def test_sources_and_models_that_do_not_fit_are_refused(change):
    with pytest.raises(InputError, match=r"one for each of num_features") as refusal:
        EVERY_MODEL.but(**change)
    assert "\n" not in str(refusal.value)


def test_gains_from_one_task_of_a_source_are_refused():
    with pytest.raises(InputError, match="single task in a band have no standard error"):
        EVERY_MODEL.but(gain_rounds=1)


def test_a_model_that_does_not_fit_its_own_source_is_refused():
    tasks = EVERY_MODEL.but(sources=("synthetic:numbers", "synthetic")).tasks
    with pytest.raises(InputError, match="tasks from synthetic:numbers"):
        tasks.find_model(tasks.shapes[0])


@pytest.mark.long
def test_tables_lend_as_many_classes_as_a_listed_model_has():
    lends = ManySources(num_features=(5,), sources=("digits",), models=("softmax:4",))
    (shape,) = lends.shapes
    assert lends.drawn_classes(shape) == 4
    assert lends.drawn_classes(shape._replace(model="softmax:10")) is None
    task = families("digits")[0].with_num_classes(4).draw(jax.random.key(0), 200, 5)
    assert set(np.unique(task.y)) == {0.0, 1.0, 2.0, 3.0}
    with pytest.raises(InputError, match="has 12 classes and tasks from digits have 10"):
        lends.find_model(shape._replace(model="softmax:12"))
    mixed = OneSource(source="digits+synthetic:classes:4", model="softmax:10")
    with pytest.raises(InputError, match="have different numbers of classes"):
        mixed.one_model()


@pytest.mark.long
def test_gains_are_paired_by_task_and_split_by_band():
    # A shape that is listed twice has the same held-out tasks, which count once.
    config = CONFIG.but(num_features=(3, 3), eval_tasks=16, gain_rounds=2)
    start = starting_point(config)
    still = dataclasses.replace(start, num_steps=1)
    evaluator, unchanged = evaluator_of(config, still), evaluator_of(config, start)
    gains, losses = evaluator.gains(start), unchanged.gains(still)
    assert unchanged.gains(start)["mean"] == unchanged.gains(start)["standard_error"] == [0.0] * 8
    assert gains["tasks"] == 2 * 2
    np.testing.assert_allclose(gains["log_signal"], np.linspace(*config.tasks.log_signal, 9), atol=1e-4)
    np.testing.assert_allclose(gains["mean"], -np.array(losses["mean"]))
    # One step gets nowhere where the budget allows fifty of them.
    assert gains["mean"][-1] > 4 * gains["standard_error"][-1] > 0
    # Training selects by the score of what would run in each band.
    in_bands = [evaluator(protector)["held_out_score_per_budget"] for protector in (start, still)]
    assert evaluator.merit(evaluator(start)) == pytest.approx(np.minimum(*in_bands).mean())
    assert evaluator.merit(evaluator.before) == pytest.approx(evaluator.before["held_out_score"], abs=1e-4)


@pytest.mark.long
def test_gains_on_a_mixture_are_split_by_source_and_sum_up():
    config = CONFIG.but(source="breast_cancer+synthetic", num_features=(3, 40), eval_tasks=8, gain_rounds=2)
    start = starting_point(config)
    evaluator = evaluator_of(config, dataclasses.replace(start, num_steps=1))
    gains = evaluator.gains(start)
    few, many = (gains["by_source"][name] for name in ("breast_cancer", "synthetic"))
    # The table has 30 columns, so it has no tasks with 40.
    assert (few["tasks"], many["tasks"], gains["tasks"]) == (2, 4, 6)
    np.testing.assert_allclose(gains["mean"], (2 * np.array(few["mean"]) + 4 * np.array(many["mean"])) / 6, atol=1e-4)


@pytest.mark.long
def test_gains_are_measured_on_fresh_rows_whatever_training_scores():
    config = EVERY_MODEL.but(num_features=(3, 3), sources=("breast_cancer",) * 2, eval_tasks=16, gain_rounds=1)
    config = config.but(models=("logistic",) * 2)
    start = starting_point(config)
    fresh, read = (evaluator_of(config.but(fresh_shares=(share, share)), start) for share in (1.0, 0.0))
    still = dataclasses.replace(start, num_steps=1)
    assert fresh(still)["held_out_score"] != read(still)["held_out_score"]
    assert fresh.gains(still) == read.gains(still)


@pytest.mark.slow
def test_a_finished_training_is_not_repeated_and_another_is_refused(trained):
    first, log = read(trained), (trained.parent / "log.jsonl").read_text()
    again = read(meta_train(CONFIG, trained.parent))
    assert (trained.parent / "log.jsonl").read_text() == log
    assert all(np.array_equal(first[name], again[name]) for name in first)
    with pytest.raises(InputError, match="another config"):
        meta_train(CONFIG.but(seed=1), trained.parent)


def test_an_unknown_starting_point_is_refused(tmp_path):
    with pytest.raises(InputError, match="no starting point"):
        meta_train(CONFIG.but(protector="nothing"), tmp_path)


class HarmEverywhere:
    """An evaluator whose score worsens with every step."""

    before: ClassVar = {"held_out_score": 0.0}

    def __init__(self, *_, **__):
        pass

    def __call__(self, protector):
        return {"held_out_score": 1.0, "held_out_score_per_budget": [1.0]}

    def merit(self, report):
        return report["held_out_score"]

    def final(self, protector, seconds_left):
        return {}


def one_up(state, step):
    return state.replace(protector=jax.tree.map(lambda leaf: leaf + 1, state.protector)), {"score": 1.0}


def test_what_scored_best_on_held_out_tasks_ships(tmp_path, monkeypatch):
    monkeypatch.setattr("meta_train.training.gradients.compiled", lambda *_: one_up)
    monkeypatch.setattr("meta_train.training.methods.Evaluator", HarmEverywhere)
    shipped = checkpoint.load(meta_train(CONFIG, tmp_path)).protector
    chex.assert_trees_all_close(shipped, starting_point(CONFIG))
