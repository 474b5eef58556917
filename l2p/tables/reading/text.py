"""Text files, compressed or not, in any encoding."""

import codecs
import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from l2p.base.errors import InputError, withheld

_GZIP = b"\x1f\x8b"
#: Byte-order marks and what they tell; the longer ones first, because UTF-32's begins with UTF-16's.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@contextlib.contextmanager
def opened(path: Path, encoding: str | None = None, errors: str = "strict") -> Iterator[io.TextIOBase]:
    """The file as text with line ends as they are; gzip and byte-order marks are told by the first bytes.

    Args:
      encoding: of a file without a byte-order mark; None is UTF-8.
      errors: what becomes of bytes that are no character, as `open` takes it.
    """
    with path.open("rb") as raw:
        packed = raw.read(2) == _GZIP
        raw.seek(0)
        plain = gzip.GzipFile(fileobj=raw) if packed else raw
        start = plain.read(4)
        plain.seek(0)
        marked = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
        with io.TextIOWrapper(plain, encoding=marked or encoding or "utf-8", errors=errors, newline="") as text:  # pyrefly: ignore
            yield text


@contextlib.contextmanager
def refused_as(complaint: str, *kinds: type[Exception], encoding: str | None = None) -> Iterator[None]:
    """Errors of files that are not what they should be, as an `InputError` that quotes nothing; others withheld.

    Args:
      complaint: what is said of the file.
      kinds: of errors, beside those of reading and decompressing it.
      encoding: by which it is decoded, for what is said where it cannot be.
    """
    with withheld("reading a table"):
        try:
            yield
        except UnicodeError:
            raise InputError(undecodable(complaint, encoding)) from None
        except (OSError, EOFError, zlib.error, *kinds):
            raise InputError(complaint) from None


def undecodable(complaint: str, encoding: str | None) -> str:
    """The complaint of a file that is not in its encoding."""
    table, _, _ = complaint.partition(" cannot be read as")
    return (
        f"{table} is no text in {encoding or 'UTF-8'}; name its encoding (--encoding cp1252 for a file of Windows in "
        "Western Europe; latin-1, utf-16-le and the like), or save it as UTF-8"
    )
