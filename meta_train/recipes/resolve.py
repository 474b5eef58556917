"""A recipe by name: the complete config that a checkpoint was or will be trained with.

Each TOML file in this folder holds one kind of protector: `[defaults]`, a row `[names.NAME]` for every checkpoint NAME,
rows `[examples.NAME]` of which no checkpoint ships, and rows `[templates.NAME]` that other rows start from. A row sets
fields of `MetaConfig`. With `like = "NAME"` it starts from that row instead of the defaults; `without = "SET"` then
leaves a public set out. `tuned.toml` has another layout, which `tuned.py` reads.
"""

import dataclasses
import difflib
import functools
import tomllib
from pathlib import Path
from typing import Any

from l2p.checkpoints import checkpoint
from l2p.checkpoints.overlaps import overlaps
from l2p.errors import InputError
from l2p.protectors import HAND_DESIGNED
from meta_train.config import MetaConfig
from meta_train.recipes import files, tuned
from meta_train.tasks.sources import AND, parts_of

#: Keys of a row that are not fields of the config.
LIKE, WITHOUT = "like", "without"


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a recipe file.

    Attributes:
      path: of the file.
      defaults: of all of its rows.
      fields: its own.
      kind: "names" if a checkpoint of it ships, "examples" if none does, "templates" if it is no recipe by itself.
    """

    path: Path
    defaults: dict[str, Any]
    fields: dict[str, Any]
    kind: str


def names() -> list[str]:
    """Every checkpoint that has a recipe."""
    return sorted([*_named("names"), *tuned.rows()])


def resolve(name: str, without: str | None = None) -> MetaConfig:
    """The config of a checkpoint by its name, old or new.

    Args:
      name: of the checkpoint.
      without: a public set to leave out: the row NAME-no-SET if there is one, else NAME with what is left of its source
        and warm-started from a control that leaves the set out, too.

    Raises:
      InputError: there is no such recipe, or it is not made from that set, or it is made from nothing else.

    >>> resolve("universal", without="adult").source
    'ipums_br+mnist:rest:+digits:rest:+breast_cancer+synthetic'
    """
    name = checkpoint.canonical(name)
    if without is not None and _fold(name, without) in names():
        name, without = _fold(name, without), None
    if name not in [*names(), *_named("examples")]:
        raise _unknown(name)
    if name in tuned.rows():
        if without is not None:
            raise InputError(f"{name} is made from one set; choose another one with --recipe tuned --source.")
        return tuned.config_for(*tuned.rows()[name])
    if without is None:
        return files.from_fields({"name": name, **_fields(name)}, _rows()[name].path)
    fields = _fields(name)
    if not _is_made_from(name, without):
        raise InputError(
            f"recipe {name!r} is not made from {without}, so there is nothing to leave out; its sources are "
            f"{', '.join(_parts(fields))}."
        )
    return files.from_fields({"name": _fold(name, without), **_left_out(fields, without)}, _rows()[name].path)


def like(name: str) -> MetaConfig:
    """The config on a checkpoint's card, named after its file, with an old name of its warm start resolved.

    Raises:
      InputError: there is no such checkpoint, or l2p meta-train did not write it.
    """
    if name in HAND_DESIGNED:
        raise InputError(f"{name} is a hand-designed method, not a checkpoint; to tune it use {_tuning(name)}.")
    card, path = checkpoint.load(name).card, checkpoint.find(name)
    if path is None or "config" not in card:
        raise InputError(f"the card of {name} holds no config; pass a checkpoint that l2p meta-train wrote.")
    config = MetaConfig.from_json(card["config"])
    start = config.warm_start and checkpoint.canonical(config.warm_start)
    return dataclasses.replace(config, name=path.name.removesuffix(checkpoint.SUFFIX), warm_start=start)


def _unknown(name: str) -> InputError:
    near = difflib.get_close_matches(name, [*names(), *_named("examples")], n=1)
    meant = _tuning(name) if name in HAND_DESIGNED else repr(near[0]) if near else None
    return InputError(
        f"there is no recipe {name!r}{f' (did you mean {meant}?)' if meant else ''}; name a checkpoint (l2p protectors "
        "--all lists them), or pass a config."
    )


def _named(kind: str) -> list[str]:
    """Names of the rows of a kind."""
    return [name for name, row in _rows().items() if row.kind == kind]


def _tuning(method: str) -> str:
    return f"--recipe {tuned.RECIPE} --method {method}"


def _fields(name: str) -> dict[str, Any]:
    """The fields of a row and of the rows that it starts from."""
    row = _rows()[name]
    first = _fields(row.fields[LIKE]) if LIKE in row.fields else row.defaults
    fields = first | {field: value for field, value in row.fields.items() if field not in (LIKE, WITHOUT)}
    return _left_out(fields, row.fields[WITHOUT]) if WITHOUT in row.fields else fields


def _left_out(fields: dict[str, Any], without: str) -> dict[str, Any]:
    """Fields of a recipe with a set left out of its source and of the source of its warm start."""
    kept = [part for part in _parts(fields) if not overlaps(part, [without])]
    if not kept:
        raise InputError(f"no source is left for tasks without {without}; choose another recipe or set.")
    fields = fields | {"source": AND.join(kept)}
    start = fields.get("warm_start")
    if start is not None and (_fold(start, without) in _rows() or _is_made_from(start, without)):
        fields["warm_start"] = _fold(start, without)
    return fields


def _is_made_from(name: str, source: str) -> bool:
    """Whether a recipe, or its warm start, has tasks that share rows with a set."""
    fields = _fields(name)
    start = fields.get("warm_start")
    return any(overlaps(part, [source]) for part in _parts(fields)) or (
        start is not None and _is_made_from(start, source)
    )


def _parts(fields: dict[str, Any]) -> tuple[str, ...]:
    return parts_of(fields.get("source", MetaConfig.source))


def _fold(name: str, without: str) -> str:
    """The name of a recipe that leaves a set out."""
    return f"{name}-no-{without.replace(':', '-')}"


@functools.cache
def _rows() -> dict[str, Row]:
    """Every row by name, templates included."""
    found: dict[str, Row] = {}
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        if path != tuned.FILE:
            file = tomllib.loads(path.read_text(encoding="utf-8"))
            for kind in ("names", "examples", "templates"):
                for name, row in file.get(kind, {}).items():
                    found[name] = Row(path, file["defaults"], row, kind)
    return found
