"""A user's private table of numbers, whole.

Only the file's name and the declared column names are public here. No message quotes a cell, counts cells or says which
row was at fault; `l2p.data.header` says when a message may show a column's name. Tables of anything else take a schema
(`l2p.schema`).
"""

import dataclasses
import math
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from l2p.data.header import called
from l2p.data.reading import Block, Delimited, Format, RawSource, open_table
from l2p.errors import InputError, withheld


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
def read_table(
    path: str | Path | Sequence[str | Path], declared: Collection[str] = (), format: Format | None = None
) -> Table:
    """A table from any file that `open_table` takes, all columns of which are numbers.

    Args:
      path: the file, or several of one table.
      declared: public names: the target and the columns with bounds. Without them, messages number columns from 1.
      format: how a text file is laid out.

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
    source = open_table(path, format)
    source.check_columns(declared)
    values = source.numbers() if isinstance(source, Delimited) else None
    if values is None:
        blocks = [_as_numbers(source, block, declared) for block in source.blocks(source.names)]
        values = np.concatenate([np.empty((0, len(source.names))), *blocks])
    if len(values) == 0:
        raise InputError(f"{source.title} has no rows to learn from; check the file and its filters.")
    return Table(source.names, values)


def _as_numbers(source: RawSource, block: Block, declared: Collection[str]) -> np.ndarray:
    """A block f64[n, c]; an empty cell is NaN."""
    values = np.empty((len(next(iter(block.values()))), len(source.names)))
    for place, name in enumerate(source.names):
        try:
            values[:, place] = [_as_number(cell) for cell in block[name].tolist()]
        except ValueError:
            raise InputError(
                f"{called(place, source.names, declared)} of {source.title.removeprefix('the table ')} holds something "
                "that is not a number: say if it writes 7,5 for 7.5 (--decimal ,), encode it as numbers first, or "
                "declare the table in a schema (l2p schema)"
            ) from None
    return values


def _as_number(cell: object) -> float:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return math.nan
    return float(cell)  # pyrefly: ignore[bad-argument-type]
