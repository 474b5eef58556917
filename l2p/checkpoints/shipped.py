"""The `index.toml` of a folder of checkpoints: a line on each checkpoint for users."""

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path

#: Name of that file.
INDEX = "index.toml"


@dataclasses.dataclass(frozen=True)
class Index:
    """The content of `index.toml`.

    Attributes:
      about: one line on each checkpoint for users, by name, in the order in which they are listed.
    """

    about: Mapping[str, str] = dataclasses.field(default_factory=dict)


@functools.cache
def index(folder: Path) -> Index:
    """The index of a folder; empty if it has no `index.toml`."""
    path = folder / INDEX
    return Index(**tomllib.loads(path.read_text(encoding="utf-8"))) if path.is_file() else Index()
