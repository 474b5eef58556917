"""Public data sets that share rows: a protector is never scored on data that it was made from."""

import re
from collections.abc import Sequence

from l2p.tables.own import OWN, is_own
from l2p.tables.public.openml import OPENML, is_openml


def overlaps(source: str, avoid: Sequence[str]) -> bool:
    """True if `source` shares rows with a set to avoid: it is from the same table, and they have a digit in common.

    Tables of users' own are the same if their contents are, under any names; a table that is called like a public set
    is taken to be that set.

    >>> [overlaps("mnist:4,6", [name]) for name in ("mnist", "mnist:6,4", "mnist:6,9", "mnist:3,5", "digits")]
    [True, True, True, False, False]
    >>> overlaps("mnist:rest:3,5", ["mnist:5,3"]), overlaps("mnist:rest:3,5:features:9", ["mnist:4,6"])
    (False, True)
    >>> [overlaps("table:bank:01ab", [name]) for name in ("table:b2:01ab", "table:bank:02ab", "adult")]
    [True, False, False]
    >>> overlaps("adult", ["table:adult:01ab"]), overlaps("openml:segment", ["table:segment:01ab"])
    (True, True)
    >>> overlaps("openml:segment", ["openml:vowel"]), overlaps("openml:diabetes", ["diabetes"])
    (False, False)
    """
    return any(_share(source, avoided) for avoided in avoid)


def _share(source: str, avoided: str) -> bool:
    if is_own(source) and is_own(avoided):
        return source.rpartition(":")[2] == avoided.rpartition(":")[2]
    if is_openml(source) or is_openml(avoided):
        return _table(source) == _table(avoided) and (source == avoided or is_own(source) or is_own(avoided))
    (table, digits), (avoided_table, avoided_digits) = _table_and_digits(source), _table_and_digits(avoided)
    return table == avoided_table and bool(digits & avoided_digits)


def _table(name: str) -> str:
    """The plain name of a user's own table or of one of OpenML's; any other name as it is."""
    return name.removeprefix(OWN).rpartition(":")[0] if is_own(name) else name.removeprefix(OPENML)


def _table_and_digits(name: str) -> tuple[str, frozenset[str]]:
    """The table that a public set is part of, and its digits of that table; all of them for a table without digits."""
    table, _, part = (_table(name), "", "") if is_own(name) else name.partition(":")
    every, named = frozenset("0123456789"), frozenset(re.findall(r"\d", part.partition("features")[0]))
    if not named:
        return table, every
    return table, every - named if part.startswith("rest:") else named
