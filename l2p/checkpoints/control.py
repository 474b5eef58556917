"""The constants-only baseline that a protector's networks extend, and where the networks show no gain over it."""

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
_CONTROL = re.compile(CONTROL + r"[\w,-]{0,100}")


@dataclasses.dataclass(frozen=True)
class Control:
    """The constants-only baseline that a protector's networks extend, by the name of its checkpoint.

    Attributes:
      name: of the checkpoint.
      idle: intervals [low, high) of log(mu N) in which the networks gained nothing on fresh held-out tasks, or lost on
        those of one of their sources.
    """

    name: str
    idle: tuple[tuple[float, float], ...] = ()

    def is_level(self, log_signal: float) -> bool:
        """Whether the networks are known to gain nothing over these constants at a budget."""
        return any(low <= log_signal < high for low, high in self.idle)


def control_of(card: Mapping[str, Any]) -> Control | None:
    """The control that a protector was warm-started from, if the one that ships under its name is still the same.

    A control itself has none, because it has no networks.
    """
    name = canonical(card.get("config", {}).get("warm_start") or "")
    if not _CONTROL.fullmatch(name) or card["name"].startswith(CONTROL) or find(name) is None:
        return None
    control = load(name)
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
