"""The declaration of a table: a schema, or what bounds and classes say of features and targets apart, (X, y)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.bounds import interval
from l2p.tables.reading import RawSource, open_table
from l2p.tables.schema import Number, Schema, Target
from l2p.tables.schema.columns import same
from l2p.tables.schema.pair import is_pair

#: Name of the target of a table without a schema.
TARGET = "y"


def given_schema(schema: Schema | str | Path, **declared: Any) -> Schema:
    """A table's declaration, or that in a file; nothing else may be `declared` beside it.

    Raises:
      InputError: something is, or the file is no schema.
    """
    if twice := [name for name, value in declared.items() if value is not None]:
        raise InputError(
            f"a schema declares bounds and classes, and {twice[0]} might contradict it; leave out one of the two."
        )
    return schema if isinstance(schema, Schema) else Schema.read(schema)


def schema_of_pair(
    pair: Any,
    bounds: Any = None,
    classes: Sequence[Any] | None = None,
    target_bounds: Any = None,
    class_weights: Any = None,
) -> Schema:
    """The declaration of features and target that come apart, (X, y), from public knowledge; of X the names of its
    columns are read.

    Args:
      pair: X, a table of numbers as `l2p.tables.reading.open_table` takes it, and the target.
      bounds: of the features: one pair [low, high] for all, two arrays of lows and highs, or {column: [low, high]}.
      classes: the labels, if the target is a class.
      target_bounds: [low, high], if it is a number.
      class_weights: how much a row of each class counts: {class: number}, or numbers in the order of `classes`.

    Raises:
      InputError: too much or too little is declared, or something that no table can hold.

    >>> schema = schema_of_pair((np.array([[30.0], [61.0]]), ["no", "yes"]), (0, 120), ("no", "yes"))
    >>> schema.columns, schema.target.classes
    ({'x0': Number(low=0.0, high=120.0, missing=None, curve=None)}, ('no', 'yes'))
    """
    if not is_pair(pair):
        raise InputError(
            "bounds and classes say nothing of which column is the target; pass features and target apart, (X, y), or "
            "a schema, which names it."
        )
    names = _opened(pair[0]).names
    columns = {name: Number(*ends) for name, ends in _pairs(bounds, names).items()}
    labels = _values(classes)
    target = Target(_free(TARGET, names), labels, _pair(target_bounds), weights=_weights(class_weights, labels))
    return Schema(columns, target)


def _opened(x: Any) -> RawSource:
    shape = np.shape(x) if isinstance(x, np.ndarray) else ()
    return open_table(x, names=[f"x{place}" for place in range(shape[1])] if len(shape) == 2 else ())


def _free(name: str, others: Sequence[str]) -> str:
    return name if name not in others else _free(f"{name}_", others)


def _values(classes: Sequence[Any] | None) -> tuple[Any, ...] | None:
    """Declared classes as Python's own texts, numbers and booleans."""
    if classes is None:
        return None
    if not _is_list(classes):
        raise InputError("classes must be a list of at least two labels, to tell apart; pass classes=[label, label].")
    return tuple(value.item() if isinstance(value, np.generic) else value for value in classes)


def _weights(weights: Any, classes: Sequence[Any] | None) -> Any:
    """Declared weights in the order of the classes, for `Target` to check."""
    if isinstance(weights, str):
        raise InputError(
            f"class weights are {weights!r}, but how frequent classes are is private and would have to be read off the "
            "labels; give {class: weight} from public knowledge."
        )
    if isinstance(weights, Mapping):
        names = _values(list(weights)) or ()
        if classes is not None:
            _check_named(names, classes)
            weight_of = dict(zip(names, weights.values(), strict=True))
            weights = [next(weight_of[name] for name in names if same(name, label)) for label in classes]
        else:
            weights = list(weights.values())
    return _values(weights) if weights is not None and _is_list(weights) else weights


def _check_named(names: Sequence[Any], classes: Sequence[Any]) -> None:
    """Refuse {class: weight} that does not name every class once."""
    for name in names:
        if not any(same(name, label) for label in classes):
            raise InputError(
                f"class weights name {name!r}, which is none of the classes, so it would weigh nothing; name one of "
                "them."
            )
    for label in classes:
        if sum(same(name, label) for name in names) != 1:
            raise InputError(f"class {label!r} has no weight, or several; name every class once, by {{class: weight}}.")


def _is_list(values: Any) -> bool:
    return not isinstance(values, (str, bytes)) and hasattr(values, "__len__")


def _pair(bounds: Any) -> tuple[float, float] | None:
    return None if bounds is None else interval("y", list(bounds) if _is_list(bounds) else bounds)


def _pairs(bounds: Any, names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """[low, high] of every feature."""
    if bounds is None:
        raise InputError(
            "the table is not declared, and reading bounds off its rows would leak; pass bounds=(low, high) from "
            "public knowledge, or a schema."
        )
    if isinstance(bounds, Mapping):
        if missing := [name for name in names if name not in bounds]:
            raise InputError(
                f"bounds name no {missing[0]!r} and so leave {len(missing)} of {len(names)} features undeclared; name "
                "every feature, or pass one pair for all."
            )
        return {name: interval(name, bounds[name]) for name in names}
    ends = [np.ravel(np.asarray(end, object)) for end in bounds] if _is_list(bounds) else []
    if len(ends) != 2 or not all(len(end) in (1, len(names)) for end in ends):
        raise InputError(
            f"bounds must be one pair (low, high) for all {len(names)} features, or an array of lows and one of highs "
            "with a number for each; pass one of these."
        )
    low, high = (np.broadcast_to(end, len(names)).tolist() for end in ends)
    return {name: interval(name, pair) for name, pair in zip(names, zip(low, high, strict=True), strict=True)}
