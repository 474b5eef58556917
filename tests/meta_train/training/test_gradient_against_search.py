"""Any hand-designed method and model: meta-gradients and random search at equal compute, the better one shipped."""

import jax
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.models import MODELS
from l2p.privacy import Budget
from l2p.protectors import HAND_DESIGNED
from meta_train.config import Comparison
from meta_train.evaluation import budgets
from meta_train.evaluation.marks import first_loss
from meta_train.evaluation.resolved import resolve
from meta_train.tasks.reference import reference
from meta_train.tasks.sources import families
from meta_train.training import search
from meta_train.training.gradient_against_search import ship_better, trials
from meta_train.training.starting_points import starting_point

TINY = Comparison.of(
    "noisygd-tuned-logistic-breast_cancer",
    "noisygd",
    source="breast_cancer",
    coefficients=2,
    num_steps=6,
    steps=4,
    tasks=8,
    rows=48,
    num_features=(3,),
    learning_rate=0.1,
    eval_every=2,
    eval_tasks=8,
)


@pytest.mark.parametrize(("gradient", "searched", "won"), [(0.3, 0.2, "search"), (0.1, 0.2, "gradient")])
def test_the_trial_with_the_better_score_ships_and_its_card_has_both(tmp_path, gradient, searched, won):
    """Whole trainings: benchmarks/studies/test_better_trial.py."""
    protectors, trained = {}, {}
    for method, score in (("gradient", gradient), ("search", searched)):
        protectors[method] = HAND_DESIGNED["noisygd"](Budget(score, 1e-6)).replace(num_steps=int(10 * score))
        card = {"name": method, "sources": ["adult"], "held_out": {"held_out_score": score}, "seconds": 7.0}
        trained[method] = tmp_path / f"{method}.safetensors"
        checkpoint.save(protectors[method], trained[method], card | {"config": {"steps": 4}})
    shipped = checkpoint.load(ship_better(TINY, trained, tmp_path))
    assert shipped.protector.num_steps == protectors[won].num_steps
    assert shipped.card["won"] == won
    assert {method: trial["held_out_score"] for method, trial in shipped.card["trials"].items()} == {
        "gradient": gradient,
        "search": searched,
    }
    assert shipped.card["held_out"] == {"held_out_score": min(gradient, searched)}
    assert shipped.card["config"]["kind"] == "comparison"


@pytest.mark.long
def test_a_protector_with_selections_is_searched_under_renyi_accounting(monkeypatch):
    monkeypatch.setattr(budgets, "PLANNED", 5)
    config = trials(TINY.but(protector="agd", accountant="rdp"))["search"].but(steps=4)
    start = starting_point(config)
    resolved = resolve(config.tasks, config.simulated, start)
    update, state = search.compiled(config.tasks, resolved, config.outer, config.scoring), search.init(start)
    for step in range(8):
        state, metrics = update(state, step)
        if step == 0:
            first = float(metrics["score"])
    assert np.isfinite(first)
    assert float(state.best_score) < first


@pytest.mark.long
def test_the_reference_of_a_loss_without_curvature_is_near_its_minimum():
    svm = MODELS["svm"]
    family, _ = families("breast_cancer")
    batch = jax.jit(lambda key: family.sample(key, svm, 2, 200, 6, (1.0, 2.0)))(jax.random.key(0))
    rows = jax.tree.map(lambda leaf: leaf[0], batch.rows)

    def objective(params):
        return jax.vmap(svm.loss, (None, 0, 0))(params, rows.x, rows.y).mean() + 0.5e-3 * params @ params

    params, gradient_of = reference(svm, rows), jax.jit(jax.value_and_grad(objective))
    at_reference = float(objective(params))
    for rate in np.geomspace(0.3, 1e-3, 2000):
        params = params - rate * gradient_of(params)[1]
    assert at_reference < float(objective(params)) + 0.01
    assert float(first_loss(svm, rows)) == 1.0


@pytest.mark.long
def test_image_pairs_keep_every_column_and_only_their_digits():
    family, held_out = families("digits:4,6")
    batch = family.sample(jax.random.key(0), MODELS["logistic"], 8, 32, None, (1.0, 2.0))
    assert batch.rows.x.shape == (8, 32, 64)
    table = {row.tobytes() for row in np.asarray(family.x)}
    assert all(row.tobytes() in table for row in np.asarray(batch.rows.x[0]))
    assert not table & {row.tobytes() for row in np.asarray(held_out.x)}
    rest, _ = families("digits:rest:4,6")
    assert rest.classes == (0, 1, 2, 3, 5, 7, 8, 9)
    tasks = rest.sample(jax.random.key(0), MODELS["logistic"], 8, 32, None, (1.0, 2.0)).rows
    of_row = {row.tobytes(): int(label) for row, label in zip(np.asarray(rest.x), np.asarray(rest.y), strict=True)}
    pairs = [{of_row[row.tobytes()] for row in np.asarray(task)} for task in tasks.x]
    assert all(len(pair) == 2 for pair in pairs)
    assert len({frozenset(pair) for pair in pairs}) > 3


def test_drawn_columns_need_a_table_that_has_so_many():
    pair, _ = families("digits:4,6")
    with pytest.raises(InputError, match="64 columns"):
        pair.sample(jax.random.key(0), MODELS["logistic"], 8, 32, 65, (1.0, 2.0))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"protector": "nonprivate"}, "nothing to tune"),
        ({"protector": "control"}, "not a hand-designed method"),
        ({"model": "forest"}, "unknown"),
        ({"constraint": "augmented_lagrangian"}, "kind 'comparison' has no constraint"),
        ({"delta": 0.1}, "delta"),
    ],
)
def test_what_cannot_be_tuned_is_refused_with_a_reason(fields, words):
    with pytest.raises(InputError, match=words):
        starting_point(TINY.but(**fields))
