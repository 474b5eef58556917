"""Encoded tables of the corpus: each column in turn as the target, as far as it is one."""

import dataclasses
import functools
import hashlib
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from l2p.tables.own import MIN_OF_CLASS
from l2p.tables.public.download import data_folder
from l2p.tables.public.openml import TABLES
from l2p.tables.reading import open_table
from l2p.tables.schema import Encoding
from l2p.tables.schema.template import from_public
from meta_train.tasks.corpus.packages import NAMELESS, PACKAGES, Package, Raw

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
#: A target is none where a feature orders rows as it does: its logarithm, say.
MOST_ALIKE = 0.999
#: One table in so many is held out, with all its versions, which have this share of the names of their columns in
#: common, and at least so many.
HELD_OUT, SHARED, LEAST_SHARED = 7, 0.6, 4
#: Rows of tables that are scored, beside those of `TABLES`: of the package's own sets, whole or in parts, and of some
#: of `TABLES` without their rows with missing cells. A table of equally many rows is left out, whatever it is called.
SCORED_LENGTHS = frozenset(
    (232, 392, 442, 569, 653, 1797, 5620, 5644, 10000, 16281, 20640, 30162, 32561, 38000, 45222, 48842, 60000, 70000)
)
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
      table: its name, or that of the first of its versions.
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
    """Every table of the packages with up to `MOST_TARGETS` of its columns as targets; the packages are downloaded into
    `folder` on first use.

    Raises:
      InputError: a package cannot be downloaded, or pandas is not installed.
    """
    raws = list(_distinct(packages, data_folder(folder)))
    lists = [_of_table(first, columns) for first, (_, columns) in zip(_firsts(raws), raws, strict=True)]
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


def _firsts(raws: Sequence[Raw]) -> list[str]:
    """For each table, the name of the first of its versions: of all that have much the same columns."""
    names = [frozenset(name.lower() for name in columns if not name.startswith(NAMELESS)) for _, columns in raws]
    first = list(range(len(raws)))
    for place, own in enumerate(names):
        for earlier in range(place):
            least = max(LEAST_SHARED, SHARED * min(len(own), len(names[earlier])))
            if len(own & names[earlier]) >= least:
                joined, others = sorted((first[earlier], first[place]))
                first = [joined if number == others else number for number in first]
    return [raws[number][0] for number in first]


def _of_table(name: str, columns: Mapping[str, np.ndarray]) -> list[Entry]:
    """A table with each of the columns that are tried as its target and are one, at most `MOST_ROWS` of its rows."""
    is_held_out, chance = _hash_of(name) % HELD_OUT == 0, np.random.default_rng(_hash_of(name))
    # In their own order, by which a schema tells columns that count rows.
    num_rows = len(next(iter(columns.values())))
    rows = np.sort(chance.permutation(num_rows)[:MOST_ROWS])
    sample = {column: cells[rows] for column, cells in columns.items() if not _counts_rows(cells)}
    if not sample:
        return []
    *others, last = sample
    targets = [last, *map(str, chance.permutation(others)[: MOST_TARGETS - 1])]
    tried = (_entry(name, sample, target, is_held_out) for target in targets)
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
    except (ValueError, TypeError, OverflowError):  # InputError among them; and cells that are lists, say
        return None
    # Tables are sorted at times, and tasks read some rows and are scored on those after them.
    order = np.random.default_rng(0).permutation(np.flatnonzero(np.asarray(rows.mask)))
    x, y = np.asarray(rows.x)[order], np.asarray(rows.y)[order]
    if len(y) < LEAST_ROWS or _is_told(x, y):
        return None
    if encoding.schema.target.classes is None:
        return Entry(table, x, y, None, is_held_out) if len(np.unique(y)) >= LEAST_VALUES else None
    classes, counts = np.unique(y, return_counts=True)
    classes = classes[np.argsort(-counts, kind="stable")][: int((counts >= MIN_OF_CLASS).sum())]
    among = np.isin(y, classes)
    if len(classes) < 2 or among.sum() < LEAST_ROWS:
        return None
    x, y = x[among], np.argmax(y[among][:, None] == classes[None, :], 1).astype(np.float32)
    is_rare = len(classes) == 2 and (y == 0).mean() > MOST_OF_TWO
    return None if is_rare else Entry(table, x, y, len(classes), is_held_out)


def _is_told(x: np.ndarray, y: np.ndarray) -> bool:
    """True if a feature alone orders all rows as the target does."""
    ranks = [np.unique(column, return_inverse=True)[1].astype(np.float64) for column in (y, *x.T)]
    with np.errstate(invalid="ignore"):  # of columns that are the same in all rows left
        correlation = np.asarray(np.corrcoef(ranks))[0, 1:]
    return bool((np.abs(correlation) > MOST_ALIKE).any())


def _counts_rows(cells: np.ndarray) -> bool:
    """True for whole numbers that go up by one from each row to the next, which tell rows apart and nothing else."""
    return cells.dtype.kind in "iuf" and len(cells) > 1 and bool((np.diff(cells) == 1).all())


def _hash_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
