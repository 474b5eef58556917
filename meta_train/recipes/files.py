"""Configs from JSON and TOML files, checked field by field."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError
from meta_train import config
from meta_train.config import MetaConfig

#: Spelling of null in a TOML file, which has none.
NULL = "null"


def read(path: Path) -> MetaConfig:
    """The config in a JSON or TOML file.

    Raises:
      InputError: there is no such file, or it is neither, or a field is unknown or has the wrong type.
    """
    path = Path(path)
    kind = "TOML" if _is_toml(path) else "JSON"
    try:
        text = path.read_text(encoding="utf-8")
        fields = tomllib.loads(text) if _is_toml(path) else json.loads(text)
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}; pass a JSON or TOML file of fields, or a --recipe.") from error
    except (OSError, ValueError) as error:
        raise InputError(f"the config {path} cannot be read as {kind} ({error}); pass a file of fields.") from error
    if not isinstance(fields, dict) or not {"name", "protector"} <= set(fields):
        raise InputError(f"the config {path} must be an object that names at least a name and a protector.")
    return from_fields(fields, path)


def from_fields(fields: Mapping[str, Any], path: Path) -> MetaConfig:
    """The config of these fields, which were read from a file.

    >>> from_fields({"name": "x", "protector": "control", "num_features": "null"}, Path("x.toml")).tasks.counts
    (None,)
    """
    return config.from_fields(
        {name: None if value == NULL and _is_toml(path) else value for name, value in fields.items()}, path
    )


def _is_toml(path: Path) -> bool:
    return path.suffix == ".toml"
