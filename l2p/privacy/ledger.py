"""An additive price and a cap: the filter that decides, before a query is answered, whether it may be."""

import jax
import jax.numpy as jnp
from flax import struct

# Let u = 2^-24, half the spacing of float32. Casting the cost, the sum and the product each lose a factor of 1 - u at
# worst, and (1 - u)^3 (1 + 4u) = 1 + u - 9u^2 + ... > 1: the recorded sum is never below the true one.
# The factor is a constant, so the ledger stays smooth in the cost, which `nextafter` would not.
_UP = 1 + 2.0**-22
# The bound above holds for normal numbers only and some devices flush the others to zero, so less counts as this.
_LEAST_COST = 2.0**-100
# A last charge of all that is left must survive the factor above (4u) and the rounding of `left` itself and of the
# sum (at most 5u together), or planners lose their last query.
_RESERVE = 2.0**-20


@struct.dataclass
class Ledger:
    """What was spent and what may be, in the accountant's own unit; a pytree, so it runs under jit, vmap and scan.

    Attributes:
      spent: f32[], sum of the granted costs, rounded up.
      budget: f32[], the cap; infinite in meta-training, which reads `spent` instead of obeying the cap.

    >>> ledger = Ledger(spent=jnp.float32(0), budget=jnp.float32(1))
    >>> granted, ledger = ledger.charge(0.75)
    >>> bool(granted), round(float(ledger.left), 4)
    (True, 0.25)
    >>> granted, ledger = ledger.charge(0.5)
    >>> bool(granted), round(float(ledger.left), 4)
    (False, 0.25)
    """

    spent: jax.Array
    budget: jax.Array

    def charge(self, cost: jax.typing.ArrayLike) -> tuple[jax.Array, "Ledger"]:
        """Decide on one query before it is answered: whether it is granted, and the ledger afterwards.

        A refused query costs nothing. NaN and negative costs are refused; an infinite cost is granted only by an
        infinite budget. Differentiable in the cost; a refused cost has gradient zero, whatever its value.
        """
        cost = jnp.asarray(cost, jnp.float32)
        valid = cost >= 0  # false for NaN
        total = (self.spent + jnp.maximum(jnp.where(valid, cost, 0.0), _LEAST_COST)) * _UP
        granted = valid & (total <= self.budget)
        return granted, Ledger(jnp.where(granted, total, self.spent), self.budget)

    @property
    def left(self) -> jax.Array:
        """f32[] in [0, 1]: share of the budget that may still be planned for; 1 for an infinite budget.

        One part in 2^20 of the budget is held back, so that a charge of `left * budget` is always granted.
        """
        unlimited = self.budget == jnp.inf
        limited = (self.budget > 0) & ~unlimited
        # Both sides of a `where` are differentiated, so the division sees safe values only.
        spent = jnp.where(limited, self.spent, 0.0)
        budget = jnp.where(limited, self.budget, 1.0)
        share = jnp.clip(1 - _RESERVE - spent / budget, 0.0, 1.0)
        return jnp.where(limited, share, jnp.where(unlimited, 1.0, 0.0))
