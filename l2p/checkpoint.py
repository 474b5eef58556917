"""Frozen protectors by name, each a `.safetensors` file with a card in its metadata."""

import dataclasses
import datetime
import difflib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from l2p import checkpoint_card
from l2p.errors import InputError
from l2p.json_fields import strict, violation
from l2p.privacy.card import versions
from l2p.protector import Protector
from l2p.protectors import HAND_DESIGNED
from l2p.structure import decode, encode

SUFFIX = ".safetensors"
#: A protector of this many bytes would be hundreds of times the largest that ships; a larger file is not read.
MOST_BYTES = 2**27
#: The number formats of a checkpoint's arrays, as safetensors calls them.
_FLOATS = ("F32", "F64")
#: Ends the name of a method whose fields were tuned on public data.
TUNED = ":tuned"
_HERE = Path(__file__).resolve().parent
#: Where names are looked up, in order: the checkout's folder, then the one inside an installed wheel.
FOLDERS = (_HERE.parent / "checkpoints", _HERE / "_checkpoints")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A protector as loaded.

    Attributes:
      protector: ready to run.
      card: name, structure, models, sources (public data sets it was made from) and whatever else its maker wrote,
        such as accountant, range {log_signal: [low, high], num_features: [low, high]}, budgets, seed, command, steps.
      sha256: of the file.
      arrays_sha256: of its parameters alone, whatever the card says.
    """

    protector: Protector
    card: dict[str, Any]
    sha256: str
    arrays_sha256: str


def save(protector: Protector, path: str | Path, card: Mapping[str, Any]) -> None:
    """Write `protector` to `path`, whole or not at all.

    Args:
      card: must hold `sources`; `name` defaults to the file's, `models` to the protector's, and `versions` and
        `created` to those of now; `structure` is filled in.

    Raises:
      InputError: a field holds what `load` would refuse.

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
    if broken := violation(full, checkpoint_card.SCHEMA):
        raise ValueError(f"a checkpoint's card needs `name`, `models`, `sources` and so on: {': '.join(broken)}.")
    try:
        decode(full["structure"], arrays)
    except InputError as error:
        raise InputError(f"the protector cannot be saved, for {error}; mend the field.") from error
    payload = safetensors.numpy.save(arrays, {"card": json.dumps(full, allow_nan=False)})
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(payload)
    part.replace(path)


def load(name: str | Path) -> Checkpoint:
    """A checkpoint by name (looked up in `FOLDERS`) or by the path of its file.

    Raises:
      InputError: there is no such checkpoint, or the file is unreadable, is none of ours or is damaged.
    """
    path = find(name)
    if path is None:
        # Settings that were tuned are asked for as METHOD:tuned, whatever they were tuned on.
        shipped = names()
        known = [*HAND_DESIGNED, *(one for one in shipped if "-tuned-" not in one)]
        suffixed = sorted({one.split("-tuned-")[0] + TUNED for one in shipped if "-tuned-" in one})
        near = difflib.get_close_matches(str(name), [*known, *suffixed], n=1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise InputError(
            f"protector {str(name)!r} is unknown{meant}; choose one of {', '.join([*known, *suffixed])}, or pass a "
            "checkpoint's file."
        )
    card, arrays = read_card(path), _arrays(path)
    try:
        protector = decode(card["structure"], arrays)
        if isinstance(protector, Protector) and (unknown := arrays.keys() - _paths(protector)):
            raise InputError(f"it holds the array {min(unknown)[:60]!r}, of which its card says nothing")
    except InputError as error:
        raise InputError(
            f"the checkpoint {path} cannot be rebuilt, for {error}; fetch it again or update l2p."
        ) from error
    if not isinstance(protector, Protector):
        raise InputError(f"checkpoint {path} holds no protector but part of one; save the whole protector.")
    content = path.read_bytes()
    header = int.from_bytes(content[:8], "little")
    return Checkpoint(protector, card, _sha256(content), _sha256(content[8 + header :]))


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of the file at `path`, whose header can be read."""
    with safetensors.safe_open(path, framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 - the file is no mapping
            kind = file.get_slice(name).get_dtype()
            if kind not in _FLOATS or len(file.get_slice(name).get_shape()) > 2:
                raise InputError(
                    f"the checkpoint {path} cannot be rebuilt, for its array {name[:60]!r} holds {kind} in "
                    f"{len(file.get_slice(name).get_shape())} dimensions, where up to two of {' or '.join(_FLOATS)} "
                    "belong; fetch it again or update l2p."
                )
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _paths(protector: Any) -> set[str]:
    """Where `encode` puts the arrays of a protector."""
    arrays: dict[str, np.ndarray] = {}
    encode(protector, arrays)
    return set(arrays)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def find(name: str | Path) -> Path | None:
    """The file of a checkpoint: `name` itself if it is a path, else the first of that name in `FOLDERS`."""
    name = str(name)
    if is_path(name):
        return Path(name)
    # Unlike `Path.is_file`, it has an answer for names that no file can have.
    return next((path for path in (folder / (name + SUFFIX) for folder in FOLDERS) if os.path.isfile(path)), None)


def is_path(name: str) -> bool:
    """Whether a name is that of a file and not of a checkpoint in `FOLDERS`."""
    return name.endswith(SUFFIX) or os.sep in name


def digest(name: str) -> str:
    """SHA-256 of a checkpoint's file, by its name in `FOLDERS`."""
    path = find(name)
    assert path is not None
    return _sha256(path.read_bytes())


def available() -> list[dict[str, Any]]:
    """The cards of every checkpoint in `FOLDERS`, by name; the first of two with one name hides the other."""
    return [read_card(path) for name in names() if (path := find(name)) is not None]


def names() -> list[str]:
    """Names of every checkpoint in `FOLDERS`."""
    return sorted({path.name.removesuffix(SUFFIX) for folder in FOLDERS for path in folder.glob(f"*{SUFFIX}")})


def read_card(path: Path) -> dict[str, Any]:
    """The card of the checkpoint at `path`, without reading its arrays."""
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no file")
        if path.stat().st_size > MOST_BYTES:
            raise OSError(f"it is larger than {MOST_BYTES >> 20} MiB, and no protector is")
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"the checkpoint {path} cannot be read ({error}); pass a {SUFFIX} file.") from error
    try:
        card = strict(metadata.get("card", "null"))
    except ValueError as error:
        raise InputError(
            f"{path} is not an l2p checkpoint, for its card is no JSON ({error}); pass one that l2p wrote."
        ) from error
    return checkpoint_card.check(card, path)
