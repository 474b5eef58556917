"""Any table as a source of raw rows."""

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from l2p.base.errors import InputError, withheld
from l2p.tables.reading.address import Address, is_address
from l2p.tables.reading.adjusted import adjusted
from l2p.tables.reading.arff import Arff
from l2p.tables.reading.arrow import Arrow
from l2p.tables.reading.delimited import Delimited
from l2p.tables.reading.format import Format
from l2p.tables.reading.in_duckdb import DuckDB
from l2p.tables.reading.in_postgresql import PostgreSQL
from l2p.tables.reading.memory import InMemory
from l2p.tables.reading.source import Joined, RawSource

_TEXT = (".csv", ".tsv", ".txt", ".data", ".dat", ".test")
_PARQUET = (".parquet", ".pq")
_KINDS = ".csv (or .tsv, .txt, .data), .arff or .parquet, each but the last also as .gz"


@withheld("opening a table")
def open_table(data: Any, format: Format | None = None, names: Sequence[str] = ()) -> RawSource:
    """A source of the rows of a table.

    Args:
      data: a path, a pattern such as ward/*.parquet, or the address of a table in a database
        (`l2p.tables.reading.address`); several of these with the same columns; a DataFrame of pandas or Polars; an
        Arrow table; an array [n, c]; or columns by name. A `RawSource` is passed on.
      format: how the text of the table is written, and which columns are left out; not of a `RawSource`.
      names: of the columns of an array.

    Raises:
      InputError: it is none of these, a file is missing or malformed, or Parquet support is not installed.

    >>> source = open_table({"age": [61, 7], "ward": ["a", "b"]})
    >>> [block["ward"].tolist() for block in source.blocks(["ward"])]
    [['a', 'b']]
    """
    if isinstance(data, RawSource):
        return data
    format = format or Format()
    if isinstance(data, (str, Path)):
        data = [data]
    if isinstance(data, (list, tuple)) and data and all(isinstance(part, (str, Path)) for part in data):
        paths = [path for part in data for path in _expanded(part)]
        if len({str(path) if is_address(path) else Path(path).resolve() for path in paths}) < len(paths):
            raise InputError("a file or a table is named twice, so its rows would count twice; name each once.")
        parts = tuple(adjusted(_open_path(path, format), format) for path in paths)
        return parts[0] if len(parts) == 1 else Joined(parts)
    if isinstance(data, (list, tuple)) and not data:
        raise InputError("no table is given, so there is nothing to read; name at least one file.")
    return adjusted(_in_memory(data, names), format)


def _in_memory(data: Any, names: Sequence[str]) -> RawSource:
    if isinstance(data, np.ndarray):
        return InMemory.of_array(data, names)
    if isinstance(data, Mapping):
        return InMemory.of(data)
    if hasattr(data, "columns") and hasattr(data, "dtypes") and hasattr(data, "to_numpy"):
        return InMemory.of_frame(data)
    if hasattr(data, "__arrow_c_stream__"):
        return Arrow.of_table(data)
    raise InputError(
        f"a table came as {type(data).__name__}, which is not known how to read; give a path, a DataFrame, an Arrow "
        "table, an array with a name per column, or a dictionary of columns."
    )


def _expanded(data: str | Path) -> Sequence[str | Path]:
    """The files that a pattern stands for, in the order of their names; anything else alone."""
    pattern = str(data)
    if is_address(data) or not glob.has_magic(pattern) or Path(pattern).exists():
        return (data,)
    return sorted(glob.glob(pattern)) or (data,)


def name_of(data: Any) -> str | None:
    """Name of a table for anybody to read: its file without folders, or its name in a database. Of several files
    neither names nor their number, since there may be one for each person.

    >>> name_of("/home/ann/ward.csv"), name_of(["a.csv", "b.csv"]), name_of("duckdb://w.db?table=ward"), name_of({})
    ('ward.csv', 'several files', 'ward', None)
    """
    parts = [data] if isinstance(data, (str, Path)) else data
    if not isinstance(parts, (list, tuple)) or not parts or not all(isinstance(part, (str, Path)) for part in parts):
        return None
    if len(parts) > 1:
        return "several files"
    return ".".join(Address.parse(str(parts[0])).table) if is_address(parts[0]) else Path(parts[0]).name


def _open_path(data: str | Path, format: Format) -> RawSource:
    if not (isinstance(data, str) and is_address(data)):
        return _open_file(Path(data), format)
    address = Address.parse(data)
    return {"duckdb": DuckDB, "postgresql": PostgreSQL}[address.kind](address)


def is_table_file(data: str) -> bool:
    """True if a text names a file of a kind that can be read, by its ending.

    >>> is_table_file("ward.csv.gz"), is_table_file("openml:credit.g")
    (True, False)
    """
    return _ending(Path(data)) in (*_TEXT, *_PARQUET, ".arff")


def _ending(path: Path) -> str:
    """The last suffix of a file, without that of packing, in lower case; empty without one."""
    return next((suffix.lower() for suffix in reversed(path.suffixes) if suffix.lower() != ".gz"), "")


def _open_file(path: Path, format: Format) -> RawSource:
    suffix = _ending(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}, so there is nothing to read; check the path.")
    if suffix in _PARQUET:
        return Arrow.of_file(path)
    if suffix == ".arff":
        return Arff.of(path, format.encoding)
    if suffix in _TEXT:
        return Delimited.of(path, format)
    raise InputError(f"the table {path} is of no kind that can be read, which are {_KINDS}; convert it.")
