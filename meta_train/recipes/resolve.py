"""A recipe by name: the complete config that a checkpoint was or will be trained with.

Each TOML file in this folder holds one kind of protector: `[defaults]`, a row `[names.NAME]` for every checkpoint NAME,
and rows `[examples.NAME]` of which no checkpoint ships. A row names its kind of training, and sets fields of that
(`meta_train.config`). With `like = "NAME"` it starts from that row instead of the defaults. Where a recipe has changed
and its checkpoint has not been trained again, `shipped` has the fields that this was trained with. `tuned.toml` has
another layout, which `tuned.py` reads.

Under `[groups]` names stand for lists of sources: `@NAME` in `source`, `sources` or `[folds]` stands for all of them.
Under `[folds]`, `without` lists up to four lists of public sets, and each NAME of the file then has recipes
NAME-fold-1 and so on, which leave out the sets of the first list, of the second and so on, and start from the
same fold of their warm start if that is in the same file.
"""

import difflib
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.checkpoints.folds import fold_name
from l2p.checkpoints.overlaps import overlaps
from l2p.protectors import HAND_DESIGNED
from meta_train.config import MetaConfig, on_card
from meta_train.recipes import files, tuned
from meta_train.recipes.leave_out import left_out, sources_of
from meta_train.recipes.rows import FOLD, LIKE, Row, every

#: The folder of the files.
FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Every checkpoint that has a recipe."""
    return sorted([*_named("names"), *tuned.rows()])


def resolve(name: str, without: str | None = None, fold: int | None = None) -> MetaConfig:
    """The config of a checkpoint by its name.

    Args:
      name: of the checkpoint.
      without: a public set to leave out: NAME with its other sources, warm-started from a control that leaves the set
        out, too.
      fold: number of a fold, NAME-fold-K.

    Raises:
      InputError: there is no such recipe or fold, or it is not made from that set, or it is made from nothing else.

    >>> resolve("universal", without="adult").tasks.sources[5]
    'openml:segment+openml:vowel+digits+synthetic:rough:classes:7'
    """
    if fold is not None:
        count = num_folds(name)
        if not 1 <= fold <= count:
            raise InputError(f"recipe {name!r} has no fold {fold}; {_fold_choice(count)}.")
        name = fold_name(name, fold)
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
            f"{', '.join(sources_of(fields))}."
        )
    return files.from_fields({"name": _hold_out(name, without), **_without(fields, without)}, _rows()[name].path)


def num_folds(name: str) -> int:
    """The number of folds of a checkpoint's recipe.

    Raises:
      InputError: there is no such recipe.
    """
    if name not in [*names(), *_named("examples")]:
        raise _unknown(name)
    row = _rows().get(name)
    return len(row.folds) if row is not None and fold_name(name, 1) in _rows() else 0


def is_in_same_file(first: str, second: str) -> bool:
    """True if two recipes are rows of one file."""
    rows = _rows()
    return first in rows and second in rows and rows[first].path == rows[second].path


def like(name: str) -> MetaConfig:
    """The config on a checkpoint's card, named after its file.

    Raises:
      InputError: there is no such checkpoint, or l2p meta-train did not write it.
    """
    if name in HAND_DESIGNED:
        raise InputError(f"{name} is a hand-designed method, not a checkpoint; to tune it use {_tuning(name)}.")
    card, path = checkpoint.load(name).card, checkpoint.find(name)
    if path is None or "config" not in card:
        raise InputError(f"the card of {name} holds no config; pass a checkpoint that l2p meta-train wrote.")
    return on_card(card).but(name=path.name.removesuffix(checkpoint.SUFFIX))


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
    fields = first | {field: value for field, value in row.fields.items() if field not in (LIKE, FOLD)}
    return _in_fold(fields, row) if FOLD in row.fields else fields


def _without(fields: dict[str, Any], without: str) -> dict[str, Any]:
    """Fields of a recipe with a set left out of its sources and of those of its warm start."""
    fields = left_out(fields, [without])
    start = fields.get("warm_start")
    if start is not None and _is_made_from(start, without):
        fields["warm_start"] = _hold_out(start, without)
    return fields


def _in_fold(fields: dict[str, Any], row: Row) -> dict[str, Any]:
    """Fields of a recipe with the sets of a fold left out of its sources and of those of its warm start."""
    sets, number = row.folds[row.fields[FOLD] - 1], row.fields[FOLD]
    fields = left_out(fields, sets)
    start = fields.get("warm_start")
    if start is None:
        return fields
    fold = fold_name(start, number)
    if fold in _rows() and _rows()[fold].path == row.path:
        fields["warm_start"] = fold
    elif shared := [source for source in sets if _is_made_from(start, source)]:
        raise InputError(
            f"fold {number} of {row.fields[LIKE]} leaves out {', '.join(shared)}, but its warm start {start} is made "
            f"from it and has no such fold in {row.path.name}; put the recipe of {start} there, or start from another."
        )
    return fields


def _is_made_from(name: str, source: str) -> bool:
    """True if a recipe, or its warm start, has tasks that share rows with a set."""
    fields = _fields(name)
    start = fields.get("warm_start")
    return any(overlaps(part, [source]) for part in sources_of(fields)) or (
        start is not None and _is_made_from(start, source)
    )


def _hold_out(name: str, without: str) -> str:
    """The name of a recipe that leaves one set out."""
    return f"{name}-no-{without.replace(':', '-')}"


def _fold_choice(count: int) -> str:
    """Advice in place of a fold that a recipe does not have."""
    if count:
        return f"choose one from 1 to {count}"
    return "its file lists no [folds]; leave one set out with --without"


def _rows() -> dict[str, Row]:
    """Every row by name, folds included."""
    return every(FOLDER)
