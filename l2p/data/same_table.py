"""The private table given where another one is meant: public rows, a public sample, a test table.

What is read off those is not private, so whoever names the wrong file publishes exact facts of private rows. A file is
known again by its path and its bytes, and under another name or in another format by its rows. Sentences say nothing
but that it is the private table. That it was refused is all that becomes known, before anything is released.
"""

import collections
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from l2p.data.own import content_sha256, is_own, own_source
from l2p.data.public_data import lines_of
from l2p.errors import InputError, withheld
from l2p.task import Rows, Task

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


def refuse_same(data: Any, other: Any, sentence: str = PUBLIC_ROWS) -> None:
    """Refuse a table that is the private one: the same object, or a file of the same path or bytes.

    Raises:
      InputError: it is; the message is the `sentence`.
    """
    if other is None:
        return
    if any(_is_same(part, another) for part in _parts(data) for another in _parts(other)):
        raise InputError(sentence)


def refuse_own(data: Any, sources: Sequence[str] | None) -> None:
    """Refuse a protector one of whose `sources` is a file of the private table, by its bytes.

    Raises:
      InputError: one is.
    """
    digests = {source.rpartition(":")[2] for source in sources or () if is_own(source)}
    files = [part for part in _parts(data) if isinstance(part, Path) and part.is_file()] if digests else []
    if any(own_source("", content_sha256(file)).rpartition(":")[2] in digests for file in files):
        raise InputError(SOURCE)


def refuse_equal(private: Iterable[Rows], other: Rows, sentence: str = PUBLIC_ROWS) -> None:
    """Refuse rows that are all the private ones and no others, in any order; null rows aside.

    It stops at the first private row that is not among the others.

    Args:
      private: blocks of rows, encoded as the others.

    Raises:
      InputError: they are.
    """
    with withheld("comparing rows"):
        left = collections.Counter(_valid(other))
        for line in (line for block in private for line in _valid(block)):
            left[line] -= 1
            if left[line] < 0:
                return
        same = not any(left.values())
    if same:
        raise InputError(sentence)


def refuse_shared(private: Iterable[Rows], other: Rows, sentence: str) -> None:
    """Refuse rows that are the private ones, or of which most are: see `SHARE`.

    Raises:
      InputError: they are.

    >>> rows = Rows(np.arange(40.0)[:, None], np.ones(40), np.ones(40))
    >>> refuse_shared([rows], rows.replace(x=rows.x + 20), TEST)  # half of them
    >>> refuse_shared([rows], rows.replace(x=rows.x + 10), TEST)
    Traceback (most recent call last):
    l2p.errors.InputError: the test table holds the private table's own rows, ...
    """
    with withheld("comparing rows"):
        counts, here, total = collections.Counter(_valid(other)), collections.Counter(), 0
        for line in (line for block in private for line in _valid(block)):
            total += 1
            if line in counts:
                here[line] += 1
        alone = [line for line, count in counts.items() if count == 1]
        shared = sum(here[line] == 1 for line in alone)
        most = len(alone) >= LEAST and shared >= SHARE * len(alone)
        same = most or (here == counts and total == counts.total() > 0)
    if same:
        raise InputError(sentence)


def _valid(rows: Rows) -> Iterator[bytes]:
    counted = np.asarray(rows.mask) > 0
    return (line for line, counts in zip(lines_of(rows), counted, strict=True) if counts)


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


def _is_same(part: Any, other: Any) -> bool:
    if not isinstance(part, Path) or not isinstance(other, Path):
        return part is other
    if part == other:  # a table in a database, too
        return True
    if not (part.is_file() and other.is_file()):  # whoever reads it says so
        return False
    return part.samefile(other) or content_sha256(part) == content_sha256(other)
