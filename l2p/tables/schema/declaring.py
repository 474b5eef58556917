"""Tables that come as features and targets apart, (X, y), and the schema that bounds and classes make of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from l2p.base.errors import InputError, withheld
from l2p.tables.bounds import interval
from l2p.tables.reading import InMemory, RawSource, open_table
from l2p.tables.schema import Number, Schema, Target
from l2p.tables.schema.columns import same

#: Name of the target of a table without a schema.
TARGET = "y"


def declared(
    data: Any,
    schema: Schema | str | Path | None,
    bounds: Any = None,
    classes: Sequence[Any] | None = None,
    target_bounds: Any = None,
    class_weights: Any = None,
) -> tuple[Any, Schema]:
    """A raw table that `l2p.tables.schema.read_rows` takes, and its schema.

    Args:
      data: a table as `l2p.tables.reading.open_table` takes it, or a pair (X, y) of such a table without its target,
        and the target.
      schema: the declaration, or its file; or, for a pair of numbers and a target, in its place the others:
      bounds: of the features, from public knowledge: one pair [low, high] for all, two arrays of lows and highs, or
        {column: [low, high]}.
      classes: the labels, if the target is a class.
      target_bounds: [low, high], if it is a number.
      class_weights: how much a row of each class counts, public: {class: number}, or numbers in the order of `classes`.

    Raises:
      InputError: too much or too little is declared, or something that no table can hold.

    >>> table, schema = declared((np.array([[30.0], [61.0]]), ["no", "yes"]), None, (0, 120), ("no", "yes"))
    >>> sorted(table), schema.columns, schema.target.classes
    (['x0', 'y'], {'x0': Number(low=0.0, high=120.0, missing=None)}, ('no', 'yes'))
    """
    if schema is not None:
        options = {
            "bounds": bounds,
            "classes": classes,
            "target_bounds": target_bounds,
            "class_weights": class_weights,
        }
        if twice := [name for name, value in options.items() if value is not None]:
            raise InputError(
                f"a schema declares bounds and classes, and {twice[0]} might contradict it; leave out one of the two."
            )
        schema = schema if isinstance(schema, Schema) else Schema.read(schema)
        return (joined(data, schema) if is_pair(data) else data), schema
    if not is_pair(data):
        raise InputError(
            "bounds and classes say nothing of which column is the target; pass features and target apart, (X, y), or "
            "a schema, which names it."
        )
    source = _opened(data[0])
    columns = {name: Number(*pair) for name, pair in _pairs(bounds, source.names).items()}
    labels = _values(classes)
    target = Target(_free(TARGET, source.names), labels, _pair(target_bounds), weights=_weights(class_weights, labels))
    schema = Schema(columns, target)
    return joined(data, schema), schema


def is_pair(data: Any) -> bool:
    """True if features and target come apart; two paths are one table in two files."""
    return isinstance(data, tuple) and len(data) == 2 and not all(isinstance(part, (str, Path)) for part in data)


@withheld("joining features and targets")
def joined(pair: tuple[Any, Any], schema: Schema) -> dict[str, Any]:
    """Columns by name of a pair (X, y), whose target is called as the schema calls it.

    A whole table may come as X: its column of that name is not a feature, and y stands in its place.
    """
    x, y = pair
    target = schema.target.column
    names = [name for name in schema.names if name != target]
    source = open_table(x, schema.format(), names)
    if isinstance(source, InMemory):
        return dict(source.columns) | {target: y}
    blocks = list(source.blocks(source.names))
    return {name: np.concatenate([block[name] for block in blocks]) for name in source.names} | {target: y}


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
