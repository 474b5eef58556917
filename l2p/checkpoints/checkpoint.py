"""Frozen protectors by name, each a `.safetensors` file with a checkpoint card in its metadata."""

import contextlib
import dataclasses
import datetime
import difflib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from l2p.base.errors import InputError
from l2p.base.json_fields import strict, violation
from l2p.base.versions import versions
from l2p.checkpoints.checkpoint_card import SCHEMA, check_checkpoint_card
from l2p.checkpoints.method_name import SUFFIX, TUNED, is_file
from l2p.checkpoints.shipped import index
from l2p.checkpoints.structure import decode, encode
from l2p.protectors import HAND_DESIGNED
from l2p.run.protector import Protector

#: Files one folder further down.
_BELOW = f"*/*{SUFFIX}"
#: Larger files are not read; this is hundreds of times the largest protector that ships.
MAX_BYTES = 2**27
#: The number formats of a checkpoint's arrays, as safetensors calls them.
_FLOATS = {"F32": "<f4", "F64": "<f8"}
_PACKAGE = Path(__file__).resolve().parents[1]
#: The folder inside an installed wheel.
CARRIED = _PACKAGE / "_checkpoints"
#: Folders to look names up in, in order: the checkout's two folders, then the installed one. Checkpoints for users lie
#: directly in a folder; those of comparisons and studies lie one folder further down, and a wheel has some of them.
FOLDERS = (_PACKAGE.parent / "checkpoints", _PACKAGE.parent / "benchmarks" / "checkpoints", CARRIED)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A protector as loaded.

    Attributes:
      protector: ready to run.
      card: the checkpoint card: name, structure, models, sources (public data sets it was made from) and further fields
        of its maker, such as accountant, range {log_signal: [low, high], num_features: [low, high]}, budgets, seed,
        command, steps.
      sha256: of the file.
      arrays_sha256: of its parameters alone, without the card.
    """

    protector: Protector
    card: dict[str, Any]
    sha256: str
    arrays_sha256: str


def save(protector: Protector, path: str | Path, card: Mapping[str, Any]) -> None:
    """Write `protector` to `path`, completely or not at all.

    Args:
      card: the checkpoint card; must hold `sources`; `name` defaults to the file's, `models` to the protector's, and
        `versions` and `created` to the current ones; `structure` is filled in.

    Raises:
      InputError: a field has a value that `load` would refuse.

    >>> import tempfile
    >>> from l2p.privacy.budget import Budget
    >>> from l2p.protectors import HAND_DESIGNED
    >>> path = Path(tempfile.mkdtemp(), "mine.safetensors")
    >>> save(HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5)), path, {"sources": ["adult"]})
    >>> load(path).protector.num_steps, load(path).card["name"]
    (50, 'mine')
    """
    path = Path(path)
    arrays: dict[str, np.ndarray] = {}
    defaults = {
        "name": path.name.removesuffix(SUFFIX),
        "models": list(protector.models),
        "versions": versions(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    full = {**defaults, **card, "structure": encode(protector, arrays)}
    if broken := violation(full, SCHEMA):
        raise ValueError(f"a checkpoint card needs `name`, `models`, `sources` and so on: {': '.join(broken)}.")
    try:
        decode(full["structure"], arrays)
    except InputError as error:
        raise InputError(f"the protector cannot be saved, because {error}; correct the field.") from error
    payload = safetensors.numpy.save(arrays, {"card": json.dumps(full, allow_nan=False)})
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(payload)
    part.replace(path)


def load(name: str | Path) -> Checkpoint:
    """A checkpoint by name (looked up in `FOLDERS`) or by the path of its file.

    Raises:
      InputError: there is no such checkpoint, or the file is unreadable, was not written by l2p or is damaged.
    """
    path = find(name)
    if path is None:
        raise unknown_name(str(name))
    with _unreadable(path):
        content = path.read_bytes()
        parts = safetensors.deserialize(content)
    header = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + header]).get("__metadata__", {})
    card, arrays = _card_in(metadata, path), _arrays(parts, path)
    try:
        protector = decode(card["structure"], arrays)
        if isinstance(protector, Protector) and (unknown := arrays.keys() - _paths(protector)):
            raise InputError(f"it holds the array {min(unknown)[:60]!r}, which its checkpoint card does not mention")
    except InputError as error:
        raise InputError(
            f"the checkpoint {path} cannot be rebuilt, because {error}; fetch it again or update l2p."
        ) from error
    if not isinstance(protector, Protector):
        raise InputError(f"checkpoint {path} holds only a part of a protector; save the whole protector.")
    return Checkpoint(protector, card, _sha256(content), _sha256(content[8 + header :]))


def _arrays(parts: Sequence[tuple[str, dict[str, Any]]], path: Path) -> dict[str, np.ndarray]:
    """The arrays of the file at `path`, as they were deserialized."""
    for name, part in parts:
        if part["dtype"] not in _FLOATS or len(part["shape"]) > 2:
            raise InputError(
                f"the checkpoint {path} cannot be rebuilt, because its array {name[:60]!r} holds {part['dtype']} in "
                f"{len(part['shape'])} dimensions, where up to two of {' or '.join(_FLOATS)} belong; fetch it again or "
                "update l2p."
            )
    return {name: np.frombuffer(part["data"], _FLOATS[part["dtype"]]).reshape(part["shape"]) for name, part in parts}


def _paths(protector: Any) -> set[str]:
    """The paths at which `encode` puts the arrays of a protector."""
    arrays: dict[str, np.ndarray] = {}
    encode(protector, arrays)
    return set(arrays)


def unknown_name(name: str) -> InputError:
    """The error about an unknown protector, with the names to choose from."""
    # Tuned settings are asked for as METHOD:tuned, without the set that they were tuned on.
    suffixed = sorted({shipped.split("-tuned-")[0] + TUNED for shipped in names() if "-tuned-" in shipped})
    options = [*HAND_DESIGNED, *(shipped for shipped in first_floor() if "-tuned-" not in shipped), *suffixed]
    near = difflib.get_close_matches(name, [*options, *names()], n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return InputError(
        f"protector {name!r} is unknown{meant}; choose one of {', '.join(options)}, or pass a checkpoint's file."
        + study_hint()
    )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def find(name: str | Path) -> Path | None:
    """The file of a checkpoint: `name` itself if it is a path, else the first of that name in `FOLDERS`."""
    name = str(name)
    return Path(name) if is_file(name) else _files().get(name)


def about(name: str) -> str:
    """One line on a checkpoint for users; empty if its folder has none."""
    return next((line for folder in FOLDERS if (line := index(folder).about.get(name))), "")


def digest(name: str) -> str:
    """SHA-256 of a checkpoint's file, by its name in `FOLDERS`."""
    path = find(name)
    assert path is not None
    return _sha256(path.read_bytes())


