"""The rows of the recipe files in this folder, as they are written, with names of groups replaced by their sources."""

import dataclasses
import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError
from l2p.checkpoints.folds import MOST_FOLDS, fold_name
from meta_train.recipes import tuned
from meta_train.tasks.sources import AND, parts_of

#: Keys of a row that are not fields of the config.
LIKE, FOLD, SHIPPED = "like", "fold", "shipped"
#: Kinds of rows: a checkpoint of it ships, and none does.
KINDS = ("names", "examples")
#: Precedes the name of a group among the parts of a source.
_GROUP = "@"


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a recipe file.

    Attributes:
      path: of the file.
      defaults: of all of its rows.
      fields: its own.
      kind: "names" if a checkpoint of it ships, "examples" if none does.
      folds: for every fold of the file, the public sets that it leaves out.
      shipped: other values of fields, with which the checkpoint that ships was trained before its recipe changed.
    """

    path: Path
    defaults: dict[str, Any]
    fields: dict[str, Any]
    kind: str
    folds: tuple[tuple[str, ...], ...] = ()
    shipped: dict[str, Any] = dataclasses.field(default_factory=dict)


@functools.cache
def every(folder: Path) -> dict[str, Row]:
    """Every row in a folder's files by name, folds included."""
    rows: dict[str, Row] = {}
    for path in sorted(folder.glob("*.toml")):
        if path.name != tuned.FILE.name:
            rows |= _read(path)
    return rows


def _read(path: Path) -> dict[str, Row]:
    """The rows of a file by name. Each has one more for every fold."""
    file = tomllib.loads(path.read_text(encoding="utf-8"))
    groups = file.get("groups", {})
    folds = _folds(file.get("folds", {}).get("without", []), groups, path)
    defaults = _expanded(file["defaults"], groups, path)
    rows: dict[str, Row] = {}
    for kind in KINDS:
        for name, fields in file.get(kind, {}).items():
            shipped = fields.pop(SHIPPED, {})
            rows[name] = Row(path, defaults, _expanded(fields, groups, path), kind, folds, shipped)
            for number in range(1, len(folds) + 1):
                fields_of_fold = {LIKE: name, FOLD: number}
                rows[fold_name(name, number)] = Row(path, defaults, fields_of_fold, kind, folds)
    return rows


def _folds(
    listed: Sequence[Sequence[str]], groups: Mapping[str, Sequence[str]], path: Path
) -> tuple[tuple[str, ...], ...]:
    """The sets that each fold of a file leaves out."""
    if len(listed) > MOST_FOLDS:
        raise InputError(
            f"{path} has {len(listed)} folds, and each is a training of its own; put the sets in at most {MOST_FOLDS} "
            "lists."
        )
    folds = tuple(tuple(part for entry in sets for part in _parts(entry, groups, path)) for sets in listed)
    if not all(folds):
        raise InputError(f"a fold of {path} leaves nothing out; list public sets in it, or drop it.")
    return folds


def _expanded(fields: Mapping[str, Any], groups: Mapping[str, Sequence[str]], path: Path) -> dict[str, Any]:
    """Fields with the sources of a group in place of its name."""

    def replaced(source: str) -> str:
        return AND.join(_parts(source, groups, path))

    expanded = dict(fields)
    if "source" in expanded:
        expanded["source"] = replaced(expanded["source"])
    if isinstance(expanded.get("sources"), list):
        expanded["sources"] = [replaced(source) for source in expanded["sources"]]
    return expanded


def _parts(source: str, groups: Mapping[str, Sequence[str]], path: Path) -> list[str]:
    """The parts of a source, those of its groups included."""
    parts: list[str] = []
    for part in parts_of(source):
        if not part.startswith(_GROUP):
            parts.append(part)
        elif part.removeprefix(_GROUP) in groups:
            parts += groups[part.removeprefix(_GROUP)]
        else:
            raise InputError(f"{path} has no group {part!r}; list its sources under [groups], or correct the name.")
    return parts
