"""The budget as a constraint on schedulers that could overspend it (Hong et al. 2021, Eq. 2 to 7).

A run is one segment, or B segments that are differentiated separately. Spending is measured in even shares of the
budget: a segment that spends 1 is on the even schedule. Each band of budgets is a separate constraint, because one
protector covers all of them, whereas the paper trains one for each.
"""

import jax
import jax.numpy as jnp

from l2p.base import struct
from meta_train.config.bands import BANDS

#: Penalty weight mu of the augmented Lagrangian: first and last value; it shrinks geometrically over training. The
#: multipliers, not a tiny mu, make the constraint exact; with mu at 0.005 they outran the scheduler and oscillated.
PENALTY = (0.2, 0.05)
#: Scheduler updates between multiplier updates: enough for the scheduler to adapt to the last one.
MULTIPLIER_EVERY = 10
#: Steps, or segments, on each side of the budget's end that the soft constraint scores (Delta T; Delta B).
STEP_WINDOW, SEGMENT_WINDOW = 5, 1
#: Minimum weight inside the window, so that a run far from its budget still has a score.
MIN_WEIGHT = 1e-3
#: Minimum target of a segment, in even shares: a segment that spends nothing has no gradient towards spending.
MIN_TARGET = 0.05


@struct.dataclass
class Constraint(struct.Struct):
    """The outer loop's state about spending.

    Attributes:
      targets: f32[BANDS, B], r: target spending of each segment; 1 on average once the global constraint is met.
      multipliers: f32[BANDS, B], z, one for each segment's constraint.
      global_multiplier: f32[BANDS], z_r, for the constraint on the targets.
      spent: f32[BANDS, B], mean spending since the last update.
      score: f32[BANDS, B], mean score of the segments likewise.
    """

    targets: jax.Array
    multipliers: jax.Array
    global_multiplier: jax.Array
    spent: jax.Array
    score: jax.Array

    @classmethod
    def create(cls, num_segments: int) -> "Constraint":
        zeros = jnp.zeros((BANDS, num_segments))
        return cls(jnp.ones_like(zeros), zeros, jnp.zeros(BANDS), zeros, zeros)

    def lagrangian(self, spent: jax.Array, band: jax.Array, segment: jax.Array, penalty: jax.Array) -> jax.Array:
        """-z h + h^2 / (2 mu), f32[], of a segment that spent f32[], with h = spent - r (Eq. 2)."""
        h = spent - self.targets[band, segment]
        return -self.multipliers[band, segment] * h + jnp.square(h) / (2.0 * penalty)

    def updated(self, spent: jax.Array, score: jax.Array, segment: jax.Array, every: int) -> "Constraint":
        """Updated with the spending and the scores, f32[tasks], of one outer step's tasks in one segment; multipliers
        are updated in `every` so many outer steps."""
        num_tasks = len(spent)
        bands = bands_of(num_tasks)

        def add(total: jax.Array, values: jax.Array) -> jax.Array:
            in_band = jax.ops.segment_sum(jnp.nan_to_num(values), bands, BANDS) * BANDS / num_tasks
            return total.at[:, segment].add(in_band / every)

        return self.replace(spent=add(self.spent, spent), score=add(self.score, score))

    def update(self, step: jax.Array, mu: jax.Array, is_soft: bool, every: int) -> "Constraint":
        """z <- z - h / mu if an update is due, once in `every` outer steps (Nocedal and Wright 1999, chapter 17), after
        new targets for the segments."""
        zeros = jnp.zeros_like(self.spent)
        targets, global_multiplier = self.targets, self.global_multiplier
        if targets.shape[1] > 1:
            wanted = self.spent - self.multipliers * mu
            if is_soft:
                targets = soft_targets(wanted, targets, self.score, mu)
            else:
                targets, h = constrained_targets(wanted, global_multiplier, mu)
                global_multiplier = global_multiplier - h * targets.shape[1] ** 2 / mu
        multipliers = self.multipliers - (self.spent - targets) / mu
        updated = Constraint(targets, multipliers, global_multiplier, zeros, zeros)
        due = step % every == every - 1
        return jax.tree.map(lambda new, old: jnp.where(due, new, old), updated, self)


