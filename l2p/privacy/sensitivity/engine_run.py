"""The course of a training that another engine has taken, as whoever ran it declares it, in words that can be audited.

l2p sees the weights alone. The sensitivity of `Passes` is theirs if every sentence of `EngineRun.vouched` is true; what
the engine's log counts is compared with what the declaration comes to, since a wrong declaration is a false guarantee.
"""

import dataclasses
import functools
import math
import numbers
import types
import typing
from typing import Any

from l2p.base.errors import InputError
from l2p.privacy.sensitivity.passes import RULES, Passes

#: Losses of a row whose constants are known, and the largest slope and curvature of each in its margin.
LOSSES = {"logistic": (1.0, 0.25), "svm": (1.0, 5.0)}
_IN_WORDS = {
    "logistic": "the logistic loss",
    "svm": "the hinge loss with Huber's bend of .1 on either side",
}
#: How rows may be ordered; repeated rows would need a price of their own.
ORDERS = {
    "fresh": "in an order drawn anew for every pass",
    "same": "in one order, the same in every pass",
}
#: The largest whole number that a declaration may hold: floating-point numbers have all up to it.
_MOST = 2**53
#: The longest row that may be declared: its square is still a number.
_LONGEST = 2.0**500
#: Relative difference that rounding may make between a step size of the log and that of the declaration.
_DIGITS = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineRun:
    """What an engine did; all of it is public and stands on the card.

    A step subtracts eta_t times (the mean of a batch's gradients + `ridge` times the weights); weights start at zero.

    Attributes:
      engine: name and version of what trained.
      num_rows, num_passes, batch_size: m, k and b, which divides m.
      updates: the steps that the engine's log counts.
      first_step, last_step: step sizes eta_1 and eta_T of that log.
      step_size, rule, shift, power: eta_t, as `Passes` has them.
      ridge: weight of ||w||^2 / 2 beside the mean loss of the rows.
      radius: of the ball around 0 that every iterate is projected to; None for none.
      averaged: how many of the last iterates the weights are the mean of; 0 for the last one alone.
      order: one of `ORDERS`.
      loss: of a row, one of `LOSSES`.
      gradient: "mean" over the batch; an engine that adds up is refused.
      norm_bound: the length that no row exceeds, its constant column included.

    Raises:
      InputError: a field is out of place, the log contradicts them, or no proof covers them.

    >>> EngineRun(
    ...     engine="a job", num_rows=1000, num_passes=2, updates=2000, step_size=0.1, first_step=0.1, last_step=0.1
    ... ).passes.sensitivity() < 0.21
    True
    """

    engine: str
    num_rows: int
    num_passes: int
    updates: int
    first_step: float
    last_step: float
    batch_size: int = 1
    step_size: float = 0.0
    rule: str = "constant"
    shift: float = 0.0
    power: float = 0.5
    ridge: float = 0.0
    radius: float | None = None
    averaged: int = 0
    order: str = "fresh"
    loss: str = "logistic"
    gradient: str = "mean"
    norm_bound: float = 1.0

    def __post_init__(self) -> None:
        """Check every field, by itself and against the log."""
        for name, kind in typing.get_type_hints(EngineRun).items():
            object.__setattr__(self, name, _value(name, getattr(self, name), kind))
        if not self.engine.strip() or not self.engine.isprintable():
            raise InputError(f"the engine is called {self.engine!r}, but an auditor must know what trained; name it.")
        self._check_choices()
        self._check_sizes()
        self._check_log()
        self.passes.sensitivity()  # refuses steps that are too long

    def _check_choices(self) -> None:
        if self.gradient != "mean":
            raise InputError(
                f"the engine's step follows the {self.gradient} of a batch's gradients, but the sensitivity here is "
                "that of steps along their mean, and a sum moves batch_size times as far; declare gradient mean with "
                "step_size times batch_size and ridge over batch_size, which are the same steps."
            )
        for name, choices, why in (
            ("loss", LOSSES, "slope and curvature of others are not bounded, or nobody proved by what"),
            ("order", ORDERS, "a row that may be drawn twice in a pass moves the weights further"),
            ("rule", RULES, "a step size must be known before the first row is read"),
        ):
            if getattr(self, name) not in choices:
                raise InputError(
                    f"{name} {getattr(self, name)!r} has no proof here: {why}; choose {' or '.join(choices)}, if that "
                    "is what the engine did, or train with l2p (private_train)."
                )

    def _check_sizes(self) -> None:
        if min(self.num_rows, self.num_passes, self.batch_size) < 1 or self.num_rows % self.batch_size:
            raise InputError(
                f"batches of {self.batch_size} do not divide {self.num_rows} rows, {self.num_passes} passes over which "
                "were declared, and a shorter last batch, over whose own size an engine divides, moves the weights "
                "further than is proved; train on a number of rows that the batch size divides."
            )
        if (
            not 0 < self.norm_bound <= _LONGEST
            or not 0 <= self.averaged <= self.num_rows * self.num_passes // self.batch_size
        ):
            raise InputError(
                f"norm_bound {self.norm_bound!r} or averaged {self.averaged!r} is out of place: rows are no longer "
                "than a positive number, and the weights are the mean of no more iterates than there were steps."
            )
        if self.rule in ("constant", "inverse_power") and not self.step_size > 0:
            raise InputError(
                f"step_size is {self.step_size!r}, but steps are multiples of it; declare the engine's own, above 0."
            )

    def _check_log(self) -> None:
        plan = self.passes
        if self.updates != plan.num_steps:
            raise InputError(
                f"the engine counted {self.updates} steps, but {self.num_passes} passes over {self.num_rows} rows in "
                f"batches of {self.batch_size} are {plan.num_steps}, so it read other rows, or stopped when it saw "
                "fit; declare what it did, and train for a fixed number of passes."
            )
        ends = ("first_step", plan.step_sizes[0]), ("last_step", plan.step_sizes[-1])
        for name, size in ends:
            if not math.isclose(getattr(self, name), size, rel_tol=_DIGITS):
                raise InputError(
                    f"the engine's {name} was {getattr(self, name):.6g}, but {self.rule} steps as declared have "
                    f"{size:.6g} there, so the sensitivity would be that of other steps; declare its own."
                )

    @property
    def slope(self) -> float:
        """L, how long the gradient of a row is at most."""
        return LOSSES[self.loss][0] * self.norm_bound

    @property
    def share_averaged(self) -> float:
        """`Passes.averaged`, which is rounded up to whole steps."""
        return max(self.averaged - 0.5, 0.0) / (self.num_passes * self.num_rows // self.batch_size)

    @functools.cached_property
    def passes(self) -> Passes:
        """The course whose sensitivity is that of the weights."""
        return Passes(
            self.num_rows,
            LOSSES[self.loss][1] * self.norm_bound**2,
            self.num_passes,
            self.batch_size,
            self.rule,
            self.step_size,
            self.power,
            self.ridge,
            math.inf if self.radius is None else self.radius,
            self.share_averaged,
            self.order,
            self.shift,
        )

    @property
    def reach(self) -> float:
        """The length that weights cannot exceed, whatever the rows hold."""
        farthest = self.slope * float(self.passes.step_sizes.sum())
        return farthest if self.radius is None else min(farthest, self.radius)

    def to_json(self) -> dict[str, Any]:
        """Its fields, from which it can be made again."""
        return dataclasses.asdict(self)

    @property
    def vouched(self) -> list[str]:
        """What whoever trained the weights vouches for, in sentences that an auditor can check one by one."""
        radius = "" if self.radius is None else _exact(self.radius)
        ball = radius and f", then brought the weights back into the ball of radius {radius}"
        first, last, longest = map(_exact, (self.first_step, self.last_step, self.norm_bound))
        weights = f"the mean of the last {self.averaged} iterates" if self.averaged else "the last iterate"
        return [
            f"Passes: {self.engine} read all {self.num_rows} rows, each once in a pass, {ORDERS[self.order]}, and "
            "neither that order nor which rows there were depended on what rows hold.",
            f"Length: it took {self.num_passes} passes, {self.updates} steps, a number fixed beforehand: no tolerance, "
            "no early stopping, no choice among several trainings by a score on these rows.",
            f"Step: each subtracted its step size times (the mean of the gradients of {self.batch_size} "
            f"row{'s' * (self.batch_size > 1)} + {_exact(self.ridge)} times the weights){ball}; weights began at zero.",
            f"Step sizes: {self._rule_in_words()}, from {first} to {last}, whatever the loss did.",
            f"Loss: {_IN_WORDS[self.loss]} of each row, weighed alike, of classes that were known "
            "beforehand and are trained whether or not a row has them.",
            f"Rows: none is longer than {longest}, its constant column included; each was scaled, filled and "
            "clipped by itself, with constants known before the table was.",
            f"Weights: {weights}, with every coefficient that was trained, the intercept's among them, as that of the "
            "constant column; in arithmetic of 64 bits.",
            "Secrecy: weights without noise, other iterates, losses and scores of this training went nowhere else, and "
            "will not.",
        ]

    def _rule_in_words(self) -> str:
        beta = f"beta = {_exact(self.passes.beta)}"
        return {
            "constant": f"{_exact(self.step_size)} in every step",
            "inverse_power": f"{_exact(self.step_size)} / (t + {_exact(self.shift)})^{_exact(self.power)} in step t",
            "decreasing": f"2 / ({beta} times (t + m^{_exact(self.power)})) in step t",
            "square_root": f"2 / ({beta} times (sqrt t + m^{_exact(self.power)})) in step t",
            "strongly_convex": f"min(1 / beta, 1 / ({_exact(self.ridge)} t)) in step t, {beta}",
        }[self.rule]


def _exact(number: float) -> str:
    """All digits of a number that a sentence vouches for: a rounded one may be true where the declaration is not."""
    return repr(number).removesuffix(".0")


def _value(name: str, value: Any, kind: Any) -> Any:
    """The value in its own type; `InputError` if it is of another."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if value is None and types.NoneType in kinds:
        return None
    is_huge = isinstance(value, int) and abs(value) > _MOST
    if not isinstance(value, bool) and not is_huge:
        if int in kinds and isinstance(value, numbers.Integral):
            return int(value)
        if float in kinds and isinstance(value, numbers.Real) and math.isfinite(value):
            return float(value)
        if str in kinds and isinstance(value, str):
            return value
    wanted = {int: "a whole number", float: "a finite number", str: "a text"}[kinds[0]]
    shown = "a huge number" if is_huge else repr(value)  # Python refuses to print more than 4,300 digits
    raise InputError(
        f"{name} is {shown}, of which no sensitivity follows; declare {wanted}, as the engine had it when it trained."
    )
