"""A raw table in any form, read by its schema into rows to learn from."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from l2p.base.errors import InputError, withheld
from l2p.tables.header import is_header, listed
from l2p.tables.reading import Format, RawSource, open_table
from l2p.tables.schema.encoding import Block, Encoding, OnInvalid
from l2p.tables.schema.pair import as_columns, is_pair
from l2p.tables.schema.schema import Schema
from l2p.tables.schema.target import Target, Unit
from l2p.tables.schema.units import FirstRows

if TYPE_CHECKING:
    from l2p.task.rows import Rows


def read_rows(
    data: Any,
    encoding: Encoding,
    on_invalid: OnInvalid = "refuse",
    format: Format | None = None,
    exact: bool = True,
    unit: Unit | None = None,
    in_order: bool = False,
) -> "Rows":
    """All rows of a table, encoded: NumPy f32 arrays x [n, d], y [n], mask [n].

    Args:
      data: what `open_table` takes, or (X, y), features and target apart; an array [n, c] has the columns of the
        schema in their order, the target last.
      encoding: encodes its rows.
      on_invalid: "refuse" refuses a table with an invalid row, "null" counts the row as null.
      format: how its text is written, and which columns are left out.
      exact: whether a column that the schema does not declare is refused, rather than left out.
      unit: whose first rows alone count; the others, and rows without a unit, become null rows. None counts all.
      in_order: whether a row has to leave the places of all others alone, whatever it holds.

    Raises:
      InputError: the table cannot be read, lacks a column, has one that is not declared, has no rows, has an invalid
        one under "refuse", or has no order, where a `unit` or `in_order` needs one.
      RowsError: anything else, such as a lack of memory.

    >>> from l2p.tables.schema import Number, Target
    >>> ward = Encoding(Schema({"age": Number(0, 100)}, Target("back", classes=("no", "yes"))))
    >>> rows = read_rows({"age": [25, 200], "back": ["yes", "no"]}, ward)
    >>> rows.x.tolist(), rows.y.tolist()
    ([[0.25], [1.0]], [1.0, 0.0])
    """
    return joined(rows for _, rows in blocks_of(data, encoding, on_invalid, format, exact, unit, in_order))


def blocks_of(
    data: Any,
    encoding: Encoding,
    on_invalid: OnInvalid = "refuse",
    format: Format | None = None,
    exact: bool = True,
    unit: Unit | None = None,
    in_order: bool = False,
) -> Iterator[tuple[Block, "Rows"]]:
    """Raw blocks with their encoded rows, at least one; arguments and errors are those of `read_rows`."""
    if on_invalid not in ("refuse", "null"):
        raise InputError(f"on_invalid is {on_invalid!r}, which is not known; choose 'refuse' or 'null'.")
    schema = encoding.schema
    source = opened(data, schema, format, exact)
    if unit is not None:
        check_first_rows(source, unit)
    if in_order and not source.keeps_places:
        raise InputError(
            f"the protector takes rows in the order of the table, but {source.title} has none in which a row that "
            "changes leaves the places of others alone; export the table to a file, or choose another protector."
        )
    needed = (*schema.features, schema.target.column, *(() if unit is None else (unit.column,)))
    rule = None if unit is None else FirstRows(unit, schema.missing_words)
    empty = True
    for block in source.blocks(needed):
        empty = False
        rows = encoding.rows(block, on_invalid)
        if rule is not None and unit is not None:
            rows = _with_others_null(rows, rule.keep(block[unit.column], np.asarray(rows.mask) > 0))
        yield block, rows
    if empty:
        raise InputError(f"{source.title} has no rows to learn from; check the file and its filters.")


def check_first_rows(source: RawSource, unit: Unit) -> None:
    """Refuse a table in which one row may change which rows of other units come first; see `FirstRows`."""
    if not source.ordered:
        raise InputError(
            f"of each {unit.column!r} the first rows count, but {source.title} has no order that stays the same "
            "whatever its rows hold; name a unique column as &key= in the address."
        )


def _with_others_null(rows: "Rows", counted: np.ndarray) -> "Rows":
    """The rows with those not `counted`, bool[n], turned into null rows."""
    x, y = np.where(counted[:, None], rows.x, np.float32(0)), np.where(counted, rows.y, np.float32(0))
    return type(rows)(x=x, y=y, mask=counted.astype(np.float32))  # pyrefly: ignore[bad-argument-type]


def joined(blocks: Iterator["Rows"]) -> "Rows":
    """Blocks of NumPy rows, at least one, as one."""
    from l2p.task.rows import Rows  # imports JAX, which is not needed to declare and read tables

    parts = list(blocks)
    with withheld("reading a table"):
        x, y, mask = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y", "mask"))
        return Rows(x=x, y=y, mask=mask)  # pyrefly: ignore[bad-argument-type]


def opened(data: Any, schema: Schema, format: Format | None = None, exact: bool = True) -> RawSource:
    """A source of the raw rows that a schema declares; see `read_rows`."""
    format = schema.format(format)
    if ignored := [name for name in format.ignore if name in (*schema.features, schema.target.column)]:
        raise InputError(
            f"column {listed(ignored)} is to be ignored, but the schema needs it; leave it out of one of the two."
        )
    source = open_table(as_columns(data, schema, format) if is_pair(data) else data, format, schema.names)
    needed = tuple(name for name in schema.names if name in schema.features or name == schema.target.column)
    source.check_columns(needed if schema.unit is None or not exact else (*needed, schema.unit.column))
    if schema.unit is not None and exact and schema.unit.column in source.inexact:
        raise InputError(
            f"the column {schema.unit.column!r} of the unit holds decimals, which are read as floating-point numbers, "
            "so two units might be taken for one; cast it to text or to whole numbers (in a view, say)."
        )
    undeclared = [name for name in source.names if name not in schema.names]
    if exact and undeclared:
        shown = f": {listed(undeclared)}" if is_header(source.names, schema.names) else ""
        raise InputError(
            f"{source.title} has columns that the schema does not declare{shown}; declare them, as "
            '{"type": "ignore"} if nothing is to be learned from them.'
        )
    return source


def public_statements(schema: Schema, bought: Sequence[str] = ()) -> list[str]:
    """Sentences of a card on what a schema makes public; bounds of the columns `bought` are private."""
    columns, target = schema.columns.values(), schema.target
    others = f", but for those of {listed(bought)}, which were bought from the budget (bin_counts)" if bought else ""
    parts = ["the columns and their types", f"the bounds of numbers{others}", "the values of categories"]
    if any(getattr(column, "curve", None) for column in columns):
        parts.append("the knots of curves")
    if any(getattr(column, "missing", None) for column in columns):
        parts.append("what stands in for missing cells")
    parts.append("the words for missing cells")
    of_target = f"the bounds of {target.column!r}" if target.classes is None else f"the classes of {target.column!r}"
    parts.append(f"{of_target} and their aliases" if target.aliases else of_target)
    sentences = [
        f"The schema, public by declaration and kept with the model: {', '.join(parts)}.",
        "Cells that are none of a category's values counted as their average, without a look at how many there are.",
    ]
    if target.weights is not None:
        sentences.append(
            f"Class weights, public by declaration: {weights_in_words(target)}. A row counted that much over the "
            "largest in what was learned, and in full in N, in what describes rows and in scores."
        )
    return sentences


def weights_in_words(target: Target) -> str:
    """The weight of each class.

    >>> weights_in_words(Target("back", ("no", "yes"), weights=(1, 2.5)))
    '1 for class no, 2.5 for class yes'
    """
    named = zip(target.classes or (), target.weights or (), strict=True)
    return ", ".join(f"{weight:g} for class {name}" for name, weight in named)
