"""A user's private table: read it, and scale it by declared bounds.

What is public here: the file's name, and what is declared: bounds, the target's name and classes. No message quotes a
cell, counts cells or says which row was at fault; `l2p.data.header` says when one may show a column's name.
"""

import csv
import dataclasses
import io
import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from l2p.data.header import called, is_header, listed, what_is_missing
from l2p.errors import InputError, withheld

if TYPE_CHECKING:
    from l2p.task import Rows

#: Kinds of targets: 0 and 1, 0 to K - 1, and values in [0, 1] by public bounds.
Kind = Literal["binary", "multiclass", "regression"]
Bounds = Mapping[str, tuple[float, float]]  # [low, high] by column, in its own units

_REMEDY = "mend the table, or choose on_invalid 'null' (--on-invalid null) to count such rows as null"
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
        # Tracebacks that show variables print it, and a file without a header has a row in `columns`.
        return f"Table({len(self.columns)} columns, not shown)"


@withheld("reading a table")
def read_table(path: str | Path, declared: Collection[str] = ()) -> Table:
    """A table from a `.csv` file with a header row, or from a `.parquet` file.

    Args:
      path: the file.
      declared: names that are public, the target's and those with bounds; without, a refusal numbers columns from 1.

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
        raise InputError(f"the table {path} is no .csv or .parquet file, which is all that is read; convert it.")
    table = read(path, declared)
    if len(table.values) == 0:
        raise InputError(f"the table {path} has no rows to learn from; check the file and its filters.")
    return table


def _read_csv(path: Path, declared: Collection[str]) -> Table:
    try:
        # The header is one line: a stray quote must not draw private rows into a name.
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
        # loadtxt is fast, but it takes no empty cell and its errors quote the cell it stopped at.
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


def read_bounds(path: str | Path) -> dict[str, tuple[float, float]]:
    """Declared bounds from a JSON file {column: [low, high]}, in the columns' own units.

    Raises:
      InputError: the file is missing or is not such JSON, or bounds are not finite numbers with low < high.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "bounds.json"
    >>> _ = path.write_text('{"age": [0, 120]}')
    >>> read_bounds(path)
    {'age': (0.0, 120.0)}
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the bounds {path} cannot be read ({error.strerror}); check the path") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"the bounds {path} cannot be read as JSON: {error.msg} in {where}") from None
    except (ValueError, RecursionError):  # of bytes that are no text, which it would quote
        raise InputError(f"the bounds {path} cannot be read as JSON: write {{column: [low, high]}}") from None
    if not isinstance(content, dict):
        raise InputError(f"the bounds {path} must be a JSON object {{column: [low, high]}}")
    return {column: _interval(column, pair) for column, pair in content.items()}


def _interval(column: str, pair: Any) -> tuple[float, float]:
    is_pair = isinstance(pair, (list, tuple)) and len(pair) == 2 and all(map(_is_finite, pair))
    if not (is_pair and pair[0] < pair[1] and _is_finite(float(pair[1]) - float(pair[0]))):
        raise InputError(f"bounds of column {column!r} must be two finite numbers [low, high] with low < high")
    return float(pair[0]), float(pair[1])


def _is_finite(value: Any) -> bool:
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return bool(is_number and abs(value) <= sys.float_info.max)


def scale(values: np.ndarray, bounds: Sequence[tuple[float, float]]) -> np.ndarray:
    """f32[n, d] in [0, 1] from values [n, d] and d pairs low < high: (value - low) / (high - low), clipped silently.

    >>> scale(np.array([[0.0], [30.0], [200.0]]), [(0, 120)]).tolist()
    [[0.0], [0.25], [1.0]]
    """
    low, high = np.array(bounds, dtype=np.float64).T
    return ((np.clip(values, low, high) - low) / (high - low)).astype(np.float32)


