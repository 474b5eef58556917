"""Parquet files and Arrow tables. pyarrow is an extra, imported only for them."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.header import called
from l2p.tables.reading.source import BLOCK, Block, RawSource, distinct, objects
from l2p.tables.reading.text import refused_as

#: Decimals of so many digits are all told apart as floats.
_DIGITS = 15
#: Bytes of each column that are read ahead in a Parquet file.
_READ_AT_ONCE = 2**16


@dataclasses.dataclass(eq=False, repr=False)
class Arrow(RawSource):
    """A Parquet file or an Arrow table.

    Attributes:
      table: a `pyarrow.Table`, or the path of a Parquet file.
    """

    title: str
    names: tuple[str, ...]
    types: Mapping[str, str]
    table: Any
    inexact: frozenset[str] = frozenset()

    @classmethod
    def of_file(cls, path: Path) -> "Arrow":
        pa = import_pyarrow("reading .parquet")
        title = f"the table {path}"
        with refused_as(_unreadable(title), pa.ArrowException):
            schema = pa.parquet.ParquetFile(path).schema_arrow
        return cls(title, distinct(schema.names, title), types_of(schema), path, inexact_in(schema))

    @property
    def files(self) -> tuple[Path, ...]:  # type: ignore[override]
        return (self.table,) if isinstance(self.table, Path) else ()

    def about_rows(self) -> int | None:
        pa = import_pyarrow("reading an Arrow table")
        with refused_as(_unreadable(self.title), pa.ArrowException):
            return (
                pa.parquet.read_metadata(self.table).num_rows if isinstance(self.table, Path) else self.table.num_rows
            )

    @classmethod
    def of_table(cls, table: Any) -> "Arrow":
        """Anything with `__arrow_c_stream__`; what is no table may be a query, whose order nothing settles."""
        pa = import_pyarrow("reading an Arrow table")
        title = "the table"
        with refused_as(f"{title} cannot be read as an Arrow table; check where it comes from", pa.ArrowException):
            read = table if isinstance(table, pa.Table) else pa.table(table)
        source = cls(title, distinct(read.schema.names, title), types_of(read.schema), read, inexact_in(read.schema))
        source.ordered = isinstance(table, (pa.Table, pa.RecordBatch))
        return source

    def blocks(self, wanted: Sequence[str]) -> Iterator[Block]:
        pa = import_pyarrow("reading an Arrow table")
        with refused_as(_unreadable(self.title), pa.ArrowException):
            if isinstance(self.table, Path):
                # Read a little at a time: either default keeps the columns of a row group in memory, however large.
                file = pa.parquet.ParquetFile(self.table, pre_buffer=False, buffer_size=_READ_AT_ONCE)
                batches = file.iter_batches(BLOCK, columns=list(wanted), use_threads=False)
            else:
                batches = self.table.select(list(wanted)).to_batches(BLOCK)
            for batch in batches:
                yield {name: cells_of(batch.column(name), name, self, wanted) for name in wanted}


def cells_of(column: Any, name: str, source: RawSource, wanted: Sequence[str]) -> np.ndarray:
    """The cells of an Arrow array, column `name` of a source of which the columns `wanted` are read.

    Raises:
      InputError: it holds what no schema can declare.
    """
    pa = import_pyarrow("reading an Arrow table")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64(), safe=False)
    kind = column.type
    if pa.types.is_floating(kind) or (column.null_count == 0 and (pa.types.is_integer(kind))):
        # Not `to_numpy`, which imports pandas where it is installed, and with it 60 MB.
        return np.from_dlpack(column.fill_null(np.nan) if column.null_count else column)
    if _type_of(pa, kind) or pa.types.is_null(kind):
        return objects(column.to_pylist())
    raise InputError(
        f"{called(source.names.index(name), source.names, wanted)} of {source.title} holds neither numbers nor texts "
        "nor booleans (dates or lists, say): turn it into one of these, or declare it as ignored"
    )


def import_pyarrow(doing: str) -> Any:
    """The module, or an `InputError` that names what needs it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(f"{doing} needs pyarrow: pip install 'l2p-jax[data]'") from error
    return pyarrow


def types_of(schema: Any) -> dict[str, str]:
    """ "number" or "category" for every column of an Arrow schema that can be read."""
    pa = import_pyarrow("reading an Arrow table")
    return {field.name: kind for field in schema if (kind := _type_of(pa, field.type))}


def inexact_in(schema: Any) -> frozenset[str]:
    """The columns of an Arrow schema that hold decimals which become floats and may then not be told apart."""
    pa = import_pyarrow("reading an Arrow table")
    kinds = {field.name: getattr(field.type, "value_type", field.type) for field in schema}
    return frozenset(name for name, kind in kinds.items() if pa.types.is_decimal(kind) and kind.precision > _DIGITS)


def _type_of(pa: Any, kind: Any) -> str:
    """ "number", "category", or nothing."""
    types = pa.types
    if types.is_dictionary(kind):
        return "category" if _type_of(pa, kind.value_type) else ""
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    texts = (types.is_boolean, types.is_string, types.is_large_string, types.is_string_view)
    return "category" if any(test(kind) for test in texts) else ""


def _unreadable(table: str) -> str:
    return f"{table} cannot be read as Parquet"
