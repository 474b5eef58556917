"""How far the head of a scheduler's network still moves as its training goes on."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from l2p.protectors import LSTMScheduler, Stepwise
from l2p.run.protector import Protector

#: In a line of the log: the head's weights and bias after that step; on the card: how far they moved.
HEAD, MOVED = "scheduler_head", "scheduler_head_moved"
#: Parts of a training.
PARTS = 10


def head_of(protector: Protector) -> dict[str, list[float]]:
    """Weights and bias of the head of a scheduler that is an LSTM, for the log; nothing of others."""
    if not isinstance(protector, Stepwise) or not isinstance(protector.scheduler, LSTMScheduler):
        return {}
    head = protector.scheduler.network["head"]
    return {HEAD: [round(float(weight), 6) for name in ("kernel", "bias") for weight in np.ravel(head[name])]}


def head_moved(lines: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Changes of the head over each tenth of a training that it logged, as shares of its last L2 norm, for the card.

    The learning rate falls to zero at the end, so that little change in the last tenth says something only where there
    is little in those before, too. Between two lines that have the head it counts as having moved evenly.

    >>> head_moved([{"step": step, "scheduler_head": [min(step, 49) + 1.0]} for step in range(9, 100, 10)])
    {'scheduler_head_moved': [0.2, 0.2, 0.2, 0.2, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0]}
    """
    logged = [line for line in lines if HEAD in line]
    if not logged:
        return {}
    # It starts at zero, but for a warm start, whose first part is then no change to read anything from.
    heads = np.array([np.zeros(len(logged[0][HEAD])), *(line[HEAD] for line in logged)])
    ends = [0.0, *(line["step"] + 1.0 for line in logged)]
    at = np.linspace(0.0, ends[-1], PARTS + 1)
    along = np.array([np.interp(at, ends, weights) for weights in heads.T]).T
    moved = np.linalg.norm(np.diff(along, axis=0), axis=1) / max(float(np.linalg.norm(heads[-1])), 1e-12)
    return {MOVED: [round(float(share), 4) for share in moved]}