@withheld("preparing a table")
def prepare(
    table: Table,
    target: str,
    bounds: Bounds,
    classes: Sequence[float] | None = None,
    on_invalid: Literal["refuse", "null"] = "refuse",
    features: Sequence[str] | None = None,
    kind: Kind = "binary",
) -> "Rows":
    """Rows to learn from: NumPy f32 arrays x [n, d] in [0, 1], y [n], mask [n].

    Args:
      table, target: the table, of which only the columns are public, and its column of targets.
      bounds: [low, high] of every feature, in its own units; for "regression" of the target too, else those are unused.
      classes: the labels that become 0, 1, 2 and so on; without, those of "binary" are all 0 or 1, or all -1 or 1.
      on_invalid: an empty, NaN or infinite cell or a label outside the classes makes the table refused, or its row
        null (x, y, mask 0). Whether a row is null must not hang on others: "null" takes 0 and -1 alike for class 0.
      features: the features in order, as of the table trained on; else all columns but the target, in theirs.
      kind: what y holds: "binary" 0 or 1, "multiclass" 0 to K - 1, and "regression" the target scaled to [0, 1] by its
        bounds, values outside them clipped silently.

    Raises:
      InputError: unknown target or feature, bounds that are missing, malformed or of no column, classes that are
        missing or do not fit, or an invalid row under "refuse".
      RowsError: anything else, such as a table whose values are not numbers.

    >>> table = Table(("age", "readmit"), np.array([[30.0, 1.0], [150.0, -1.0]]))
    >>> rows = prepare(table, "readmit", {"age": (0, 120)})
    >>> rows.x.tolist(), rows.y.tolist(), rows.mask.tolist()
    ([[0.25], [1.0]], [1.0, 0.0], [1.0, 1.0])
    """
    from l2p.task import Rows  # imports JAX: not for those who only read tables

    if on_invalid not in ("refuse", "null"):
        raise InputError(f"on_invalid must be 'refuse' or 'null', not {on_invalid!r}")
    if table.values.shape[1:] != (len(table.columns),) or table.values.dtype.kind not in "fiub":
        raise InputError("the table's values must be an array of real numbers with as many columns as it has names")
    declared = tuple(dict.fromkeys((target, *(features or ()), *bounds)))
    if said := what_is_missing(table.columns, declared):
        raise InputError(f"the table {said}")
    features = _features(table, target, features)
    limits = _limits(features, bounds, is_header(table.columns, declared))
    raw = table.values[:, [table.columns.index(name) for name in features]]
    finite = np.isfinite(raw)
    column = table.values[:, table.columns.index(target)]
    check_classes(classes, kind)
    if kind == "regression":
        (limit,) = _limits((target,), bounds, shown=True)
        y, valid = scale(column[:, None], [limit])[:, 0], np.isfinite(column)
        sound, complaint = bool(valid.all()), f"target {target!r} has empty, NaN or infinite cells: {_REMEDY}"
    else:
        y, valid, sound = _labels(column, classes)
        declared = "0 and 1, or -1 and 1" if classes is None else " and ".join(f"{label:g}" for label in classes)
        remedy = "declare the classes" if classes is None else "declare other classes"
        complaint = f"target {target!r} has labels other than {declared}: {remedy}, or {_REMEDY}"
    if on_invalid == "refuse":
        if not finite.all():
            name = features[int(finite.all(axis=0).argmin())]
            raise InputError(f"column {name!r} has empty, NaN or infinite cells: {_REMEDY}")
        if not sound:
            raise InputError(complaint)
    mask = valid & finite.all(axis=1)
    x = np.where(mask[:, None], scale(raw, limits), np.float32(0))
    y = np.where(mask, y, 0).astype(np.float32)
    return Rows(x=x, y=y, mask=mask.astype(np.float32))  # pyrefly: ignore[bad-argument-type]


def check_classes(classes: Sequence[float] | None, kind: Kind) -> None:
    """Refuse declared classes that a target of this kind cannot have.

    >>> check_classes((3, 5, 9), "multiclass")
    """
    if kind == "multiclass" and classes is None:
        raise InputError("a multiclass target needs its classes declared (--classes 0 1 2): read off labels they leak")
    if classes is None:
        return
    distinct = len(classes) >= 2 and all(map(_is_finite, classes)) and len(set(classes)) == len(classes)
    if kind == "regression":
        raise InputError("classes are declared, but a regression has none: leave them out, or choose a classifier")
    if kind == "binary" and not (distinct and len(classes) == 2):
        raise InputError("classes (--classes) must be two different numbers (A, B): labels A become 0 and B become 1")
    if not distinct:
        raise InputError(
            "classes (--classes) must be different numbers, at least two: their labels become 0, 1, 2 and so on"
        )


def _labels(column: np.ndarray, classes: Sequence[float] | None) -> tuple[np.ndarray, np.ndarray, bool]:
    """Numbers of the classes [n], which lines have one [n], and whether all do, without mixing 0 and -1."""
    if classes is None:
        negative = np.isin(column, (0, -1))
        valid = negative | (column == 1)
        return (column == 1).astype(float), valid, bool(valid.all()) and len(np.unique(column[negative])) < 2
    found = column[:, None] == np.asarray(classes, float)
    valid = found.any(axis=1)
    return found.argmax(axis=1).astype(float), valid, bool(valid.all())


def _features(table: Table, target: str, features: Sequence[str] | None) -> tuple[str, ...]:
    chosen = tuple(name for name in table.columns if name != target) if features is None else tuple(features)
    if not chosen or target in chosen or len(set(chosen)) != len(chosen):
        raise InputError(f"features must be distinct columns other than the target {target!r}, at least one")
    return chosen


def _limits(features: Sequence[str], bounds: Bounds, shown: bool) -> list[tuple[float, float]]:
    """Bounds of the features, or a refusal, in which `shown` names are shown."""
    if missing := [name for name in features if name not in bounds]:
        which = f"column {listed(missing)}" if shown else f"{len(missing)} columns"
        why = "read off private rows they leak; declare [low, high] from public knowledge"
        raise InputError(f"bounds are missing for {which}: {why}")
    return [_interval(name, bounds[name]) for name in features]
