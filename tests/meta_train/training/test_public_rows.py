"""Trainings on tasks with public rows: what of them is learned, and that being worse for having them has a price."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import Logistic
from l2p.oracle.setup import Setup
from l2p.privacy import Budget, Filter
from l2p.protectors.fields import KNOT_COLUMNS
from l2p.protectors.with_public_rows.public_filter import PublicFilter, PublicTrust
from l2p.task.rows import Rows
from meta_train.config import Addition
from meta_train.config.learners import AddedDescent
from meta_train.config.parts import Outer, Scoring
from meta_train.evaluation.budgets import ByMu
from meta_train.evaluation.scores import NEAR, whole_run
from meta_train.recipes.resolve import resolve
from meta_train.tasks.sources import families
from meta_train.training import gradients
from meta_train.training.starting_points import warm_start
from meta_train.training.untrained.filters import control_public, control_retreat

MODEL, N, D, KEY = Logistic(), 200, 4, jax.random.key(0)
BUDGET = Budget(1.0, 1e-6)
SETUP = Setup.create(MODEL, BUDGET.adjacency, Filter("gdp", BUDGET).price_list(), N)
GUARDED = Scoring(above=4.0)


def table(num_rows, seed, opposite=False):
    draw = np.random.default_rng(seed)
    x = draw.random((num_rows, D)).astype(np.float32)
    # A fifth has the other label: of rows that are fitted perfectly no gradient is left.
    y = (x[:, 0] + x[:, 1] > 1.0) != (opposite ^ (draw.random(num_rows) < 0.2))
    return Rows(jnp.asarray(x), jnp.asarray(y, jnp.float32), jnp.ones(num_rows))


#: So many that cross-validation follows them.
MANY = 100
PRIVATE, PUBLIC, NONE = table(N, 0), table(MANY, 1), table(MANY, 1).replace(mask=jnp.zeros(MANY))
#: So few that their gradients do not have every direction.
FEW = PUBLIC.replace(mask=(jnp.arange(MANY) < 3).astype(jnp.float32))
#: Opposite labels, so that a start at their minimum is a bad one.
MISLEADING = table(MANY, 1, opposite=True)


@functools.cache
def small():
    """A filter that buys nothing, with numbers at which it takes something of everything."""
    plain = control_public(KEY)
    at_zero = jax.tree.map(lambda leaf: jnp.zeros((1, KNOT_COLUMNS)), plain.trust)
    return PublicFilter(plain.scheduler, plain.projector, trust=at_zero, num_steps=3)


@functools.partial(jax.jit, static_argnames="has_public")
def run(trust, public, has_public=True):
    """((value, score), gradient) of a run."""

    def value(trust):
        protector, rows = small().replace(trust=trust), public if has_public else None
        score, _ = whole_run(protector, PRIVATE, jnp.float32(0.0), SETUP, KEY, PRIVATE, rows, scoring=GUARDED)
        return score.value, score

    return jax.value_and_grad(value, has_aux=True)(trust)


def price(score):
    return GUARDED.above * NEAR * (np.hypot(1.0, float(score.above) / NEAR) - 1.0)


@pytest.mark.long
def test_without_a_public_row_that_counts_a_run_is_the_one_without_any():
    (_, plain), _ = run(small().trust, NONE, has_public=False)
    (_, empty), gradient = run(small().trust, NONE)
    assert float(empty.value) == pytest.approx(float(plain.value), rel=1e-4)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))
    (_, some), _ = run(small().trust, PUBLIC)
    assert float(some.value) < float(plain.value)


@pytest.mark.long
def test_a_run_that_is_worse_for_having_public_rows_has_a_price():
    """Even one that ends below its start: what is compared is the run without them."""
    (_, plain), _ = run(small().trust, NONE)
    (_, worse), gradient = run(small().trust, MISLEADING)
    assert price(plain) == pytest.approx(0.0, abs=1e-6)
    assert float(worse.value) - price(worse) > float(plain.value)
    assert price(worse) > 0.01
    # A start nearer to its own, and more variance for private rows that differ, end lower.
    assert float(gradient.log_reach[0, 0]) > 0.0 > float(gradient.logit_shift[0, 0])


@pytest.mark.long
def test_derivatives_pass_through_the_public_part():
    """Against central differences, in every number that a run takes something by."""
    trust, step = small().trust, 0.01
    for field in dataclasses.fields(PublicTrust):
        public, number = FEW if field.name == "logit_off" else PUBLIC, getattr(trust, field.name)
        slope = float(getattr(run(trust, public)[1], field.name)[0, 0])
        change = step * np.eye(1, KNOT_COLUMNS, dtype=np.float32)
        moved = [trust.replace(**{field.name: at}) for at in (number + change, number - change)]
        upper, lower = (float(run(at, public)[0][0]) for at in moved)
        assert abs(slope) > 1e-6, field.name
        assert slope == pytest.approx((upper - lower) / (2 * step), rel=0.05, abs=2e-5), field.name


@pytest.mark.long
def test_a_training_learns_what_to_take_from_public_rows_and_nothing_else():
    arguments = {
        "num_tasks": 8,
        "num_rows": 64,
        "num_features": D,
        "log_signal": (1.0, 9.0),
        "fresh_shares": (1.0, 0.2),
    }
    family = families("synthetic", fresh_rows=True)[0]
    draw = functools.partial(family.sample, model=MODEL, public_share=0.1, public_shift=2.0, **arguments)
    state, budgets = gradients.init(small()), ByMu("gdp", "binary")
    learner, outer = AddedDescent(tunes="public", learning_rate=0.1), Outer(steps=2)

    @jax.jit
    def step(state, number):
        batch = draw(jax.random.fold_in(KEY, number))
        return gradients.update(state, number, batch, learner, outer, GUARDED, budgets, MODEL)

    for number in range(2):
        state, metrics = step(state, jnp.array(number))
        assert float(metrics["finite"]) == 1.0
    before, after = small(), state.protector
    for field in dataclasses.fields(PublicTrust):
        assert np.any(getattr(before.trust, field.name) != getattr(after.trust, field.name)), field.name
    for leaf, same in zip(
        jax.tree.leaves(before.replace(trust=None)), jax.tree.leaves(after.replace(trust=None)), strict=True
    ):
        np.testing.assert_array_equal(leaf, same)


def test_the_recipe_adds_to_a_filter_and_takes_all_of_its_numbers():
    config = resolve("guarded-public")
    assert isinstance(config, Addition)
    assert (config.learner.tunes, config.scoring.above, config.tasks.public_share) == ("public", 4.0, 0.1)
    plain, source = control_public(KEY), jax.tree.map(lambda leaf: leaf + 1.0, control_retreat(KEY))
    taken = warm_start(plain, source)
    for leaf_path, leaf in jax.tree_util.tree_leaves_with_path(source):
        place = jax.tree_util.keystr(leaf_path)
        same = {jax.tree_util.keystr(path): other for path, other in jax.tree_util.tree_leaves_with_path(taken)}[place]
        np.testing.assert_array_equal(leaf, same)
    assert taken.trust is plain.trust or np.array_equal(taken.trust.log_reach, plain.trust.log_reach)
