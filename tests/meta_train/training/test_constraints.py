from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from meta_train.config.bands import BANDS
from meta_train.training.constraints import (
    MULTIPLIER_EVERY,
    Constraint,
    constrained_targets,
    penalty,
    soft_score,
    soft_weights,
)

STEPS = 3000
#: A segment's loss: weight over spending, like the error of an average under noise of variance 1 / spending.
WEIGHTS = jnp.array([[4.0, 1.0, 0.25]])


def trained(loss: Callable, num_segments: int, is_soft: bool = False) -> tuple[Constraint, jax.Array]:
    """The outer loop's outcome for a scheduler that is a table of spending, f32[BANDS, B]."""
    bands = jnp.arange(BANDS)

    def priced(log_spent: jax.Array, constraint: Constraint, mu: jax.Array) -> jax.Array:
        spent = jnp.exp(log_spent)
        of_segment = jax.vmap(lambda b: constraint.lagrangian(spent[:, b], bands, b, mu))
        return loss(spent).sum() + of_segment(jnp.arange(num_segments)).sum()

    def outer(carry: tuple, step: jax.Array) -> tuple[tuple, None]:
        constraint, log_spent = carry
        log_spent = log_spent - 0.02 * jax.grad(priced)(log_spent, constraint, penalty(step, STEPS))
        spent = jnp.exp(log_spent)
        for segment in range(num_segments):
            constraint = constraint.updated(
                spent[:, segment], loss(spent)[:, segment], jnp.array(segment), MULTIPLIER_EVERY
            )
        constraint = constraint.update(step, penalty(step, STEPS), is_soft, MULTIPLIER_EVERY)
        return (constraint, log_spent), None

    start = (Constraint.create(num_segments), jnp.full((BANDS, num_segments), jnp.log(1.5)))
    (constraint, log_spent), _ = jax.lax.scan(outer, start, jnp.arange(STEPS))
    return constraint, jnp.exp(log_spent)


def test_whole_runs_meet_the_budget_and_multipliers_become_its_price():
    constraint, spent = jax.jit(lambda: trained(lambda spent: 1.0 / spent, 1))()
    np.testing.assert_allclose(spent, 1.0, rtol=0.01)
    # The price of a share of the budget is the gain from one more share: -d(1 / s) / ds = 1 at s = 1; z is minus that.
    np.testing.assert_allclose(constraint.multipliers, -1.0, rtol=0.05)


@pytest.mark.slow
def test_segments_share_the_budget_as_is_best():
    constraint, spent = jax.jit(lambda: trained(lambda spent: WEIGHTS / spent, 3))()
    # min sum_b w_b / s_b with a given mean of s: s_b in proportion to sqrt(w_b).
    best = jnp.sqrt(WEIGHTS) / jnp.sqrt(WEIGHTS).mean()
    np.testing.assert_allclose(spent.mean(-1), 1.0, rtol=0.01)
    np.testing.assert_allclose(spent, jnp.broadcast_to(best, spent.shape), rtol=0.03)
    np.testing.assert_allclose(constraint.targets, spent, rtol=0.02)
    # At the optimum all segments' multipliers are equal.
    np.testing.assert_allclose(constraint.multipliers - constraint.multipliers.mean(), 0.0, atol=0.1)


@pytest.mark.slow
def test_soft_segments_spend_most_where_the_loss_is_best():
    # Scores that fall over the run: the weighted mean around the budget's end wants that end late, so that early
    # segments give up what they spend.
    late = jnp.array([[2.0, 1.0, 0.0]])
    constraint, spent = jax.jit(lambda: trained(lambda spent: 0.3 / spent + late, 3, is_soft=True))()
    assert bool(jnp.isfinite(spent).all())
    assert float(jnp.cumsum(spent, -1)[:, 1].max()) < 3.0  # the budget lasts into the last segment
    np.testing.assert_allclose(constraint.targets, spent, rtol=0.1)


@pytest.mark.slow
def test_targets_minimise_equation_5():
    wanted, mu, z = jnp.array([1.7, 0.4, 1.1]), 0.13, 0.6

    def lagrangian(r: jax.Array) -> jax.Array:
        shares, h = (wanted - r) / 3, r.mean() - 1.0
        return jnp.square(shares).sum() / (2 * mu) - z / 9 * h + jnp.square(h) / (2 * mu)

    targets, h = constrained_targets(wanted, jnp.array(z), mu)
    np.testing.assert_allclose(jax.grad(lagrangian)(targets), 0.0, atol=1e-6)
    assert float(h) == pytest.approx(float(targets.mean()) - 1.0)


def test_weights_are_a_tent_around_the_end_of_the_budget():
    spent = jnp.cumsum(jnp.full(20, 0.125))
    weights = np.asarray(soft_weights(spent, 3))
    assert np.flatnonzero(weights).tolist() == [4, 5, 6, 7, 8, 9]  # the budget ends with the eighth step, index 7
    np.testing.assert_allclose(weights[4:10], [0.625, 0.75, 0.875, 1.0, 0.875, 0.75], rtol=1e-6)


@pytest.mark.slow(but=["spent2"])
@pytest.mark.parametrize("spent", [jnp.full(6, 1e-6), jnp.full(6, 50.0), jnp.zeros(6)])
def test_runs_far_off_their_budget_still_have_a_score(spent):
    scores = jnp.arange(6.0)
    assert np.isfinite(float(soft_score(scores, jnp.cumsum(spent), 2)))


@pytest.mark.slow
def test_gradient_of_the_soft_score_is_that_of_equation_3():
    generator = np.random.default_rng(0)
    # Nowhere near a kink: no step lands on the budget, and the window's ends are not moved by a small change.
    costs = jnp.asarray(generator.uniform(0.08, 0.15, 16).astype(np.float32))
    scores = jnp.asarray(generator.normal(size=16).astype(np.float32))
    check_grads(lambda c, f: soft_score(f, jnp.cumsum(c), 4), (costs, scores), order=1, modes=["rev"], rtol=2e-2)

    # Eq. 3 as it is printed: the weighted gradient of the losses, and (f_t - F) times the gradient of the weights.
    weights = soft_weights(jnp.cumsum(costs), 4)
    jacobian = jax.jacobian(lambda c: soft_weights(jnp.cumsum(c), 4))(costs)
    printed = (scores - soft_score(scores, jnp.cumsum(costs), 4)) @ jacobian / weights.sum()
    np.testing.assert_allclose(
        jax.grad(lambda c: soft_score(scores, jnp.cumsum(c), 4))(costs), printed, rtol=1e-4, atol=1e-6
    )
