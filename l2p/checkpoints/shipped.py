"""What a folder of checkpoints says of itself in `index.toml`: a line on each that users need, and old names."""

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path

#: Beside the checkpoints of a folder.
INDEX = "index.toml"


@dataclasses.dataclass(frozen=True)
class Index:
    """What `index.toml` says.

    Attributes:
      about: by the name of each checkpoint on the first floor, what it is, in a line; in the order to list them in.
      aliases: by old name, the one that it stands for.
    """

    about: Mapping[str, str] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)


@functools.cache
def index(folder: Path) -> Index:
    """What a folder says of itself; nothing where it has no `index.toml`."""
    path = folder / INDEX
    return Index(**tomllib.loads(path.read_text(encoding="utf-8"))) if path.is_file() else Index()
