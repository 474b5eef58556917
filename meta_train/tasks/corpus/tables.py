"""Encoded tables of the corpus: each column in turn as the target, as far as it is one."""

import dataclasses
import functools
import hashlib
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.own import MIN_OF_CLASS
from l2p.tables.public.download import data_folder
from l2p.tables.public.openml import TABLES
from l2p.tables.reading import open_table
from l2p.tables.schema import Encoding
from l2p.tables.schema.template import from_public
from meta_train.tasks.corpus.packages import PACKAGES, Package, Raw

#: Tables with fewer rows or columns are left out, and rows beyond so many, at random: a task has a thousand or two.
LEAST_ROWS, LEAST_COLUMNS, MOST_ROWS = 200, 3, 1024
#: Wider ones, too: hundreds of genes, say.
MOST_COLUMNS = 150
#: Columns of a table that are tried as its target: its last one and random others, which are features alone otherwise.
MOST_TARGETS = 6
#: Columns that a table has at most once it is encoded.
MOST_FEATURES = 400
#: A number with fewer values is no number to predict.
LEAST_VALUES = 20
#: The share of rows that the commoner of two classes has at most.
MOST_OF_TWO = 0.97
#: One table in so many is held out.
HELD_OUT = 7
#: Rows of tables that are scored, beside those of `TABLES`: of the package's own sets, whole or in parts, and of some
#: of `TABLES` without their rows with missing cells. A table of equally many rows is left out, whatever it is called.
SCORED_LENGTHS = frozenset(
    (442, 569, 1797, 5620, 10_000, 16_281, 20_640, 30_162, 32_561, 38_000, 45_222, 48_842, 60_000, 70_000)
) | {232, 392, 397, 506, 653, 683, 699, 5644}
#: How names of the same tables begin elsewhere, and of other versions of them.
SCORED_NAMES = re.compile(
    r"abalone|adult|australian|auto(mpg)?$|biopsy|boston|brca|breast|california|chess|contraceptive|credit$|crx|"
    r"german|housevote|housing|mushroom|optdigit|pima|segment$|splice|tic|vehicle|vote|vowel|wdbc|wisconsin",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
    """A table with one of its columns as the target.

    Attributes:
      table: its name.
      x: f32[n, c], features in [0, 1].
      y: f32[n], classes 0 to K - 1 from the commonest one on, or numbers in [0, 1].
      num_classes: K; None for numbers.
      is_held_out: whether tasks to judge by come from it, and none to train on.
    """

    table: str
    x: np.ndarray
    y: np.ndarray
    num_classes: int | None
    is_held_out: bool


@functools.lru_cache(maxsize=2)
def entries(packages: tuple[Package, ...] = PACKAGES, folder: Path | None = None) -> tuple[Entry, ...]:
    """Every table of the packages with every target that it has; they are downloaded into `folder` on first use.

    Raises:
      InputError: a package cannot be downloaded, or pandas is not installed.
    """
    lists = [_of_table(*raw) for raw in _distinct(packages, data_folder(folder))]
    return tuple(entry for of_table in lists for entry in of_table)


def _distinct(packages: tuple[Package, ...], folder: Path) -> Iterator[Raw]:
    """Tables that are large enough and not scored, each once."""
    scored = SCORED_LENGTHS | {info.rows for info in TABLES.values()}
    lengths = set()
    for package in packages:
        for name, columns in package.tables(folder):
            rows = len(next(iter(columns.values()), ()))
            size = rows, len(columns)
            is_small = rows < LEAST_ROWS or not LEAST_COLUMNS <= len(columns) <= MOST_COLUMNS
            # Several packages have the same table, by other names at times.
            if is_small or rows in scored or SCORED_NAMES.match(name) or size in lengths:
                continue
            lengths.add(size)
            yield f"{package.name}:{name}", columns


def _of_table(name: str, columns: Mapping[str, np.ndarray]) -> list[Entry]:
    rows = len(next(iter(columns.values())))
    chance = np.random.default_rng(_number(name))
    kept = np.sort(chance.permutation(rows)[:MOST_ROWS])
    some = {column: cells[kept] for column, cells in columns.items() if not _counts_rows(cells)}
    # By its number of rows, which other versions of a table have in common.
    is_held_out = _number(str(rows)) % HELD_OUT == 0
    *others, last = some
    targets = [last, *map(str, chance.permutation(others)[: MOST_TARGETS - 1])]
    tried = (_entry(name, some, target, is_held_out) for target in targets)
    return [entry for entry in tried if entry is not None]


def _entry(table: str, columns: Mapping[str, np.ndarray], target: str, is_held_out: bool) -> Entry | None:
    """The table with this target; None where the column is none, or no other can be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            encoding = Encoding(from_public(open_table(columns), target, tuple(columns), curve=0))
            if len(encoding.names) > MOST_FEATURES:
                return None
            rows = encoding.rows(columns, "null")
    except (InputError, TypeError, ValueError, OverflowError):  # cells that are lists, say
        return None
    x, y = (np.asarray(leaf)[np.asarray(rows.mask) > 0] for leaf in (rows.x, rows.y))
    if encoding.schema.target.classes is None:
        is_number = len(np.unique(y)) >= LEAST_VALUES
        return Entry(table, x, y, None, is_held_out) if is_number and len(y) >= LEAST_ROWS else None
    classes, counts = np.unique(y, return_counts=True)
    classes = classes[np.argsort(-counts, kind="stable")][: int((counts >= MIN_OF_CLASS).sum())]
    among = np.isin(y, classes)
    if len(classes) < 2 or among.sum() < LEAST_ROWS:
        return None
    x, y = x[among], np.argmax(y[among][:, None] == classes[None, :], 1).astype(np.float32)
    is_rare = len(classes) == 2 and (y == 0).mean() > MOST_OF_TWO
    return None if is_rare else Entry(table, x, y, len(classes), is_held_out)


def _counts_rows(cells: np.ndarray) -> bool:
    """True for whole numbers that go up by one from each row to the next, which tell rows apart and nothing else."""
    return cells.dtype.kind in "iuf" and len(cells) > 1 and bool((np.diff(cells) == 1).all())


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
