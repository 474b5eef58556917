"""Text files, compressed or not."""

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from l2p.errors import InputError, withheld

_GZIP = b"\x1f\x8b"


@contextlib.contextmanager
def opened(path: Path, errors: str = "strict") -> Iterator[io.TextIOBase]:
    """The file as text in UTF-8, with line ends as they are; gzip is told by its first bytes."""
    with path.open("rb") as raw:
        packed = raw.read(2) == _GZIP
        raw.seek(0)
        plain = gzip.GzipFile(fileobj=raw) if packed else raw
        with io.TextIOWrapper(plain, encoding="utf-8-sig", errors=errors, newline="") as text:  # pyrefly: ignore
            yield text


@contextlib.contextmanager
def refused_as(complaint: str, *kinds: type[Exception]) -> Iterator[None]:
    """Errors of files that are not what they should be, as an `InputError` that quotes nothing; others withheld."""
    with withheld("reading a table"):
        try:
            yield
        except (OSError, EOFError, zlib.error, UnicodeError, *kinds):
            raise InputError(complaint) from None
