"""Read a user's private table from a file.

Only the file's name and the declared column names are public here. No message quotes a cell, counts cells or says which
row was at fault; `l2p.data.header` says when a message may show a column's name.
"""

import csv
import dataclasses
import io
import math
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from l2p.data.header import called, what_is_missing
from l2p.errors import InputError, withheld

_NOT_NUMBERS = "holds something that is not a number: encode it as numbers first"


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A table of numbers.

    Attributes:
      columns: c distinct names.
      values: f64[n, c], as they stand in the file; an empty cell is NaN.
    """

    columns: tuple[str, ...]
    values: np.ndarray

    def __repr__(self) -> str:
        # Tracebacks that show variables print this, and a file without a header has a private row in `columns`.
        return f"Table({len(self.columns)} columns, not shown)"


@withheld("reading a table")
def read_table(path: str | Path, declared: Collection[str] = ()) -> Table:
    """A table from a `.csv` file with a header row, or from a `.parquet` file.

    Args:
      path: the file.
      declared: public names: the target and the columns with bounds. Without them, messages number columns from 1.

    Raises:
      InputError: the file is missing, unreadable, empty or of another kind; it has no rows; a declared column is
        missing; a column has no name, shares it or holds something that is not a number; or Parquet support is not
        installed.
      RowsError: anything else, such as a lack of memory.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ward.csv"
    >>> _ = path.write_text("age,readmit\\n61,1\\n,0\\n")
    >>> table = read_table(path)
    >>> table.columns, table.values.tolist()
    (('age', 'readmit'), [[61.0, 1.0], [nan, 0.0]])
    """
    path = Path(path)
    read = {".csv": _read_csv, ".parquet": _read_parquet}.get(path.suffix.lower())
    if not path.is_file():
        raise InputError(f"there is no file {path}, so there is nothing to read; check the path.")
    if read is None:
        raise InputError(
            f"the table {path} is not a .csv or .parquet file, the only kinds that can be read; convert it."
        )
    table = read(path, declared)
    if len(table.values) == 0:
        raise InputError(f"the table {path} has no rows to learn from; check the file and its filters.")
    return table


def _read_csv(path: Path, declared: Collection[str]) -> Table:
    try:
        # The header is one line: a stray quote must not pull private rows into a name.
        header, _, body = path.read_text(encoding="utf-8-sig").partition("\n")
        columns = _distinct([cell.strip() for cell in next(csv.reader([header], skipinitialspace=True), [])], path)
        if any(_is_number(column) for column in columns):
            raise InputError(f"the first line of {path} holds numbers: it must name the columns, not be a private row")
        _check_declared(columns, declared, path)
        return Table(columns, _read_body(body, path, columns, declared))
    except (OSError, UnicodeDecodeError, csv.Error):
        raise InputError(f"the table {path} cannot be read as comma-separated text in UTF-8") from None


def _distinct(columns: Sequence[str], path: Path) -> tuple[str, ...]:
    if not columns:
        raise InputError(f"the table {path} is empty: it must name its columns")
    if "" in columns:
        place = columns.index("") + 1
        raise InputError(f"column {place} of {path} has no name (an index column?): name it or leave it out")
    for place, column in enumerate(columns, 1):
        if (first := columns.index(column) + 1) < place:
            raise InputError(f"columns {first} and {place} of {path} have the same name: rename one")
    return tuple(columns)


def _check_declared(columns: Sequence[str], declared: Collection[str], path: Path) -> None:
    if said := what_is_missing(columns, declared):
        raise InputError(f"the table {path} {said}")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_body(body: str, path: Path, columns: tuple[str, ...], declared: Collection[str]) -> np.ndarray:
    if not body.strip():
        return np.empty((0, len(columns)))
    try:
        values = np.loadtxt(io.StringIO(body), delimiter=",", comments=None, quotechar='"', ndmin=2)
        if values.shape[1] == len(columns):
            return values
    except ValueError:
        # loadtxt is fast, but it rejects empty cells, and its errors quote the cell at which it stopped.
        pass
    rows = [row for row in csv.reader(io.StringIO(body), skipinitialspace=True) if row]
    if any(len(row) != len(columns) for row in rows):
        raise InputError(f"the table {path} has a row with more or fewer cells than the header has names")
    values = np.empty((len(rows), len(columns)))
    for j in range(len(columns)):
        try:
            values[:, j] = [float(row[j]) if row[j].strip() else math.nan for row in rows]
        except ValueError:
            raise InputError(f"{called(j, columns, declared)} of {path} {_NOT_NUMBERS}") from None
    return values


def _read_parquet(path: Path, declared: Collection[str]) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("reading .parquet needs pyarrow: pip install 'l2p-jax[data]'") from error
    try:
        content = pyarrow.parquet.ParquetFile(path).read()
    except (pa.ArrowException, OSError):
        raise InputError(f"the table {path} cannot be read as Parquet") from None
    columns = _distinct(content.column_names, path)
    _check_declared(columns, declared, path)
    is_kind = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    for j, field in enumerate(content.schema):
        if not any(test(field.type) for test in is_kind):
            raise InputError(f"{called(j, columns, declared)} of {path} {_NOT_NUMBERS}")
    return Table(columns, np.column_stack([column.cast(pa.float64(), safe=False) for column in content.columns]))
