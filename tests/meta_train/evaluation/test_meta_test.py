"""The meta-test: learnable held-out tasks, reproducible results, and nothing else in a file changed."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import safetensors.numpy

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.models import Logistic
from meta_train.config import EveryModel
from meta_train.evaluation import meta_test
from meta_train.evaluation.budgets import ByMu
from meta_train.tasks.sources import families
from meta_train.training.untrained import BUILDERS

SIZES = {"num_tasks": 8, "num_rows": 64}
CARD = {
    "sources": ["breast_cancer"],
    "created": "2026-01-01T00:00:00+00:00",
    "command": "by hand",
    "range": {"log_signal": [1.0, 5.0], "num_features": [4, 4]},
    "config": {
        "name": "mine",
        "protector": "noisygd",
        "source": "breast_cancer",
        "num_features": [4],
        "accountant": "gdp",
    },
}


@pytest.fixture
def path(tmp_path):
    protector = BUILDERS["noisygd"](jax.random.key(0)).replace(num_steps=5)
    checkpoint.save(protector, tmp_path / "mine.safetensors", CARD)
    return tmp_path / "mine.safetensors"


@pytest.fixture(scope="module")
def tasks():
    return meta_test.draw("breast_cancer", Logistic(), 4, **SIZES)


@pytest.mark.long
def test_tasks_have_something_to_learn_and_both_parts_are_the_same_task(tasks):
    assert tasks.trivial.size == 8
    assert tasks.train.x.shape == tasks.test.x.shape == (8, 64, 4)
    assert (np.asarray(tasks.optimum - tasks.trivial) > meta_test.MIN_GAIN).all()
    # A minimiser of one part could not do so well on rows of another task.
    assert float(tasks.optimum.mean()) > 0.75
    # Columns are the same, in the same order: their means agree, which those of shuffled columns would not.
    means = [np.asarray(part.x.mean(1)) for part in (tasks.train, tasks.test)]
    assert np.abs(means[0] - means[1]).mean() < 0.5 * np.abs(means[0] - means[1][:, ::-1]).mean()


@pytest.mark.long
def test_test_rows_are_no_training_rows_and_both_are_held_out():
    tasks = meta_test.draw("breast_cancer", Logistic(), None, **SIZES)
    held_out, train, test = (
        {row.tobytes() for row in np.asarray(x).reshape(-1, x.shape[-1])}
        for x in (families("breast_cancer")[1].x, tasks.train.x, tasks.test.x)
    )
    assert min(len(train), len(test)) > 10
    assert not train & test
    assert train | test <= held_out


@pytest.mark.long
def test_figures_are_deterministic_and_parameters_stay_bit_equal(path):
    before, card = safetensors.numpy.load_file(path), checkpoint.read_checkpoint_card(path)
    figures = meta_test.update(path, **SIZES)
    once = path.read_bytes()
    assert meta_test.update(path, **SIZES) == figures
    assert path.read_bytes() == once
    after = safetensors.numpy.load_file(path)
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)
    written = checkpoint.read_checkpoint_card(path)
    assert written.pop("meta_test") == figures == json.loads(json.dumps(figures))
    assert written == card
    assert meta_test.update(path, **SIZES, seed=1) != figures


@pytest.mark.long
def test_bands_cover_the_trained_range_and_one_below(path):
    figures = meta_test.update(path, **SIZES)
    edges = [band["log_signal"] for band in figures["bands"]]
    assert edges == [[0.5 + 0.5 * i, 1.0 + 0.5 * i] for i in range(9)]
    assert (figures["data"], figures["tasks"], figures["train_rows"]) == ("breast_cancer", 8, 64)
    for band in figures["bands"]:
        assert all(len(band[name]) == 3 for name in ("accuracy", "gain", "share_of_gap"))
        assert 0.0 <= band["beat_trivial"] <= 1.0


@pytest.mark.long
def test_more_signal_gives_more_accuracy_on_the_same_tasks(tasks):
    protector = checkpoint.load("control-minibatch").protector
    low, high = (
        meta_test.accuracies(protector, Logistic(), ByMu("gdp"), tasks, np.full(8, signal, np.float32), 0)
        for signal in (0, 8)
    )
    assert float(high.mean()) > float(low.mean()) + 0.05


def test_a_card_that_names_no_tasks_is_refused(path):
    loaded = checkpoint.load(path)
    card = {key: item for key, item in loaded.card.items() if key != "config"}
    with pytest.raises(InputError, match="held out"):
        meta_test.meta_test(dataclasses.replace(loaded, card=card))


@pytest.mark.long
def test_what_was_trained_for_several_models_is_tested_for_each_that_tells_classes_apart(tmp_path):
    shapes = {
        "num_features": [4, 6, 4, 8, 3],
        "sources": ["breast_cancer+synthetic", "synthetic", "synthetic:numbers", "synthetic", "breast_cancer"],
        "models": ["logistic", "svm", "square", "logistic", "mlp"],
    }
    path = tmp_path / "mine.safetensors"
    sizes = {"num_features": [3, 8], "log_signal": CARD["range"]["log_signal"]}
    config = EveryModel.of("mine", "noisygd", accountant="gdp", **shapes).flat()
    card = CARD | {"range": sizes, "config": config, "models": ["logistic", "svm", "square", "mlp"]}
    checkpoint.save(BUILDERS["noisygd"](jax.random.key(0)).replace(num_steps=5), path, card)
    figures = meta_test.update(path, **SIZES)
    # Numbers have no accuracy, and tasks of small tables are too few rows; what is left are synthetic ones.
    assert {name: group["num_features"] for name, group in figures.items()} == {"logistic": [4, 8], "svm": [6]}
    assert {group["data"] for group in figures.values()} == {"synthetic"}
    assert checkpoint.load(path).card["meta_tests"] == figures
    card = checkpoint.load(path).card
    assert card["meta_tests"]["svm"] == figures["svm"]
    assert "square" not in card["meta_tests"]
    assert "meta_test" not in card
