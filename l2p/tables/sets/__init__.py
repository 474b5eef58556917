"""The public data sets, a file each: a new set is its file, in which `SET` declares it, and its name here."""

import importlib

from l2p.tables.public.public_set import PublicSet

#: In the order in which messages list them.
NAMES = (
    "ipums_br",
    "adult",
    "mnist",
    "california",
    "digits",
    "breast_cancer",
    "diabetes",
    "quadratic",
)


def find(name: str) -> PublicSet:
    """The set of this name, which must be one of `NAMES`.

    >>> find("adult").classes
    ('up to 50,000 dollars', 'above')
    """
    return importlib.import_module(f"l2p.tables.sets.{name}").SET
