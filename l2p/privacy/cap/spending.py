"""Spending of one run, and its cap: decides whether a query may be answered before it is."""

import dataclasses

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.compiled import as_one

# Let u = 2^-24, half the spacing of float32. Casting the cost, the sum and the product each lose a factor of 1 - u at
# worst, and (1 - u)^3 (1 + 4u) = 1 + u - 9u^2 + ... > 1: the recorded sum is never below the true one.
# The factor is a constant, so what was spent stays smooth in the cost, which `nextafter` would not.
_UP = 1 + 2.0**-22
# The bound above holds for normal numbers only, and some devices flush subnormal ones to zero, so smaller costs count
# as this.
_MIN_COST = 2.0**-100
# A last charge of all that is left must survive the factor above (4u) and the rounding of `left` itself and of the
# sum (at most 5u together), or planners would lose their last query.
_RESERVE = 2.0**-20


@struct.dataclass
class Spending:
    """Amounts that one run has spent and may spend, in the accountant's own unit; a pytree, for jit, vmap and scan.

    Not called a ledger, which is the file that several runs share (`l2p.privacy.ledger.ledger`), nor an account, which
    `l2p account` would be taken to show.

    Attributes:
      spent: f32[], sum of the granted costs, rounded up.
      budget: f32[], the cap; infinite in meta-training, which reads `spent` instead of obeying the cap.
      covered, batch: f32[], for permutation epochs: what this epoch was charged, and what the queries on the current
        batch have cost so far.

    >>> spending = Spending(spent=jnp.float32(0), budget=jnp.float32(1))
    >>> granted, spending = spending.charge(0.75)
    >>> bool(granted), round(float(spending.left), 4)
    (True, 0.25)
    >>> granted, spending = spending.charge(0.5)
    >>> bool(granted), round(float(spending.left), 4)
    (False, 0.25)
    """

    spent: jax.Array
    budget: jax.Array
    covered: jax.Array = struct.field(default_factory=lambda: jnp.zeros((), jnp.float32))
    batch: jax.Array = struct.field(default_factory=lambda: jnp.zeros((), jnp.float32))

    def charge(self, cost: jax.typing.ArrayLike) -> tuple[jax.Array, "Spending"]:
        """Decide on one query before it is answered: whether it is granted, and what is then spent.

        A refused query costs nothing. NaN and negative costs are refused; an infinite cost is granted only by an
        infinite budget. Differentiable in the cost; a refused cost has gradient zero, whatever its value.
        """
        cost = jnp.asarray(cost, jnp.float32)
        valid = cost >= 0  # false for NaN
        total = (self.spent + jnp.maximum(jnp.where(valid, cost, 0.0), _MIN_COST)) * _UP
        granted = valid & (total <= self.budget)
        return granted, dataclasses.replace(self, spent=jnp.where(granted, total, self.spent))

    def open_batch(self, new_epoch: jax.Array) -> "Spending":
        """The spending before the queries of a permutation epoch's next batch; `new_epoch` bool[]."""
        zero = jnp.zeros_like(self.batch)
        return dataclasses.replace(self, batch=zero, covered=jnp.where(new_epoch, zero, self.covered))

    def charge_in_epoch(self, cost: jax.typing.ArrayLike) -> tuple[jax.Array, "Spending"]:
        """`charge` for one more query on a batch whose rows no other batch of the epoch holds.

        A row is in one batch per epoch, so an epoch costs what its costliest batch costs, and a batch is charged only
        what it costs more than the costliest before it.
        """
        cost = jnp.asarray(cost, jnp.float32)
        valid = cost >= 0  # false for NaN
        # The sum and the difference each round once more than `charge` allows for.
        batch = (self.batch + jnp.where(valid, cost, 0.0)) * _UP
        due = jnp.maximum(batch - self.covered, 0.0) * _UP
        granted, charged = self.charge(jnp.where(valid, due, jnp.nan))
        # Covered queries are granted without a charge, because even a charge of 0 would round the sum up once more.
        granted = jnp.where(due > 0, granted, valid)
        return granted, Spending(
            jnp.where(due > 0, charged.spent, self.spent),
            self.budget,
            jnp.where(granted, jnp.maximum(self.covered, batch), self.covered),
            jnp.where(granted, batch, self.batch),
        )

    @property
    @as_one
    def left(self) -> jax.Array:
        """f32[] in [0, 1]: share of the budget that may still be planned for; 1 for an infinite budget.

        What this epoch was already charged is available to its other batches, too, minus what the current one has used.
        One part in 2^20 of the budget is held back, so that a `charge` of `left * budget` is always granted.
        """
        unlimited = self.budget == jnp.inf
        limited = (self.budget > 0) & ~unlimited
        # Both sides of a `where` are differentiated, so the division sees safe values only.
        spent = jnp.where(limited, self.spent - self.covered + self.batch, 0.0)
        budget = jnp.where(limited, self.budget, 1.0)
        share = jnp.clip(1 - _RESERVE - spent / budget, 0.0, 1.0)
        return jnp.where(limited, share, jnp.where(unlimited, 1.0, 0.0))
