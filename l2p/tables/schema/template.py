"""Schemas that are still to be filled, and schemas made from a public sample."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.header import listed
from l2p.tables.reading import Format, RawSource
from l2p.tables.schema.cells import codes, numbers, whole_number
from l2p.tables.schema.columns import Category, Column, Ignore, Missing, Number, Value
from l2p.tables.schema.curve_choice import KNOTS, Allowance, Curved, curves_or_lines
from l2p.tables.schema.curves import LEAST, checked_count, crowds, knots_among
from l2p.tables.schema.file import FORMAT, format_fields
from l2p.tables.schema.sample import MAX_CLASSES, MAX_VALUES, described, refuse_commas, why_ignored
from l2p.tables.schema.schema import MISSING_WORDS, Schema
from l2p.tables.schema.target import Target

#: The share of a sample's values that may lie below its bounds, and above.
OUTSIDE = 0.005
#: How far declared bounds reach beyond what a sample holds, as a share of its range.
MARGIN = 0.1

_ABOUT = (
    "Fill in every null from public knowledge. A column is "
    '{"type": "number", "bounds": [low, high]} (with "curve": 8 where the target may rise and fall with it), '
    '{"type": "category", "values": [...]} (with "ordered": true where they have an order, and '
    '"shares": [...] where it is known how frequent they are) or {"type": "ignore"}; '
    '"missing": {"fill": value, "indicator": true} says what stands in for missing cells. '
    'The target has "classes": [...] or "bounds": [low, high]; delete the other.'
)


class Sampled(NamedTuple):
    """A schema made from a public sample.

    Attributes:
      schema: the schema.
      why: for every column and the target, by name: its type, and what was taken from the sample or why nothing was.
      curves: why numbers are curves or straight lines; None where there was nothing to decide.
    """

    schema: Schema
    why: Mapping[str, tuple[str, str]]
    curves: str | None = None


def template(source: RawSource, target: str, format: Format | None = None) -> dict[str, Any]:
    """A schema file with the names of a table and the types that the table itself declares; cells are not read.

    Columns that `format` leaves out are ignored in it, and its encoding and decimal mark are kept there.

    Raises:
      InputError: the table lacks the target, or has no other column.

    >>> from l2p.tables.reading import open_table
    >>> source = open_table({"age": np.array([61.5]), "ward": ["a"], "back": ["no"]})
    >>> content = template(source, "back")
    >>> content["columns"]
    {'age': {'type': 'number', 'bounds': None}, 'ward': {'type': None}}
    >>> content["target"]
    {'column': 'back', 'classes': None, 'bounds': None}
    """
    source.check_columns((target,))
    format = format or Format()
    holds = {"number": {"type": "number", "bounds": None}, "category": {"type": "category", "values": None}}
    target_values = {"number": {"bounds": None, "classes": None}, "category": {"classes": None}}
    kind = source.types.get(target, "")
    return {
        "format": FORMAT,
        "about": _ABOUT,
        "target": {"column": target, **target_values.get(kind, {"classes": None, "bounds": None})},
        "missing_words": list(MISSING_WORDS),
        **format_fields(format.encoding, format.decimal),
        "columns": {
            name: {"type": "ignore"}
            if name in format.ignore
            else dict(holds.get(source.types.get(name, ""), {"type": None}))
            for name in source.names
            if name != target
        },
    }


def from_public(source: RawSource, target: str, names: Sequence[str] | None = None, **options: Any) -> Schema:
    """The schema that `sampled` makes.

    >>> from l2p.tables.reading import open_table
    >>> public = {"age": ["20", "?", "40"], "ward": ["a", "b", "?"], "pay": [">50K.", ">50K", "<=50K"]}
    >>> schema = from_public(open_table(public), "pay")
    >>> schema.columns["age"]
    Number(low=18.0, high=42.0, missing=Missing(fill=30.0, indicator=True), curve=None)
    >>> schema.columns["ward"].values, schema.target.classes, schema.target.aliases
    (('a', 'b'), ('<=50K', '>50K'), {'<=50K.': '<=50K', '>50K.': '>50K'})
    """
    return sampled(source, target, names, **options).schema


def sampled(
    source: RawSource,
    target: str,
    names: Sequence[str] | None = None,
    target_type: Literal["number", "classes"] | None = None,
    format: Format | None = None,
    curve: int | None = None,
    allowance: Allowance | None = None,
) -> Sampled:
    """A complete schema for tables like a public one, whose cells are read freely.

    Types are the source's own or, for text, read off its cells. Bounds hold all of the sample but its outermost half
    percents, so that a few large values do not flatten the others, and reach a tenth further, but not across zero.
    Missing numbers count as the sample's median, missing categories as themselves or, where the sample has no missing
    cell, as the commonest value. Ignored are texts with more than
    `MAX_VALUES` values or most of whose values occur once, such as names; ids and dates; columns without two values;
    and columns that the sample lacks.

    Args:
      source: the public sample.
      target: the column to predict.
      names: the columns of the private table, in order; others of the sample are left out.
      target_type: whether the target is a number or classes; None takes whole numbers with at most `MAX_CLASSES` values
        for classes, and other numbers for a number.
      format: as the sample was opened with; kept with the schema, whose columns are those that it does not ignore.
      curve: how many knots the curves of numbers with more than `MAX_CLASSES` values have (`knots_among`); 0 for
        straight lines; None decides by how values lie and by `allowance` (`l2p.tables.schema.curve_choice`).
      allowance: the budget and the number of rows of the run.

    Raises:
      InputError: the sample lacks the target or has no rows, its target is neither classes nor numbers, or its numbers
        seem to have decimal commas and `format` does not say so.
    """
    source.check_columns((target,))
    format = format or Format()
    features = [name for name in (source.names if names is None else names) if name != target]
    read = [
        name for name in features if name in source.names and name not in format.ignore and _is_readable(source, name)
    ]
    blocks = list(source.blocks([*read, target]))
    if not blocks:
        raise InputError(
            f"{source.title} has no rows, so nothing can be learned about the private table from it; give a public "
            "sample that has some."
        )
    whole = {name: np.concatenate([block[name] for block in blocks]) for name in (*read, target)}
    for name, cells in whole.items():
        if source.types.get(name, "") != "number" and format.decimal is None:
            present = cells[~_is_missing(cells)]
            refuse_commas(name, present, numbers(present), source.title)
    declaration = _target(target, whole[target], source.types.get(target, ""), target_type)
    columns: dict[str, Column] = {}
    why: dict[str, tuple[str, str]] = {}
    curved: dict[str, Curved] = {}
    for name in features:
        kind, cells = source.types.get(name, ""), whole.get(name)
        columns[name], why[name] = _read(name, cells, kind, _why_unread(source, name, format), curve or 0)
        if curve is None and cells is not None and isinstance(columns[name], Number):
            curved |= _curved(name, cells, kind)
    if all(isinstance(column, Ignore) for column in columns.values()):
        raise InputError(
            f"no column of {source.title} is left to learn from: {_in_words(why)}. Declare them by hand: leave out "
            "--from, and fill in the template."
        )
    why[target] = "target", _of_target(declaration, target_type)
    schema = Schema(columns, declaration, encoding=format.encoding, decimal=format.decimal)
    if not curved:
        return Sampled(schema, why)
    schema, reason = curves_or_lines(schema, curved, allowance)
    return Sampled(schema, why | {name: described(schema.columns[name]) for name in curved}, reason)


def _curved(name: str, cells: np.ndarray, kind: str) -> dict[str, Curved]:
    """A number with a curve, by name, and whether its values crowd; nothing for one with too few values."""
    column = _column(cells, kind, KNOTS)
    if not isinstance(column, Number) or column.curve is None:
        return {}
    values = numbers(cells, MISSING_WORDS)
    low, *_, high = column.knots
    return {name: Curved(column, crowds(values[np.isfinite(values)], (low, high)))}


def _is_readable(source: RawSource, name: str) -> bool:
    """True unless the table declares types, none for this column, and its cells cannot be read."""
    if not source.types or name in source.types:
        return True
    try:
        next(iter(source.blocks([name])), None)
    except InputError:
        return False
    return True


def _why_unread(source: RawSource, name: str, format: Format) -> str:
    if name in format.ignore:
        return "as was asked"
    return "neither numbers nor texts nor booleans: dates, say" if name in source.names else "not in the sample"


def _read(name: str, cells: np.ndarray | None, kind: str, unread: str, curve: int) -> tuple[Column, tuple[str, str]]:
    """Declaration of a column, and its type with the reason; `unread` is the reason where there are no cells."""
    if cells is None:
        return Ignore(), ("ignored", unread)
    missing = _is_missing(cells)
    present = cells[~missing]
    if (reason := why_ignored(name, present, numbers(present), kind, bool(missing.any()))) is not None:
        return Ignore(), ("ignored", reason)
    column = _column(cells, kind, curve)
    type_of, reason = described(column)
    return column, (type_of, reason + _read_as_missing(cells[missing]))


def _read_as_missing(cells: np.ndarray) -> str:
    """The words that stood for missing cells: `none` may have been meant as a value."""
    words = sorted({cell.strip() for cell in cells.tolist() if isinstance(cell, str)} - {""})
    return f"; {listed(words)} {'is' if len(words) == 1 else 'are'} read as missing" if words else ""


def _of_target(target: Target, target_type: str | None) -> str:
    if target.classes is None:
        return "a number, bounds {:g} to {:g}".format(*(target.bounds or ()))
    are_numbers = target_type is None and not isinstance(target.classes[0], (str, bool))
    return f"classes {listed([str(value) for value in target.classes])}" + (
        "; if they are amounts, --target-type number predicts a number" if are_numbers else ""
    )


def _in_words(why: Mapping[str, tuple[str, str]]) -> str:
    return "; ".join(f"{name!r}: {reason}" for name, (_, reason) in why.items())


def _column(cells: np.ndarray, kind: str, curve: int) -> Column:
    values = numbers(cells, MISSING_WORDS)
    missing = _is_missing(cells)
    if kind != "category" and not np.isinf(values).any() and not missing.all():
        present = values[np.isfinite(values)]
        low, high = np.quantile(present, (OUTSIDE, 1 - OUTSIDE))
        if low == high:
            low, high = present.min(), present.max()
        low, high = _widened(float(low), float(high))
        stand_in = Missing(float(np.median(present)), indicator=bool(missing.any()))
        if curve == 0 or len(np.unique(present)) <= MAX_CLASSES:
            return Number(low, high, stand_in)
        knots = knots_among(present, (low, high), checked_count(curve))
        return Number(low, high, stand_in, knots if len(knots) >= LEAST else None)
    return _category(cells, _distinct(cells[~missing]), bool(missing.any()))


def _category(cells: np.ndarray, values: tuple[Value, ...], has_missing: bool) -> Category:
    """A category with the shares of its values. Missing cells count as the commonest value where the sample has none,
    for a column of their own would get the noise of a weight that no row trains."""
    places = codes(cells, values, MISSING_WORDS)
    counts = np.bincount(places[places >= 0], minlength=len(values))
    shares = tuple(round(float(count / counts.sum()), 6) for count in counts)
    missing = Missing(indicator=True) if has_missing else Missing(values[int(counts.argmax())])
    return Category(values, missing=missing, shares=shares)


def _target(name: str, cells: np.ndarray, kind: str, target_type: str | None) -> Target:
    values, missing = numbers(cells, MISSING_WORDS), _is_missing(cells)
    present = cells[~missing]
    is_number = target_type == "number"
    numeric = (is_number or kind != "category") and len(present) > 0 and not np.isinf(values).any()
    integral = numeric and (values[~missing] == np.floor(values[~missing])).all()
    count = len({whole_number(cell) for cell in present.tolist()}) if integral else 0
    if is_number and not numeric:
        raise InputError(
            f"the target {name!r} holds something else than numbers in the public sample, so it is no number to "
            "predict; leave out --target-type, or name another target."
        )
    if numeric and (is_number or not (integral and count <= (MAX_VALUES if target_type == "classes" else MAX_CLASSES))):
        low, high = float(values[~missing].min()), float(values[~missing].max())
        if low == high:
            raise InputError(
                f"the target {name!r} has one value in the public sample, so there is nothing to learn; give a sample "
                "in which it varies, or name another target."
            )
        return Target(name, bounds=_widened(low, high))
    if numeric and count > 1:
        return Target(name, tuple(sorted({whole_number(cell) for cell in present.tolist()})))
    labels = _distinct(present)
    if all(isinstance(value, bool) for value in labels):
        return Target(name, labels)
    words = [str(value) for value in labels]
    classes = _undotted(words)
    if not 2 <= len(classes) <= MAX_VALUES:
        raise InputError(
            f"the target {name!r} has {len(classes)} values in the public sample, which are no classes; name another "
            "target, or fill in a template by hand."
        )
    return Target(name, classes, aliases={} if classes == words else {f"{word}.": word for word in classes})


def _undotted(words: list[str]) -> list[str]:
    """Labels without the dot that the test parts of old sets end them in."""
    all_dotted = all(len(word) > 1 and word.endswith(".") for word in words)
    bare = {word: word.removesuffix(".") for word in words}
    return sorted({bare[word] if all_dotted or bare[word] in words else word for word in words})


def _is_missing(cells: np.ndarray) -> np.ndarray:
    words = {*MISSING_WORDS, ""}
    if cells.dtype.kind != "O":
        return np.isnan(cells.astype(np.float64))
    return np.array([c is None or c != c or (isinstance(c, str) and c.strip() in words) for c in cells.tolist()], bool)


def _distinct(cells: np.ndarray) -> tuple[Value, ...]:
    """Values in order; as texts unless all are of one kind."""
    values = {cell.strip() if isinstance(cell, str) else cell for cell in cells.tolist()}
    kinds = {type(cell) for cell in values}
    if kinds <= {bool} or kinds <= {int, float}:
        return tuple(sorted(values))
    return tuple(sorted({str(cell) for cell in values}))


def _widened(low: float, high: float) -> tuple[float, float]:
    """Bounds a tenth of the range beyond both ends, but not across zero, and rounded outwards to two digits more."""
    reach = MARGIN * (high - low)
    step = 10.0 ** math.floor(math.log10(reach)) if reach > 0 else 1.0
    below = low - reach if low < 0 else max(0.0, low - reach)
    above = high + reach if high > 0 else min(0.0, high + reach)
    return round(math.floor(below / step) * step, 12), round(math.ceil(above / step) * step, 12)