def available() -> list[dict[str, Any]]:
    """The checkpoint card of every checkpoint in `FOLDERS`, under its file's name; of two with one name, the first."""
    return [{**read_checkpoint_card(path), "name": name} for name, path in sorted(_files().items())]


def names() -> list[str]:
    """Names of every checkpoint in `FOLDERS`."""
    return sorted(_files())


def first_floor() -> list[str]:
    """Names of the checkpoints for users, in the order in which they are listed."""
    listed = [name for folder in FOLDERS for name in index(folder).about]
    direct = {name for name, path in _files().items() if path.parent in FOLDERS}
    return [*(name for name in dict.fromkeys(listed) if name in direct), *sorted(direct.difference(listed))]


def study_hint() -> str:
    """A sentence, with a space before it, on how to get the checkpoints that reproduce single studies; empty where they
    are: everywhere but in an installed package, which carries folds and tuned settings alone."""
    if any(folder != CARRIED and any(folder.glob(_BELOW)) for folder in FOLDERS):
        return ""
    return (
        " What single studies need is in the repository's benchmarks/checkpoints, where an installed l2p does not "
        "look, even if it is started there: in a clone type `python -m l2p` in place of `l2p`, or pass the file's path."
    )


@contextlib.contextmanager
def looking_in(folders: Sequence[Path]) -> Iterator[None]:
    """Look names up in these folders first, and then in `FOLDERS`."""
    global FOLDERS
    before = FOLDERS
    FOLDERS = (*folders, *before)
    try:
        yield
    finally:
        FOLDERS = before


def _files() -> dict[str, Path]:
    """Every checkpoint in `FOLDERS` by name; the first of two with one name hides the other."""
    files = {}
    for folder in reversed(FOLDERS):
        for pattern in (_BELOW, f"*{SUFFIX}"):
            files |= {path.name.removesuffix(SUFFIX): path for path in folder.glob(pattern)}
    return files


def read_checkpoint_card(path: Path) -> dict[str, Any]:
    """The checkpoint card of the file at `path`, without reading its arrays."""
    with _unreadable(path), safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
    return _card_in(metadata, path)


@contextlib.contextmanager
def _unreadable(path: Path) -> Iterator[None]:
    """Refuse a file that is none, is too large or is not laid out as safetensors are; `InputError`."""
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is not a file")
        if path.stat().st_size > MAX_BYTES:
            raise OSError(f"it is larger than {MAX_BYTES >> 20} MiB, and no protector is that large")
        yield
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"the checkpoint {path} cannot be read ({error}); pass a {SUFFIX} file.") from error


def _card_in(metadata: Mapping[str, str], path: Path) -> dict[str, Any]:
    try:
        card = strict(metadata.get("card", "null"))
    except ValueError as error:
        raise InputError(
            f"{path} is not an l2p checkpoint, because its card is not JSON ({error}); pass one that l2p wrote."
        ) from error
    return check_checkpoint_card(card, path)
