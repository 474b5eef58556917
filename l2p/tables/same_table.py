"""Refusals of the private table where another one is meant: public rows, a public sample, a test table.

Those are read without noise, so whoever names the wrong file publishes exact facts of private rows. A file is
recognised by its path and its bytes, and under another name or in another format by its rows. Messages say nothing
but that it is the private table, and they come before anything is released.
"""

import collections
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from l2p.base.errors import InputError, withheld
from l2p.tables.own import content_sha256, is_own, own_source
from l2p.tables.public_data import rows_as_bytes
from l2p.task.rows import Rows
from l2p.task.task import Task

#: Another table has rows of the private one if so large a share of those that occur once in it occur once there, too.
#: Among tables drawn from one distribution it is at most 1 / e on average, whatever the distribution: a row that is
#: drawn m times on average occurs once with probability m exp(-m).
SHARE = 2 / 3
#: Of fewer rows that occur once, so many may be the same by accident.
LEAST = 20

PUBLIC_ROWS = (
    "the public rows are the private table itself, which would then be read without any noise; give rows that anybody "
    "may see, or leave the public rows out."
)
SAMPLE = (
    "the public sample holds the private table's own rows, and bounds, categories and classes would be read off them "
    "without any noise; give a sample of other rows, which anybody may see. Where the table itself is public, or the "
    "sample is a public part of it, leave the table out: l2p schema --from FILE --target COLUMN."
)
TEST = (
    "the test table holds the private table's own rows, and its scores, which no noise protects, would be exact facts "
    "of them; give rows that are not in the private table, or leave --test out."
)
SOURCE = (
    "the protector was meta-trained on the private table itself, so what it learned tells of these rows, and no budget "
    "covers that; choose a shipped protector, or meta-train on other tables, which anybody may see."
)


def refuse_same(data: Any, table: Any, sentence: str = PUBLIC_ROWS) -> None:
    """Refuse a table that is the private one: the same object, or a file of the same path or bytes.

    Raises:
      InputError: it is the private one; the message is the `sentence`.
    """
    if table is None:
        return
    if any(_is_same(part, another) for part in _parts(data) for another in _parts(table)):
        raise InputError(sentence)


def refuse_own(data: Any, sources: Sequence[str] | None) -> None:
    """Refuse a protector one of whose `sources` is a file of the private table, by its bytes.

    Raises:
      InputError: one of them is.
    """
    digests = {source.rpartition(":")[2] for source in sources or () if is_own(source)}
    files = [part for part in _parts(data) if isinstance(part, Path) and part.is_file()] if digests else []
    if any(own_source("", content_sha256(file)).rpartition(":")[2] in digests for file in files):
        raise InputError(SOURCE)


def refuse_equal(private: Iterable[Rows], rows: Rows, sentence: str = PUBLIC_ROWS) -> None:
    """Refuse rows that are all the private ones and no others, in any order; null rows aside.

    It stops at the first private row that is not among `rows`.

    Args:
      private: blocks of rows, encoded as `rows`.

    Raises:
      InputError: they are the same.
    """
    with withheld("comparing rows"):
        remaining = collections.Counter(_valid(rows))
        for row in (row for block in private for row in _valid(block)):
            remaining[row] -= 1
            if remaining[row] < 0:
                return
        same = not any(remaining.values())
    if same:
        raise InputError(sentence)


def refuse_shared(private: Iterable[Rows], rows: Rows, sentence: str) -> None:
    """Refuse rows that are the private ones, or most of which are: see `SHARE`.

    Raises:
      InputError: most of them are private.

    >>> rows = Rows(np.arange(40.0)[:, None], np.ones(40), np.ones(40))
    >>> refuse_shared([rows], rows.replace(x=rows.x + 20), TEST)  # half of them
    >>> refuse_shared([rows], rows.replace(x=rows.x + 10), TEST)
    Traceback (most recent call last):
    l2p.base.errors.InputError: the test table holds the private table's own rows, ...
    """
    with withheld("comparing rows"):
        counts, private_counts, total = collections.Counter(_valid(rows)), collections.Counter(), 0
        for row in (row for block in private for row in _valid(block)):
            total += 1
            if row in counts:
                private_counts[row] += 1
        unique = [row for row, count in counts.items() if count == 1]
        shared = sum(private_counts[row] == 1 for row in unique)
        most = len(unique) >= LEAST and shared >= SHARE * len(unique)
        same = most or (private_counts == counts and total == counts.total() > 0)
    if same:
        raise InputError(sentence)


def _valid(rows: Rows) -> Iterator[bytes]:
    counted = np.asarray(rows.mask) > 0
    return (row for row, counts in zip(rows_as_bytes(rows), counted, strict=True) if counts)


def _parts(table: Any) -> list[Any]:
    """The files of a table, or the object that holds its features."""
    if isinstance(table, Task):
        return _parts(table.private)
    if isinstance(table, Rows):
        return [table, table.x]
    if isinstance(table, (list, tuple)) and table and all(isinstance(part, (str, Path)) for part in table):
        return list(map(Path, table))
    if isinstance(table, tuple) and len(table) == 2:
        return [table[0]]
    return [Path(table) if isinstance(table, str) else table]


def _is_same(first: Any, second: Any) -> bool:
    if not isinstance(first, Path) or not isinstance(second, Path):
        return first is second
    if first == second:  # a table in a database, too
        return True
    if not (first.is_file() and second.is_file()):  # whoever reads it says so
        return False
    return first.samefile(second) or content_sha256(first) == content_sha256(second)
