"""Frozen protectors by name, each a `.safetensors` file with a card in its metadata."""

import dataclasses
import datetime
import difflib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import safetensors
import safetensors.numpy

from l2p.errors import InputError
from l2p.privacy.card import versions
from l2p.protector import Protector
from l2p.protectors import HAND_DESIGNED
from l2p.structure import decode, encode

SUFFIX = ".safetensors"
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
    if not _is_card(full):
        raise ValueError("a checkpoint's card needs `name`, and `models` and `sources` as lists of names.")
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
    card = read_card(path)
    try:
        protector = decode(card["structure"], safetensors.numpy.load_file(path))
    except InputError as error:
        raise InputError(
            f"the checkpoint {path} cannot be rebuilt, for {error}; fetch it again or update l2p."
        ) from error
    if not isinstance(protector, Protector):
        raise InputError(f"checkpoint {path} holds no protector but part of one; save the whole protector.")
    content = path.read_bytes()
    header = int.from_bytes(content[:8], "little")
    return Checkpoint(protector, card, _sha256(content), _sha256(content[8 + header :]))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def find(name: str | Path) -> Path | None:
    """The file of a checkpoint: `name` itself if it is a path, else the first of that name in `FOLDERS`."""
    name = str(name)
    if name.endswith(SUFFIX) or os.sep in name:
        return Path(name)
    return next((path for path in (folder / (name + SUFFIX) for folder in FOLDERS) if path.is_file()), None)


def available() -> list[dict[str, Any]]:
    """The cards of every checkpoint in `FOLDERS`, by name; the first of two with one name hides the other."""
    return [read_card(path) for name in names() if (path := find(name)) is not None]


def names() -> list[str]:
    """Names of every checkpoint in `FOLDERS`."""
    return sorted({path.name.removesuffix(SUFFIX) for folder in FOLDERS for path in folder.glob(f"*{SUFFIX}")})


def read_card(path: Path) -> dict[str, Any]:
    """The card of the checkpoint at `path`, without reading its arrays."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"the checkpoint {path} cannot be read ({error}); pass a {SUFFIX} file.") from error
    try:
        card = json.loads(metadata.get("card", "null"))
    except ValueError:
        card = None
    if not _is_card(card) or "structure" not in card:
        raise InputError(
            f"{path} is not an l2p checkpoint, for it carries no protector's card; pass one that l2p wrote."
        )
    return card


def _is_card(card: Any) -> TypeGuard[dict[str, Any]]:
    def is_names(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(name, str) for name in value)

    return (
        isinstance(card, dict)
        and isinstance(card.get("name"), str)
        and is_names(card.get("models"))
        and is_names(card.get("sources"))
    )
