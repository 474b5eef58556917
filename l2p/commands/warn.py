"""Warnings of commands, on standard error, so that what they print can be piped on."""

import sys
from collections.abc import Iterable


def warn(sentences: Iterable[str]) -> None:
    """Print each sentence as a warning, once."""
    for sentence in dict.fromkeys(sentences):
        print(f"warning: {sentence}", file=sys.stderr)
