"""What a query costs, stated without reference to any accountant."""

import enum

import jax
from flax import struct


class Adjacency(enum.StrEnum):
    """Which pairs of tables count as neighbours; printed with every guarantee.

    ZERO_OUT: N is public, one row is replaced by a null row that contributes nothing.
    ADD_REMOVE: one row is added or removed.
    REPLACE_ONE: N is public, one row is replaced by any other row.
    """

    ZERO_OUT = "zero_out"
    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"

    @property
    def sensitivity_factor(self) -> float:
        """Sensitivity of a sum of contributions bounded by 1: one row leaves, or one leaves and one enters."""
        return 2.0 if self is Adjacency.REPLACE_ONE else 1.0


#: Noise distributions: `gaussian`; `gumbel` (report-noisy-min, an exponential mechanism: bounded range);
#: `exponential` (report-noisy-min with one-sided exponential noise: pure differential privacy);
#: `none` (an answer without noise: its price is infinite, so no finite budget grants it).
MECHANISMS = ("gaussian", "gumbel", "exponential", "none")


@struct.dataclass
class Event:
    """One answered query.

    Attributes:
      mechanism: one of `MECHANISMS`.
      noise_multiplier: f32[], scale of the noise over the query's sensitivity under the stated adjacency
        (standard deviation for `gaussian`; scale parameter otherwise, so that epsilon = 1 / noise_multiplier).
    """

    mechanism: str = struct.field(pytree_node=False)
    noise_multiplier: jax.Array