def constrained_targets(
    wanted: jax.Array, global_multiplier: jax.Array, mu: jax.Array | float
) -> tuple[jax.Array, jax.Array]:
    """The targets f32[..., B] that minimise Eq. 5, in closed form, and h_r f32[...] there: their mean, less one.

    `wanted` f32[..., B] is the paper's rho_b hat. Shares of the budget have equal weight in the two parts of Eq. 5, and
    a share is 1 / B of the unit used here.

    >>> targets, h = constrained_targets(jnp.array([1.5, 0.9]), jnp.array(0.0), 0.1)
    >>> print(targets.round(2), h.round(2))
    [1.37 0.77] 0.07
    """
    num_segments = wanted.shape[-1]
    pull = mu * global_multiplier / num_segments
    # r = wanted + pull - B h, so that (1 + B) h = mean(wanted) - 1 + pull.
    h = (wanted.mean(-1) - 1.0 + pull) / (1.0 + num_segments)
    targets = wanted + (pull - num_segments * h)[..., None]
    targets = jnp.maximum(targets, MIN_TARGET)
    return targets, targets.mean(-1) - 1.0


def soft_targets(wanted: jax.Array, targets: jax.Array, score: jax.Array, mu: jax.Array | float) -> jax.Array:
    """A step towards the targets f32[BANDS, B] that minimise Eq. 6: its quadratic part exactly, Eq. 7 linearised."""

    def in_band(targets: jax.Array, score: jax.Array) -> jax.Array:
        return soft_score(score, jnp.cumsum(targets) / targets.shape[0], SEGMENT_WINDOW)

    return jnp.maximum(wanted - mu * jax.vmap(jax.grad(in_band))(targets, score), MIN_TARGET)


def soft_weights(spent: jax.Array, window: int) -> jax.Array:
    """Tent weights f32[T] around where the budget ends, from the share of it f32[T] spent up to each step.

    max(1 - |h|, 0) within `window` steps before that step and `window` from it on, where h is the share minus one.

    >>> soft_weights(jnp.array([0.25, 0.5, 0.75, 1.0, 1.25, 1.5]), 2).round(2).tolist()
    [0.0, 0.5, 0.75, 1.0, 0.75, 0.0]
    """
    num_steps = spent.shape[0]
    over = spent >= 1.0 - 1e-4
    end = jnp.where(over.any(), over.argmax(), num_steps - 1)
    index = jnp.arange(num_steps)
    inside = (index >= end - window) & (index < end + window)
    return inside * jnp.maximum(1.0 - jnp.abs(spent - 1.0), MIN_WEIGHT)


def soft_score(scores: jax.Array, spent: jax.Array, window: int) -> jax.Array:
    """Weighted mean f32[] of scores f32[T] around where the budget ends: F hat of Eq. 3 and Eq. 7."""
    weights = soft_weights(spent, window)
    return weights @ scores / weights.sum()


def bands_of(num_tasks: int) -> jax.Array:
    """The band i32[tasks] of every task, whose budgets are sorted."""
    return jnp.arange(num_tasks) * BANDS // num_tasks


def update_every(alternate: tuple[int, int] | None, num_segments: int) -> int:
    """Outer steps between multiplier updates, where scheduler and projector have so many updates in turn.

    An outer step has an update of the scheduler for each of its segments.

    >>> update_every(None, 1), update_every((1, 5), 1), update_every((1, 5), 3), update_every((1, 5), 50)
    (10, 60, 24, 6)
    """
    return -(-MULTIPLIER_EVERY // num_segments) * (1 if alternate is None else sum(alternate) // alternate[0])


def penalty(step: jax.Array, steps: int) -> jax.Array:
    """mu f32[] at one of so many outer steps."""
    return PENALTY[0] * (PENALTY[1] / PENALTY[0]) ** (step / steps)
