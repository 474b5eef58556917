"""A table of a user's own as a source of protectors: named by its file, and recognised by its content."""

import gzip
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

#: Begins the names of such sources: `table:NAME:CONTENT`.
OWN = "table:"
#: Hexadecimal digits of the content's SHA-256 in a source's name.
DIGITS = 16
#: A class with fewer rows is too rare to learn from and to hold some out.
MIN_OF_CLASS = 10


def is_own(source: str) -> bool:
    """True if a source is a user's own table."""
    return source.startswith(OWN)


def own_source(name: str, sha256: str) -> str:
    """The name of a table as a source.

    >>> own_source("bank", "0123456789abcdef" * 4)
    'table:bank:0123456789abcdef'
    """
    return f"{OWN}{name}:{sha256[:DIGITS]}"


def name_of(path: str | Path) -> str:
    """Name of a table: its file's name without suffixes of formats.

    >>> name_of("data/credit.g.arff.gz"), name_of("my table+1.csv")
    ('credit.g', 'my-table-1')
    """
    name = Path(path).name
    return re.sub(r"[^\w.-]+", "-", Path(name.removesuffix(".gz")).stem)


def content_sha256(path: str | Path) -> str:
    """SHA-256 of a file's bytes, unpacked if it is packed: a table has the same one as `.csv` and `.csv.gz`."""
    path = Path(path)
    digest = hashlib.sha256()
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        for chunk in iter(lambda: file.read(2**20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def columns_sha256(features: Iterable[str], target: str) -> str:
    """SHA-256 of the names of a table's target and of the columns to learn from, which may stand in any order."""
    return hashlib.sha256(json.dumps([target, sorted(features)]).encode()).hexdigest()


def source_of_file(path: str | Path) -> str:
    """The name of a file's table as a source."""
    return own_source(name_of(path), content_sha256(path))
