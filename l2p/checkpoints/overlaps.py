"""Whether two public data sets share rows: a protector is never scored on what it was made from."""

import re
from collections.abc import Sequence


def overlaps(source: str, avoid: Sequence[str]) -> bool:
    """Whether `source` shares rows with a set to avoid: it is from the same table, and they have a digit in common.

    >>> [overlaps("mnist:4,6", [other]) for other in ("mnist", "mnist:6,4", "mnist:6,9", "mnist:3,5", "digits")]
    [True, True, True, False, False]
    >>> overlaps("mnist:rest:3,5", ["mnist:5,3"]), overlaps("mnist:rest:3,5:features:9", ["mnist:4,6"])
    (False, True)
    """
    table, digits = _kept(source)
    return any(table == other and digits & others for other, others in map(_kept, avoid))


def _kept(name: str) -> tuple[str, frozenset[str]]:
    """The table that a public set is part of, and its digits of that table; all of them for a table without digits."""
    table, _, part = name.partition(":")
    every, named = frozenset("0123456789"), frozenset(re.findall(r"\d", part.partition("features")[0]))
    if not named:
        return table, every
    return table, every - named if part.startswith("rest:") else named
