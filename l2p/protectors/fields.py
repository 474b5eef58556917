"""Allowed values of a protector's fields, written as types: a checkpoint with other values is refused before it runs.

A field's type names its rule, as in `log_clip_norm: Polynomial`. `misfit` checks a value against such a type.
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import jax
import numpy as np

#: Maximum number of steps of a run: more could not be listed one by one.
MAX_STEPS = 2**20
#: Maximum number of moves that a step may unroll, since each is compiled.
MAX_UNROLLED = 64
#: Largest absolute value of a logarithm or a logit: its exponential and the inverse of that are float32 numbers.
MAX_LOG = 80.0
#: Largest absolute value of the logarithm of a bound on a row, where that depends on answers: well within what the
#: oracle takes, so that no answer decides whether a run goes on.
MAX_LOG_BOUND = 40.0 * math.log(2.0)
#: Numbers of a knot: a value and its slopes in five public facts.
KNOT_COLUMNS = 6
#: Maximum number of coefficients: powers of numbers up to 2 stay far within float32.
MAX_COEFFICIENTS = 32

Sizes = dict[str, int]


@dataclasses.dataclass(frozen=True)
class Coefficients:
    """f32[k, *tail], the coefficients of polynomials in log(mu N), which `conditioning.standardize` keeps in [-2, 2].

    They are logarithms, logits or the like, so none leaves [-MAX_LOG, MAX_LOG] at any budget; but the constant term may
    be -inf, the logarithm of 0.
    """

    tail: tuple[int, ...] = ()

    def __call__(self, value: jax.Array, sizes: Sizes) -> str | None:
        del sizes
        if not value.ndim or value.shape[1:] != self.tail or not 0 < len(value) <= MAX_COEFFICIENTS:
            expected = ", ".join(["k", *map(str, self.tail)])
            return f"has shape {list(value.shape)} where [{expected}] belongs, k from 1 to {MAX_COEFFICIENTS}"
        numbers = np.abs(np.asarray(value, np.float64))
        numbers[0] = np.where(np.asarray(value)[0] == -np.inf, 0.0, numbers[0])
        most = np.tensordot(2.0 ** np.arange(len(value)), numbers, 1).max()
        return None if most <= MAX_LOG else f"reaches {most:.3g}, beyond {MAX_LOG:g}, near which exponentials overflow"


@dataclasses.dataclass(frozen=True)
class Knots:
    """f32[k, 6], for `conditioning.between_knots`: values, their slopes in two sizes that are kept in [-2, 2], and
    terms for a hidden layer, a wide table and a very wide one.

    They are logarithms, logits or the like, so none leaves [-MAX_LOG, MAX_LOG].
    """

    def __call__(self, value: jax.Array, sizes: Sizes) -> str | None:
        del sizes
        if value.ndim != 2 or value.shape[1] != KNOT_COLUMNS or not 0 < len(value) <= MAX_COEFFICIENTS:
            return f"has shape {list(value.shape)} where [k, {KNOT_COLUMNS}] belongs, k from 1 to {MAX_COEFFICIENTS}"
        most = (np.abs(np.asarray(value, np.float64)) @ np.array([1.0, 2.0, 2.0, 1.0, 1.0, 1.0])).max()
        return None if most <= MAX_LOG else f"reaches {most:.3g}, beyond {MAX_LOG:g}, near which exponentials overflow"


@dataclasses.dataclass(frozen=True)
class Either:
    """A number, coefficients of a polynomial, or knots, told apart by their shape."""

    def __call__(self, value: jax.Array, sizes: Sizes) -> str | None:
        if value.ndim == 0:
            return Numbers()(value, sizes)
        return (Knots() if value.ndim == 2 else Coefficients())(value, sizes)


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Finite numbers of a shape. A name in it means the same size in all fields of a part."""

    shape: tuple[str, ...] = ()
    positive: bool = False

    def __call__(self, value: jax.Array, sizes: Sizes) -> str | None:
        fits = value.ndim == len(self.shape) and all(
            size > 0 and size == sizes.setdefault(name, size)
            for name, size in zip(self.shape, value.shape, strict=True)
        )
        if not fits:
            expected = [sizes.get(name, name) for name in self.shape]
            return f"has shape {list(value.shape)} where [{', '.join(map(str, expected))}] belongs"
        if not np.isfinite(value).all():
            return "holds a number that is not finite"
        return "holds a number that is not above 0" if self.positive and not (np.asarray(value) > 0).all() else None


