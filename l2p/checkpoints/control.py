"""What a protector was made from, and where it shows no gain over that: the constants that its networks extend, or the
shipped protector that it was fine-tuned from."""

import dataclasses
import itertools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from l2p.checkpoints.checkpoint import canonical, find, load

#: Names of checkpoints that hold only constants begin with this.
CONTROL = "control"
#: A name and not a path, so that a checkpoint card cannot choose which files are read.
_NAME = re.compile(r"[\w,-]{1,100}")


@dataclasses.dataclass(frozen=True)
class Control:
    """What runs in a protector's place where it is no better: the checkpoint that it was made from, by name.

    Attributes:
      name: of the checkpoint.
      idle: intervals [low, high) of log(mu N) in which the protector gained nothing over it on fresh held-out tasks, or
        lost on those of one source.
    """

    name: str
    idle: tuple[tuple[float, float], ...] = ()

    def is_level(self, log_signal: float) -> bool:
        """Whether the protector is known to gain nothing over it at a budget."""
        return any(low <= log_signal < high for low, high in self.idle)


def control_of(card: Mapping[str, Any]) -> Control | None:
    """The control that a protector was warm-started from, if the one that ships under its name is still the same.

    A control itself has none, whatever it was warm-started from, because it has no networks. Any other checkpoint that
    a protector was warm-started from serves as its control too, if gains over it are known.
    """
    name = canonical(card.get("config", {}).get("warm_start") or "")
    if not _NAME.fullmatch(name) or card["name"].startswith(CONTROL) or find(name) is None:
        return None
    control = load(name)
    is_fine_tuned = "gains" in card.get("held_out", {}) and control.card["models"] == card["models"]
    if not name.startswith(CONTROL) and not is_fine_tuned:
        return None
    # Older checkpoint cards hold the hash of the control's whole file, which a meta-test changes; later ones that of
    # its parameters.
    then, now = card.get("warm_start_sha256"), control.sha256
    if "warm_start_arrays_sha256" in card:
        then, now = card["warm_start_arrays_sha256"], control.arrays_sha256
    if then != now:
        return None
    gains = card.get("held_out", {}).get("gains")
    return Control(name) if gains is None else Control(name, _idle(gains))


def _idle(gains: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """Bands of log(mu N) in which networks gained nothing on all fresh tasks together, or lost on those of one
    source."""
    means, errors = np.array(gains["mean"]), np.array(gains["standard_error"])
    idle = means <= 2 * errors
    for source in gains.get("by_source", {}).values():
        idle |= np.array(source["mean"]) < -2 * np.array(source["standard_error"])
    return tuple(band for band, is_idle in zip(itertools.pairwise(gains["log_signal"]), idle, strict=True) if is_idle)
