"""A schema as SQL: the rows of `l2p.tables.schema.Encoding`, computed by PostgreSQL.

Numbers are rounded to single precision as there, but below a millionth of a millionth they are 0, since PostgreSQL
fails where a product is too small. A row that is invalid there has a label of NULL here.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import cast

import numpy as np

from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN
from l2p.tables.bounds import Interval
from l2p.tables.reading.database import quoted
from l2p.tables.reading.in_postgresql import NUMBERS
from l2p.tables.schema import Number, Schema
from l2p.tables.schema.cells import numbers
from l2p.tables.schema.columns import Value, kind_of

_TINY = 1e-12


def encoded_rows_query(
    schema: Schema, table: str, key: str, kinds: Mapping[str, str], compiled: str | None = None
) -> str:
    """The query of a table's encoded rows in the order of its key: line (int, from 1), x (float8[]), y (0, 1,
    ... or NULL), and alone, which is true if the key tells the row from those before it.

    Args:
      schema: of numbers with bounds, and classes.
      table: its quoted name.
      key: a column.
      kinds: the types of its columns.
      compiled: the quoted name of `l2p_scaled` of extension/; None where it is not installed.

    Raises:
      InputError: the schema declares what cannot be computed there.

    >>> from l2p.tables.schema import Target
    >>> ward = Schema({"age": Number(0, 120)}, Target("back", classes=(False, True)))
    >>> encoded_rows_query(ward, '"ward"', "id", {"age": "int4", "back": "bool"}).split(" FROM ", 1)[1]
    '(SELECT "id" AS key, ARRAY[...]::float8[] AS x, CASE WHEN ... END AS y FROM "ward" OFFSET 0) AS encoded'
    """
    columns = _numbers(schema, kinds)
    x, valid = _in_expressions(schema, columns), "pg_catalog.array_position(x, NULL) IS NULL"
    if compiled is not None:
        x, valid = _in_function(schema, columns, compiled), "x IS NOT NULL"
    # Names are quoted and values are literals, so that each is what it is whatever it holds. Functions that take any
    # array are named with their schema, since one that another role made for just this type would go before them.
    # OFFSET 0 has each row encoded once.
    return (
        "SELECT row_number() OVER (ORDER BY key)::int AS line, coalesce(x, '{}') AS x, "  # noqa: S608
        f"CASE WHEN {valid} THEN y END AS y, "
        "key IS NOT NULL AND rank() OVER (ORDER BY key) = row_number() OVER (ORDER BY key) AS alone "
        f"FROM (SELECT {quoted(key)} AS key, {x} AS x, "
        f"{_label(schema, kinds)} AS y FROM {table} OFFSET 0) AS encoded"
    )


def _numbers(schema: Schema, kinds: Mapping[str, str]) -> dict[str, Number]:
    columns: dict[str, Number] = {}
    for name in schema.features:
        column = schema.columns[name]
        if (
            not isinstance(column, Number)
            or column.is_private
            or column.missing
            or column.curve
            or kinds.get(name) not in NUMBERS
        ):
            raise InputError(
                f"column {name!r} cannot be encoded in the database, where features are columns of numbers with "
                "declared bounds, no curve and nothing that stands in for missing ones; make it one in a view, or "
                "train outside of the database (private_train)."
            )
        columns[name] = column
    if schema.unit is not None or schema.target.weights is not None:
        raise InputError(
            "the schema protects units or weighs classes, but passes over rows are proved for single rows that count "
            "alike; leave both out, or choose a method that asks for sums, such as noisygd, outside of the database."
        )
    return columns


def _in_expressions(schema: Schema, columns: Mapping[str, Number]) -> str:
    """A row, with NULL in place of a number that is excluded."""
    missing = _missing(schema)
    features = [_scaled(f"{quoted(name)}::float8", missing, column) for name, column in columns.items()]
    return _array([*features, str(INTERCEPT_COLUMN)])


def _in_function(schema: Schema, columns: Mapping[str, Number], compiled: str) -> str:
    """A row, or NULL if a number of it is excluded."""
    missing = _missing(schema)
    cells = [f"{quoted(name)}::float8" for name in columns]
    if missing:
        cells = [f"CASE WHEN {cell} NOT IN ({missing}) THEN {cell} END" for cell in cells]
    # The intercept's column lies between bounds that leave it as it is.
    bounds = [*(cast(Interval, column.bounds) for column in columns.values()), (0.0, 1.0)]
    lows, highs = zip(*bounds, strict=True)
    ends = (_array(map(number, column)) for column in (lows, itertools.starmap(_floor, bounds), highs))
    return f"{compiled}({', '.join([_array([*cells, str(INTERCEPT_COLUMN)]), *ends])})"


def _array(elements: Iterable[str]) -> str:
    return f"ARRAY[{', '.join(elements)}]::float8[]"


def _missing(schema: Schema) -> str:
    """The numbers that stand for missing ones."""
    words = numbers(np.array(schema.missing_words or ("",), object))
    return ", ".join(number(value) for value in words.tolist() if math.isfinite(value))


def _scaled(cell: str, missing: str, column: Number) -> str:
    """A cell between its bounds, scaled; NULL where it is no finite number (NaN is above infinity here) or stands for
    a missing one."""
    low, high = cast(Interval, column.bounds)
    scaled = f"(({cell} - {number(low)}) / {number(high - low)})::float4"
    return (
        f"CASE {f'WHEN {cell} IN ({missing}) THEN NULL ' if missing else ''}"
        f"WHEN {cell} > {number(_floor(low, high))} "
        f"THEN CASE WHEN {cell} < {number(high)} THEN {scaled} WHEN {cell} < 'Infinity' THEN 1 END "
        f"WHEN {cell} > '-Infinity' THEN 0 END"
    )


def _floor(low: float, high: float) -> float:
    """What counts as the lower bound, and is 0 when it is scaled."""
    return low + _TINY * (high - low)


def _label(schema: Schema, kinds: Mapping[str, str]) -> str:
    target = schema.target
    kind, classes = kinds.get(target.column), tuple(target.classes or ())
    fitting = float if kind in NUMBERS else bool if kind == "bool" else str
    if not classes or kind_of(classes[0]) is not fitting:
        raise InputError(
            f"the labels of {target.column!r} cannot be told apart in the database: declare classes, and of the "
            "column's own type (texts, numbers or booleans)."
        )
    cell = quoted(target.column)
    cell = {float: f"{cell}::float8", bool: cell, str: f"btrim({cell}::text, E' \\t\\n\\r\\f\\v')"}[fitting]
    spellings = [(label, *(word for word, value in target.aliases.items() if value == label)) for label in classes]
    conditions = [f"{cell} IN ({', '.join(map(_literal, words))})" for words in spellings]
    return f"CASE {' '.join(f'WHEN {condition} THEN {label}' for label, condition in enumerate(conditions))} END"


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return text(value) if isinstance(value, str) else number(value)


def number(value: float) -> str:
    """A number as PostgreSQL reads it back, bit for bit.

    >>> number(-0.1)
    "'-0.1'::float8"
    """
    return f"'{float(value)!r}'::float8"


def text(value: str) -> str:
    r"""A text as PostgreSQL reads it back, whatever the session's settings.

    >>> print(text("it's a \\"))
    E'it''s a \\'
    """
    if "\0" in value:
        raise InputError("a declared class holds a NUL character, which no text in PostgreSQL can; leave it out.")
    return "E'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