@dataclasses.dataclass(frozen=True)
class Between:
    """A whole number from 1 to `most`."""

    most: int

    def __call__(self, value: int, sizes: Sizes) -> str | None:
        del sizes
        return None if 1 <= value <= self.most else f"is {_short(value)} where 1 to {self.most} belongs"


Polynomial = Annotated[jax.Array, Coefficients()]
#: Values at log(mu N) of each knot, and their changes with the numbers of features and of margins, with a hidden layer
#: and with a wide table.
Curve = Annotated[jax.Array, Knots()]
#: A number, a polynomial in log(mu N), or values at knots: what `conditioning.at` takes.
Share = Annotated[jax.Array, Either()]
#: An intercept and a slope, each a polynomial.
Line = Annotated[jax.Array, Coefficients((2,))]
Scalar = Annotated[jax.Array, Numbers()]
Positive = Annotated[jax.Array, Numbers(positive=True)]
#: Number of steps, iterations or blocks.
Count = Annotated[int, Between(MAX_STEPS)]


@functools.cache
def kinds(cls: type) -> Mapping[str, Any]:
    """The types of the fields of a protector or a part of one, with their rules."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def has_knots(value: jax.Array, kind: Any) -> bool:
    """True if a field's value of this type is the knots of a curve.

    >>> import jax.numpy as jnp
    >>> has_knots(jnp.zeros((8, 6)), Curve), has_knots(jnp.zeros((8, 6)), Share | None), has_knots(jnp.zeros(3), Share)
    (True, True, False)
    """
    rules = [rule for part in (kind, *typing.get_args(kind)) for rule in typing.get_args(part)]
    return any(isinstance(rule, Knots) or (isinstance(rule, Either) and value.ndim == 2) for rule in rules)


def misfit(value: Any, kind: Any, sizes: Sizes) -> str | None:
    """Reason why a value is not of its kind, as a predicate of the field's name; None if it is.

    Args:
      value: of one field.
      kind: its type, see `kinds`.
      sizes: sizes of the names in shapes; new ones are added.

    >>> import jax.numpy as jnp
    >>> misfit(jnp.zeros((3, 2)), Polynomial, {})
    'has shape [3, 2] where [k] belongs, k from 1 to 32'
    >>> misfit(jnp.zeros((3, 3)), Line, {}), misfit(jnp.zeros(()), Polynomial, {})[:12]
    ('has shape [3, 3] where [k, 2] belongs, k from 1 to 32', 'has shape []')
    >>> misfit(jnp.zeros(()), Positive, {}), misfit(jnp.zeros(()), Scalar, {})
    ('holds a number that is not above 0', None)
    >>> misfit(-3, Count, {}), misfit(None, Polynomial | None, {})
    ('is -3 where 1 to 1048576 belongs', None)
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):  # the only unions are with None
        plain = next(argument for argument in arguments if argument is not types.NoneType)
        return None if value is None else misfit(value, plain, sizes)
    if origin is Annotated:
        plain, rule = arguments
        return misfit(value, plain, sizes) or rule(value, sizes)
    if origin is Literal:
        return None if value in arguments else f"is {_short(value)} where {' or '.join(arguments)} belongs"
    if origin is dict:
        if not isinstance(value, dict):
            return f"is {_named(value)} where named numbers belong"
        reasons = ((name, misfit(item, arguments[1], sizes)) for name, item in value.items())
        return next((f"'s {_short(name)} {reason}" for name, reason in reasons if reason), None)
    if origin is tuple:
        fits = isinstance(value, tuple) and all(isinstance(item, arguments[0]) for item in value)
        return None if fits else f"is {_named(value)} where a list of {arguments[0].__name__} belongs"
    # True is an int to Python.
    fits = isinstance(value, ARRAYS if kind is jax.Array else kind) and not (kind is int and isinstance(value, bool))
    return None if fits else f"is {_named(value)} where {_ARTICLES.get(kind, kind.__name__)} belongs"


#: The arrays of a file are checked as NumPy arrays, before they go to a device.
ARRAYS = (jax.Array, np.ndarray)
_ARTICLES = {
    int: "a whole number",
    float: "a number with a decimal point",
    bool: "true or false",
    str: "a text",
    jax.Array: "an array",
    dict: "a network",
}


def _named(value: Any) -> str:
    if isinstance(value, ARRAYS):
        return "an array"
    return _short(value) if isinstance(value, (bool, int, float, str, types.NoneType)) else type(value).__name__


def _short(value: Any) -> str:
    """Python's repr, shortened, because messages quote what a file holds."""
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a huge number"  # Python refuses to print more than 4,300 digits
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}..."
