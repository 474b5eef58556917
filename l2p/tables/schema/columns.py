"""Declarations of columns. Everything here is public: the user declares it, and nothing is read off private rows."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.bounds import Interval, checked_bounds, is_finite
from l2p.tables.schema.curves import Curve, checked_curve, knots_of

#: Floating-point numbers take whole numbers from here on for one another.
INEXACT = 2.0**53
#: A declared value of a category or a class. All values of one column are of one kind.
Value = str | float | bool


@dataclasses.dataclass(frozen=True)
class Missing:
    """Stand-in for a missing cell.

    Attributes:
      fill: the value that it is counted as; None for a category whose missing cells count as the average of its values.
      indicator: whether a further encoded column says which cells were missing.
    """

    fill: Value | None = None
    indicator: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.indicator, bool):
            raise InputError("missing cells need an indicator that is true or false; write true to get the column.")
        if self.fill is None and not self.indicator:
            raise InputError(
                "missing cells are declared with neither a fill nor an indicator, so nothing would stand for them; "
                'write {"fill": a value}, {"indicator": true} or both.'
            )


@dataclasses.dataclass(frozen=True)
class Number:
    """A number, clipped to [low, high] and scaled to [0, 1], or the hats of a curve over [low, high].

    Attributes:
      low, high: public bounds in the column's own units; both None where they are to be bought (`Number.private`).
      missing: what stands in for a missing cell; None makes its row invalid.
      curve: how many knots its curve has, or the knots; None for a straight line (`l2p.tables.schema.curves`).

    >>> Number(0, 120), Number.private().is_private
    (Number(low=0.0, high=120.0, missing=None, curve=None), True)
    """

    low: float | None
    high: float | None
    missing: Missing | None = None
    curve: Curve | None = None

    def __post_init__(self) -> None:
        if (self.low, self.high) != (None, None):
            low, high = checked_bounds((self.low, self.high), 'or "private" to buy them from the budget')
            object.__setattr__(self, "low", low)
            object.__setattr__(self, "high", high)
        if self.curve is not None:
            bounds = self.bounds
            object.__setattr__(self, "curve", checked_curve(self.curve, None if bounds == "private" else bounds))
        if self.missing is None:
            return
        fill: Any = self.missing.fill
        if not is_finite(fill):
            raise InputError(
                "the fill of a number's missing cells must be a finite number, which is scaled as any other cell; "
                "write one between the bounds."
            )
        if self.low is not None and self.high is not None and not self.low <= fill <= self.high:
            raise InputError(
                f"the fill {fill:g} of missing cells is outside the bounds [{self.low:g}, {self.high:g}], so clipping "
                "would change it; write one between the bounds."
            )

    @classmethod
    def private(cls, missing: Missing | None = None, curve: int | None = None) -> "Number":
        """A number whose bounds nobody knows: they are bought from the budget."""
        return cls(None, None, missing, curve)

    @property
    def is_private(self) -> bool:
        return self.low is None

    @property
    def bounds(self) -> Interval | Literal["private"]:
        """[low, high] or "private", as the schema file has it."""
        return "private" if self.low is None or self.high is None else (self.low, self.high)

    @property
    def knots(self) -> np.ndarray:
        """Knots f64[k] of its curve, which it has, over bounds that are known."""
        bounds = self.bounds
        assert self.curve is not None
        assert bounds != "private"
        return knots_of(self.curve, bounds)


@dataclasses.dataclass(frozen=True)
class Category:
    """One of some declared values. Any other value counts as their average.

    Attributes:
      values: the values, all texts, all numbers or all booleans; in order where `ordered`.
      ordered: whether they become evenly spaced numbers from 0 to 1, rather than a column each.
      missing: what stands in for a missing cell; None makes its row invalid.
      shares: how frequent the values are, public, in their order; only their ratios matter. None counts all alike in
        the average.
      other: whether a further encoded column says which cells held a value that is not declared.

    >>> Category(("low", "mid", "high"), ordered=True, shares=(2, 1, 1)).average
    (0.5, 0.25, 0.25)
    """

    values: Sequence[Value]
    ordered: bool = False
    missing: Missing | None = None
    shares: Sequence[float] | None = None
    other: bool = False

    def __post_init__(self) -> None:
        values = distinct(self.values, "values", at_least=2 if self.ordered else 1)
        object.__setattr__(self, "values", values)
        if not isinstance(self.ordered, bool):
            raise InputError('"ordered" says whether the values have an order, so it must be true or false.')
        if not isinstance(self.other, bool):
            raise InputError('"other" says whether values that are not declared get a column: write true or false.')
        self._check_shares()
        fill = None if self.missing is None else self.missing.fill
        if fill is not None and not any(same(fill, value) for value in values):
            raise InputError(
                f"the fill {fill!r} of missing cells is none of the category's values; write one of them, or "
                '{"indicator": true} alone.'
            )

    def _check_shares(self) -> None:
        if self.shares is None:
            return
        shares, count = self.shares, len(self.values)
        is_list = isinstance(shares, Sequence) and not isinstance(shares, str)
        if not (is_list and len(shares) == count and all(is_finite(share) and share >= 0 for share in shares)):
            raise InputError(f"shares must be {count} numbers of at least 0, one per value in their order.")
        if not 0 < sum(map(float, shares)) < math.inf:
            raise InputError("shares must have a sum above 0 that a number can hold; write 1 for each value, say.")
        object.__setattr__(self, "shares", tuple(map(float, shares)))

    @property
    def average(self) -> tuple[float, ...]:
        """The share of each value in what stands for a cell of which nothing is known; they sum to 1."""
        shares = self.shares or (1.0,) * len(self.values)
        return tuple(share / sum(shares) for share in shares)


@dataclasses.dataclass(frozen=True)
class Ignore:
    """A column to learn nothing from."""


Column = Number | Category | Ignore


def distinct(values: Any, name: str, at_least: int) -> tuple[Value, ...]:
    """Declared values, all of one kind and no two alike; `InputError` otherwise.

    >>> distinct(["a", "b"], "values", 2)
    ('a', 'b')
    """
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InputError(f"{name} must be a list of texts, numbers or booleans; write [value, value].")
    if len(values) < at_least:
        has = "none" if not values else "one"
        raise InputError(f"{name} must be at least {at_least}, but there is {has}; list what the column may hold.")
    kinds = {kind_of(value) for value in values}
    if len(kinds) > 1 or None in kinds:
        raise InputError(
            f"{name} must be all texts, all finite numbers or all booleans, so that it is clear what a cell is "
            "compared with; write them all as texts, say."
        )
    if any(isinstance(value, float) and abs(value) >= INEXACT for value in values):
        raise InputError(
            f"{name} hold a number from 2^53 on with a point or an exponent, which stands for several whole numbers; "
            "write all its digits, without a point."
        )
    stripped = tuple(value.strip() if isinstance(value, str) else value for value in values)
    if "" in stripped and kinds == {str}:
        raise InputError(f"{name} include an empty text, but an empty cell is a missing one; declare it as missing.")
    if len(set(stripped)) < len(stripped):
        twice = next(value for value in stripped if stripped.count(value) > 1)
        raise InputError(f"{name} name {twice!r} twice; leave out one of the two.")
    return stripped


def kind_of(value: object) -> type | None:
    """str, float or bool; None for what cannot be declared."""
    if isinstance(value, (bool, str)):
        return type(value)
    return float if is_finite(value) else None


def as_array(values: Sequence[Value]) -> np.ndarray:
    """Declared values as an array that holds each of them exactly, of objects where no other kind does.

    >>> as_array((2, 3)).dtype.kind, as_array((-1, 2**63)).dtype.kind, as_array((0.5, 2**53 + 1)).tolist()
    ('i', 'O', [0.5, 9007199254740993])
    """
    array = np.asarray(values)
    exact = array.dtype.kind != "f" or bool((np.abs(array) < INEXACT).all())
    return array if exact else np.asarray(values, object)


def same(first: Value, second: Value) -> bool:
    """True if these are one declared value: 1, True and "1" are three.

    >>> same(1, 1.0), same(1, True)
    (True, False)
    """
    return kind_of(first) is kind_of(second) and first == second
