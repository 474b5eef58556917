"""A raw table in any form, read by its schema into rows to learn from."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from l2p.data.header import is_header, listed
from l2p.data.reading import Format, RawSource, open_table
from l2p.errors import InputError, withheld
from l2p.schema.encoding import Encoding
from l2p.schema.schema import Schema

if TYPE_CHECKING:
    from l2p.task import Rows


def read_rows(
    data: Any,
    encoding: Encoding,
    on_invalid: Literal["refuse", "null"] = "refuse",
    format: Format | None = None,
    exact: bool = True,
) -> "Rows":
    """All rows of a table, encoded: NumPy f32 arrays x [n, d], y [n], mask [n].

    Args:
      data: what `open_table` takes; an array [n, c] has the columns of the schema in their order, the target last.
      encoding: what to make of them.
      on_invalid: what an invalid row does: "refuse" refuses the table, "null" counts the row as null.
      format: how text files are laid out.
      exact: whether a column that the schema does not declare is refused, rather than left out.

    Raises:
      InputError: the table cannot be read, lacks a column, has one that is not declared, has no rows, or has an
        invalid one under "refuse".
      RowsError: anything else, such as a lack of memory.

    >>> from l2p.schema import Number, Target
    >>> ward = Encoding(Schema({"age": Number(0, 100)}, Target("back", classes=("no", "yes"))))
    >>> rows = read_rows({"age": [25, 200], "back": ["yes", "no"]}, ward)
    >>> rows.x.tolist(), rows.y.tolist()
    ([[0.25], [1.0]], [1.0, 0.0])
    """
    from l2p.task import Rows  # imports JAX, which is not needed to declare and read tables

    if on_invalid not in ("refuse", "null"):
        raise InputError(f"on_invalid is {on_invalid!r}, which is not known; choose 'refuse' or 'null'.")
    source = opened(data, encoding.schema, format, exact)
    needed = (*encoding.schema.features, encoding.schema.target.column)
    parts = []
    for block in source.blocks(needed):
        if on_invalid == "refuse":
            encoding.refuse_invalid(block)
        parts.append(encoding.rows(block))
    if not parts:
        raise InputError(f"{source.said} has no rows to learn from; check the file and its filters.")
    with withheld("reading a table"):
        x, y, mask = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y", "mask"))
        return Rows(x=x, y=y, mask=mask)  # pyrefly: ignore[bad-argument-type]


def opened(data: Any, schema: Schema, format: Format | None = None, exact: bool = True) -> RawSource:
    """A source of the raw rows that a schema declares; see `read_rows`."""
    source = open_table(data, format, schema.names)
    needed = tuple(name for name in schema.names if name in schema.features or name == schema.target.column)
    source.check(needed if schema.unit is None else (*needed, schema.unit.column))
    undeclared = [name for name in source.names if name not in schema.names]
    if exact and undeclared:
        shown = f": {listed(undeclared)}" if is_header(source.names, schema.names) else ""
        raise InputError(
            f'{source.said} has columns that the schema does not declare{shown}; declare them, as {{"type": "ignore"}} '
            "if nothing is to be learned from them."
        )
    return source


def check_supported(schema: Schema) -> None:
    """Refuse what a schema may declare and training does not do yet."""
    if schema.unit is not None:
        raise InputError(
            f"the schema declares the unit {schema.unit.column!r}, but training protects single rows only, so its card "
            "would promise more than holds; leave the unit out to have rows protected."
        )
    if schema.target.weights is not None:
        raise InputError(
            "the schema declares class weights, which no protector uses yet, so they would be ignored; leave them out."
        )


def public_facts(schema: Schema) -> list[str]:
    """What of a schema a card lists as not private, in sentences."""
    columns, target = schema.columns.values(), schema.target
    parts = ["the columns and their types", "the bounds of numbers", "the values of categories"]
    if any(getattr(column, "missing", None) for column in columns):
        parts.append("what stands in for missing cells")
    parts.append("the words for missing cells")
    what = f"the bounds of {target.column!r}" if target.classes is None else f"the classes of {target.column!r}"
    parts.append(f"{what} and their aliases" if target.aliases else what)
    return [
        f"The schema, public by declaration and kept with the model: {', '.join(parts)}.",
        'Cells that are none of a category\'s values counted as "other", without a look at how many there are.',
    ]
