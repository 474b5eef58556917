"""Queries as accountants see them: mechanism and noise, under which neighbours."""

import enum
import math
from typing import Any

import jax

from l2p.base import struct


class Adjacency(enum.StrEnum):
    """Pairs of tables that count as neighbours; printed with every guarantee.

    ZERO_OUT: N is public, one row is replaced by a null row that contributes nothing.
    ADD_REMOVE: one row is added or removed.
    REPLACE_ONE: N is public, one row is replaced by any other row.
    """

    ZERO_OUT = "zero_out"
    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"

    @property
    def sensitivity_factor(self) -> float:
        """Sensitivity of a sum of contributions bounded by 1: 1 if one row is nulled, added or removed, 2 if it is
        replaced."""
        return 2.0 if self is Adjacency.REPLACE_ONE else 1.0


#: Mechanisms and what their noise multiplier m is. Sensitivities are L2 (L1 for `laplace`, per score for selections).
#: An output perturbation is the `gaussian` or `gamma` mechanism on the output of a solve.
MECHANISMS: dict[str, str] = {
    "gaussian": "standard deviation over sensitivity",
    "laplace": "scale over sensitivity: pure differential privacy with epsilon = 1 / m",
    "gamma": "a uniform direction and a Gamma(dimension) length, mean length over (dimension x sensitivity): pure, "
    "epsilon = 1 / m",
    "exponential": "report-noisy-min, exponential noise, scale over sensitivity: pure, epsilon = 1 / m",
    "gumbel": "report-noisy-min, Gumbel noise, an exponential mechanism, scale over sensitivity: bounded range, "
    "epsilon = 1 / m",
    "sinh_normal": "tail * arsinh(Gaussian / tail), standard deviation of the Gaussian over sensitivity: truncated CDP",
    "objective": "an objective perturbation, or another solve whose proof has a delta of its own, as a whole: "
    "1 / epsilon, at the budget's delta; it takes the whole budget",
    "none": "an answer without noise: its price is infinite, so only an unlimited budget grants it",
}

#: Mechanisms that are private with epsilon = 1 / m and delta = 0.
PURE = ("laplace", "gamma", "exponential", "gumbel")


@struct.dataclass
class Event:
    """One query to be answered.

    Attributes:
      mechanism: one of `MECHANISMS`.
      noise_multiplier: f32[], scale of the noise over the query's sensitivity under the stated adjacency.
      tail: for `sinh_normal`, the scale A beyond which its tails are thin, over the sensitivity (static).
      log_delta: for `objective`, the logarithm f32[] of the delta that it was calibrated for.
    """

    mechanism: str = struct.field(pytree_node=False)
    noise_multiplier: jax.Array
    tail: float = struct.field(pytree_node=False, default=math.inf)
    log_delta: jax.Array | float = -math.inf


@struct.dataclass
class Answered:
    """One query that an oracle was asked: its record while a run is compiled, a line of the trace, and what accountants
    price. All public: functions of released answers and of the price list.

    Numbers are f32[] in a compiled run, with leading axes where steps or runs are stacked, and Python's elsewhere.

    Attributes:
      step: 0 in `init`, which reads every row; from 1 on the run's sampler draws the rows. None while a
        run is compiled.
      mechanism: as in `Event` (static).
      noise_multiplier: scale of the noise over the sensitivity, to a unit where units are protected.
      tail: as in `Event` (static).
      query: its name; empty where a card does not say (static).
      clip_norm: the bound on one row's contribution; None where a card does not say, like the other two.
      cost: in the accountant's unit; 0 if refused.
      spent: of the whole run so far, this query included.
      granted: whether it was answered.
      answer: f32[k], the noised answer, where the trace keeps it: of queries that say so, and of gradient queries where
        noise keeps answers; else None.
    """

    step: Any
    mechanism: str = struct.field(pytree_node=False)
    noise_multiplier: Any
    tail: float = struct.field(pytree_node=False, default=math.inf)
    query: str = struct.field(pytree_node=False, default="", repr=False)
    clip_norm: Any = struct.field(default=None, repr=False)
    cost: Any = struct.field(default=None, repr=False)
    spent: Any = struct.field(default=None, repr=False)
    granted: Any = struct.field(default=True, repr=False)
    answer: Any = struct.field(default=None, repr=False, compare=False)
