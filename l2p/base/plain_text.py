"""Text of others, such as names in files, printed so that it cannot steer a terminal."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


def printable(text: str) -> str:
    r"""The text with control characters as escapes, all but line ends and tabs.

    They would clear a screen, paint over what was printed before, or turn letters around.

    >>> printable("ward\x1b[2J\u202e\n")
    'ward\\x1b[2J\\u202e\n'
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        character if character in "\n\t" or character.isprintable() else ascii(character)[1:-1] for character in text
    )


class _Plain:
    """A text stream to which all is written as `printable`."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def plain_output() -> Iterator[None]:
    """A context in which all output is `printable`: names come from tables, schemas, ledgers and cards of others."""
    out, error = _Plain(sys.stdout), _Plain(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):  # pyrefly: ignore[bad-specialization]
        yield
