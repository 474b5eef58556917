"""Whether two public data sets share rows: a protector is never scored on what it was made from."""

import re
from collections.abc import Sequence

from l2p.tables.own import OWN, is_own
from l2p.tables.public.openml import OPENML, is_openml


def overlaps(source: str, avoid: Sequence[str]) -> bool:
    """Whether `source` shares rows with a set to avoid: it is from the same table, and they have a digit in common.

    Tables of users' own are the same if their content is, whatever they are called; and one that is called as a public
    set is taken to be that set.

    >>> [overlaps("mnist:4,6", [other]) for other in ("mnist", "mnist:6,4", "mnist:6,9", "mnist:3,5", "digits")]
    [True, True, True, False, False]
    >>> overlaps("mnist:rest:3,5", ["mnist:5,3"]), overlaps("mnist:rest:3,5:features:9", ["mnist:4,6"])
    (False, True)
    >>> [overlaps("table:bank:01ab", [other]) for other in ("table:b2:01ab", "table:bank:02ab", "adult")]
    [True, False, False]
    >>> overlaps("adult", ["table:adult:01ab"]), overlaps("openml:segment", ["table:segment:01ab"])
    (True, True)
    >>> overlaps("openml:segment", ["openml:vowel"]), overlaps("openml:diabetes", ["diabetes"])
    (False, False)
    """
    return any(_share(source, other) for other in avoid)


def _share(source: str, other: str) -> bool:
    if is_own(source) and is_own(other):
        return source.rpartition(":")[2] == other.rpartition(":")[2]
    if is_openml(source) or is_openml(other):
        return _table(source) == _table(other) and (source == other or is_own(source) or is_own(other))
    (table, digits), (other_table, others) = _kept(source), _kept(other)
    return table == other_table and bool(digits & others)


def _table(name: str) -> str:
    """What a user's own table or one of OpenML's is called; any other name as it is."""
    return name.removeprefix(OWN).rpartition(":")[0] if is_own(name) else name.removeprefix(OPENML)


def _kept(name: str) -> tuple[str, frozenset[str]]:
    """The table that a public set is part of, and its digits of that table; all of them for a table without digits."""
    table, _, part = (_table(name), "", "") if is_own(name) else name.partition(":")
    every, named = frozenset("0123456789"), frozenset(re.findall(r"\d", part.partition("features")[0]))
    if not named:
        return table, every
    return table, every - named if part.startswith("rest:") else named
