"""The one reading of a private table, once all that is public has been checked."""

from collections.abc import Sequence
from typing import Any

from l2p.base.errors import InputError
from l2p.tables.reading import Format
from l2p.tables.same_table import refuse_equal, refuse_own
from l2p.tables.schema import Encoding, Schema, read_rows, schema_of
from l2p.tables.schema.encoding import OnInvalid
from l2p.tables.schema.unbounded import Unbounded
from l2p.task.rows import Rows
from l2p.task.sources import RemoteRows, RowSource


def read_private(
    data: Any,
    schema: Schema,
    on_invalid: OnInvalid = "refuse",
    format: Format | None = None,
    public: Rows | None = None,
    sources: Sequence[str] | None = None,
    in_order: bool = False,
) -> Rows | RowSource | Unbounded:
    """The rows of a private table by its schema: encoded, or unbounded where bounds are to be bought; a table that
    streams as it is.

    Args:
      data, on_invalid, format, in_order: as for `l2p.tables.schema.read_rows`.
      schema: its declaration.
      public: rows that anybody may read, encoded by the schema.
      sources: of the protector; none of them is this table.

    Raises:
      InputError: as `read_rows`; the rows are the public ones or the protector's own; or a stream has another schema.
    """
    refuse_own(data, sources)
    if schema.private_bounds:
        return Unbounded.read(data, schema, on_invalid, format, in_order)
    if not isinstance(data, RowSource):
        rows = read_rows(data, Encoding(schema), on_invalid, format, unit=schema.unit, in_order=in_order)
    elif schema_of(data) == schema:
        rows = data
    else:
        raise InputError("the table streams by another schema than was given; open it with this one, or leave it out.")
    if public is not None and not isinstance(rows, RemoteRows):
        refuse_equal((rows,) if isinstance(rows, Rows) else rows.blocks(), public)
    return rows


def read_public(public: Any, schema: Schema, format: Format | None = None) -> Rows:
    """Public rows, encoded as the private ones; `InputError` for an invalid one, whatever private ones do, since it can
    be corrected. Rows that the schema encoded are passed on."""
    if schema.private_bounds:
        raise InputError(
            "public rows are encoded as the private ones, but the schema leaves bounds to be bought with the budget; "
            "take these bounds from the public rows, or leave the public rows out (--public)."
        )
    if isinstance(public, Rows):
        return public
    try:
        return read_rows(public, Encoding(schema), "refuse", format)
    except InputError as error:
        raise InputError(f"of the public rows: {error}") from None
