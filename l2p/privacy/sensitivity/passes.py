"""The most that one row can move the result of stochastic gradient descent without noise: a recursion over its steps.

A step subtracts eta_t times (the sum of a batch's gradients / b + ridge w). Two runs on neighbours differ where a batch
holds the row in question: there they move apart by at most eta_t / b gradients (two of them where a row is replaced).
Any step brings two runs no further apart than rho_t = max(1 - ridge eta_t, beta eta_t - 1) times their distance, if
eta_t <= 2 / beta (Hardt, Recht & Singer 2016; Wu et al. 2017). So a hit at step t moves the result by eta_t / b times
the product of all later rho; where iterates are averaged, by the weighted mean of that product over later iterates.
A projection onto a ball brings points no further apart. A null row has no gradient, while the regulariser moves on.

Nothing here is divided by b beyond the step itself. Wu et al. divide every sensitivity by b, which is wrong for
eta_t = 1 / (ridge t): larger batches mean fewer steps, hence longer ones, and the two cancel.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from scipy.linalg import blas
from scipy.optimize import minimize_scalar

from l2p.base.errors import InputError

RULES = ("constant", "decreasing", "square_root", "strongly_convex", "inverse_power")
ORDERS = ("fresh", "same", "with_replacement")
#: The most steps, whose numbers are kept one by one, and the most rows that all passes together read.
MAX_STEPS, MAX_READ = 2**24, 2**31
# Rounding to the nearest, over as many steps.
_UP = 1 + 1e-8


@dataclasses.dataclass(frozen=True)
class Passes:
    """The public course of a run: which steps it takes, whatever the rows hold.

    Attributes:
      num_rows: m, lines of the table, null rows included.
      smoothness: bound on the curvature of one row's loss, without the regulariser.
      num_passes: k; with replacement, as many draws as k passes have.
      batch_size: b, the divisor of every batch's sum; the last batch of a pass may hold fewer rows.
      rule: of step sizes, with beta = smoothness + ridge and t from 1: "constant", `step_size`; "decreasing",
        2 / (beta (t + m^power)); "square_root", 2 / (beta (sqrt t + m^power)); "strongly_convex",
        min(1 / beta, 1 / (ridge t)); "inverse_power", `step_size` / (t + `shift`)^power.
      step_size: 0 for min(1 / sqrt m, 1 / beta); used by two rules.
      power: c, used by all rules but the constant and the strongly convex one.
      ridge: weight of ||w||^2 / 2 beside the mean loss.
      radius: of the ball around 0 that every iterate is projected to; infinite for none.
      averaged: share of the steps, from the end, whose iterates are averaged; 0 for the last iterate alone.
      order: "fresh" permutes the rows before every pass, "same" once, "with_replacement" draws every row on its own.
      shift: of the number of a step, not below 0; used by one rule.

    >>> round(Passes(1000, 0.25, num_passes=5, step_size=0.1).sensitivity(), 6)
    0.5
    """

    num_rows: int
    smoothness: float
    num_passes: int = 10
    batch_size: int = 1
    rule: str = "constant"
    step_size: float = 0.0
    power: float = 0.5
    ridge: float = 0.0
    radius: float = math.inf
    averaged: float = 0.0
    order: str = "fresh"
    shift: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        positive = 0 < self.smoothness < math.inf and self.radius > 0
        shares = 0 <= self.averaged <= 1 and 0 <= self.power < math.inf
        weights = all(0 <= number < math.inf for number in (self.ridge, self.step_size, self.shift))
        counts = all(_whole(count) for count in (self.num_rows, self.num_passes, self.batch_size))
        if not (positive and shares and weights and counts and self.batch_size <= self.num_rows):
            raise InputError(
                f"{self} is no course of gradient descent that a proof covers; sizes are whole numbers from 1, a batch "
                "is no larger than the table, smoothness and radius are above 0, ridge, step size, shift and power are "
                "finite and not negative, and the averaged share lies in [0, 1]."
            )
        if self.num_steps > MAX_STEPS or self.num_passes * self.num_rows > MAX_READ:
            raise InputError(
                f"{self.num_passes} passes over {self.num_rows} rows in batches of {self.batch_size} take more than "
                f"{MAX_STEPS} steps, each of which counts here, or read more than {MAX_READ} rows; choose larger "
                "batches or fewer passes."
            )
        if self.rule not in RULES or self.order not in ORDERS:
            raise InputError(
                f"step sizes {self.rule!r} and order {self.order!r} are unknown, so nothing is proved of them; choose "
                f"among {', '.join(RULES)}, and among {', '.join(ORDERS)}."
            )
        if self.rule == "strongly_convex" and not self.ridge:
            raise InputError("steps of 1 / (ridge t) need a ridge above 0; give one, or choose constant steps.")

    @property
    def beta(self) -> float:
        """Smoothness of the whole objective."""
        return self.smoothness + self.ridge

    @property
    def steps_per_pass(self) -> int:
        """Number of batches in a pass."""
        return -(-self.num_rows // self.batch_size)

    @property
    def num_steps(self) -> int:
        """T."""
        return self.num_passes * self.steps_per_pass

    @functools.cached_property
    def step_sizes(self) -> np.ndarray:
        """eta_t f64[T].

        Raises:
          InputError: a step has no length that a floating-point number can hold.
        """
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            sizes = self._sizes(np.arange(1, self.num_steps + 1, dtype=np.float64))
        if not (np.isfinite(sizes).all() and (sizes > 0).all()):
            raise InputError(
                f"with rule {self.rule}, power {self.power:g} and shift {self.shift:g}, step sizes leave what numbers "
                "of 64 bits can hold, and nothing would be computed of them; choose a smaller power."
            )
        return sizes

    def _sizes(self, t: np.ndarray) -> np.ndarray:
        usual = min(1 / math.sqrt(self.num_rows), 1 / self.beta)
        if self.rule == "constant":
            return np.full(t.shape, self.step_size or usual)
        if self.rule == "inverse_power":
            return (self.step_size or usual) / (t + self.shift) ** self.power
        if self.rule == "strongly_convex":
            return np.minimum(1 / self.beta, 1 / (self.ridge * t))
        shift = np.float64(self.num_rows) ** self.power
        return 2 / (self.beta * ((t if self.rule == "decreasing" else np.sqrt(t)) + shift)) * (1 - 1e-12)

    @functools.cached_property
    def weights(self) -> np.ndarray:
        """f64[T], each iterate's share of what is returned."""
        counted = max(math.ceil(self.averaged * self.num_steps), 1)
        return np.where(np.arange(self.num_steps) >= self.num_steps - counted, 1 / counted, 0.0)

    @property
    def stretches(self) -> np.ndarray:
        """rho_t f64[T], how much further apart a step may bring two runs.

        Raises:
          InputError: a step is longer than 2 / beta.
        """
        if self.step_sizes.max() * self.beta > 2:
            raise InputError(
                f"a step size of {self.step_sizes.max():.6g} exceeds 2 / beta = {2 / self.beta:.6g}, beyond which two "
                "runs may move apart without bound; choose smaller steps."
            )
        return np.maximum(1 - self.ridge * self.step_sizes, self.beta * self.step_sizes - 1)

    @property
    def moves(self) -> np.ndarray:
        """f64[T], how far a difference of one unit in the sum of batch t moves what is returned."""
        # later[t] - rho[t + 1] later[t + 1] = weights[t]: two diagonals, solved from the last step to the first.
        diagonals = np.ones((2, self.num_steps), order="F")
        diagonals[0, 1:] = -self.stretches[1:]
        later = blas.dtbsv(1, diagonals, self.weights, diag=1)  # pyrefly: ignore[missing-attribute]
        return later * self.step_sizes / self.batch_size

    def sensitivity(self, tail: float = 0.0) -> float:
        """The most that nulling one row moves the result, for gradients of length 1; rounded up.

        A permutation hits each row once in a pass: the worst position counts, of each pass where each has an order of
        its own. With replacement the number of hits is random, and `tail` is the probability, above 0, that the result
        moves further.
        """
        return (
            self._quantile(tail) if self.order == "with_replacement" else _furthest(*dataclasses.astuple(self))
        ) * _UP

    def _quantile(self, tail: float) -> float:
        """Chernoff's bound on the sum over T batches of b draws, each of which hits the row with probability 1 / m."""
        if not 0 < tail < 1:
            raise InputError(
                f"rows drawn with replacement may be hit any number of times, so a bound holds up to a probability, "
                f"which {tail!r} is not; choose one strictly between 0 and 1, far below delta."
            )

        moves = self.moves

        def bound(log_rate: float) -> float:
            rate = math.exp(log_rate) / moves.max()
            log_mean = self.batch_size * np.log1p(np.expm1(rate * moves) / self.num_rows).sum()
            return float((log_mean - math.log(tail)) / rate)

        # Every rate gives a valid bound.
        return bound(float(minimize_scalar(bound, bounds=(-9.0, 6.0), method="bounded").x))

    def snapshot_sensitivity(self) -> tuple[float, float]:
        """`sensitivity` for variance-reduced steps (Johnson & Zhang 2013), and the factor by which all passes together
        may bring two runs further apart.

        A pass starts with the mean gradient at its first iterate, the snapshot. A step adds (mean gradient - the
        batch's own gradient) at the snapshot: of two convex functions that smooth, so Lipschitz with that constant
        however far apart the snapshots are. A row counts 1 / m in each mean, and twice in a batch: at the iterate and
        at the snapshot.
        """
        shape = self.num_passes, self.steps_per_pass
        later = np.ones(shape)
        stretches = self.stretches.reshape(shape)
        later[:, :-1] = np.cumprod(stretches[:, :0:-1], 1)[:, ::-1]
        reach = self.step_sizes.reshape(shape) * later
        distance, grown = 0.0, 1.0
        for moves, first, stretch in zip(reach, later[:, 0], stretches[:, 0], strict=True):
            growth = first * stretch + self.smoothness * moves.sum()
            distance = growth * distance + moves.sum() / self.num_rows + 2 * moves.max() / self.batch_size
            grown *= max(growth, 1.0)
        return distance * _UP, grown * _UP


@functools.lru_cache(maxsize=64)
def _furthest(*settings: Any) -> float:
    """Largest sum over passes of how far one row's steps move the result of these `Passes`, whose rows are permuted.

    A run asks when it is planned and when it is paid for, of plans made anew; kept is the number, not the steps.
    """
    plan = Passes(*settings)
    by_pass = plan.moves.reshape(plan.num_passes, plan.steps_per_pass)
    return float(by_pass.max(1).sum() if plan.order == "fresh" else by_pass.sum(0).max())


def _whole(count: int) -> bool:
    return isinstance(count, int) and not isinstance(count, bool) and count >= 1
