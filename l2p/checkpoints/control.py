"""The control of a protector: the constants that its networks extend, or the shipped protector that it was fine-tuned
from; and the budgets at which the protector shows no gain over it."""

import dataclasses
import itertools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from l2p.checkpoints.checkpoint import Checkpoint, find, load
from l2p.models import plain_name

#: Names of checkpoints that hold only constants begin with this.
CONTROL = "control"
#: A name and not a path, so that a checkpoint card cannot choose which files are read.
_NAME = re.compile(r"[\w,-]{1,100}")

Intervals = tuple[tuple[float, float], ...]


@dataclasses.dataclass(frozen=True)
class Control:
    """Stand-in for a protector where that is no better: the checkpoint that it was made from, by name.

    Attributes:
      name: of the checkpoint.
      checkpoint: as read.
      idle: intervals [low, high) of log(mu N) in which the protector gained nothing over it on fresh held-out tasks, or
        lost on those of one source.
      idle_for: by a model's name without a number of classes, further intervals in which it gained nothing on tasks of
        that model.
    """

    name: str
    checkpoint: Checkpoint = dataclasses.field(repr=False, compare=False)
    idle: Intervals = ()
    idle_for: Mapping[str, Intervals] = dataclasses.field(default_factory=dict)

    def is_level(self, log_signal: float, model: str) -> bool:
        """True if the protector showed no gain over it at a budget; `model` may name its number of classes."""
        idle = self.idle + self.idle_for.get(plain_name(model), ())
        return any(low <= log_signal < high for low, high in idle)


def control_of(card: Mapping[str, Any]) -> Control | None:
    """The control that a protector was warm-started from, if the one that ships under its name is still the same.

    A control has none itself, even if it was warm-started, because it has no networks. Any other checkpoint that a
    protector was warm-started from serves as its control too, if gains over it were measured.
    """
    name = card.get("config", {}).get("warm_start") or ""
    if not _NAME.fullmatch(name) or card["name"].startswith(CONTROL) or find(name) is None:
        return None
    control = load(name)
    is_fine_tuned = "gains" in card.get("held_out", {}) and set(card["models"]) <= set(control.card["models"])
    if not name.startswith(CONTROL) and not is_fine_tuned:
        return None
    # Of its parameters alone, since a meta-test changes the whole file.
    if card.get("warm_start_arrays_sha256") != control.arrays_sha256:
        return None
    gains = card.get("held_out", {}).get("gains")
    if gains is None:
        return Control(name, control)
    edges, by_model = gains["log_signal"], gains.get("by_model", {})
    idle_for = {model: _bands(edges, np.array(figures["mean"]) <= 0.0) for model, figures in by_model.items()}
    return Control(name, control, _bands(edges, _is_idle(gains)), idle_for)


def constants_checkpoint(name: str) -> Checkpoint:
    """The control of a shipped protector; the protector itself if it has none."""
    loaded = load(name)
    control = control_of(loaded.card)
    return loaded if control is None else control.checkpoint


def _is_idle(gains: Mapping[str, Any]) -> np.ndarray:
    """bool[bands], where networks gained nothing on all fresh tasks together, or lost on those of one source.

    Nobody knows which source a user's table is like, but its model is given. So gains by model, if there are any,
    count instead of those by source. No loss needs to be sure: models differ by about as much as their standard errors,
    so that the sign of the mean is the best guess of whether a model gains.
    """
    idle = np.array(gains["mean"]) <= 2 * np.array(gains["standard_error"])
    if "by_model" not in gains:
        for source in gains.get("by_source", {}).values():
            idle |= _lost(source)
    return idle


def _lost(gains: Mapping[str, Any]) -> np.ndarray:
    """bool[bands], where networks lost by more than two standard errors."""
    return np.array(gains["mean"]) < -2 * np.array(gains["standard_error"])


def _bands(edges: list[float], chosen: np.ndarray) -> Intervals:
    return tuple(band for band, is_chosen in zip(itertools.pairwise(edges), chosen, strict=True) if is_chosen)
