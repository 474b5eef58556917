"""What a training gained over what it started from, said for people."""

import itertools
from pathlib import Path

import chex
import numpy as np

from l2p.checkpoints import checkpoint
from l2p.checkpoints.control import control_of
from l2p.checkpoints.signal import epsilon_for
from l2p.data.own import is_own
from l2p.privacy.budget import Budget
from l2p.protector import Protector
from meta_train.config import MetaConfig
from meta_train.tasks import own_tables

#: A table that says what budgets a band is, for people: rows, and delta.
SAID_ROWS, SAID_DELTA = 10_000, 1e-6


def gained(path: Path, config: MetaConfig, start: Protector) -> list[str]:
    """What a trained protector gained over its start by its card, in lines for people; none if that was not asked."""
    found = checkpoint.load(path)
    gains = found.card["held_out"].get("gains")
    if gains is None or config.warm_start is None:
        return []
    try:
        chex.assert_trees_all_equal(found.protector, start)
    except AssertionError:
        pass
    else:
        return [f"{config.warm_start} was kept: no state of the training scored better on held-out tasks in any band."]
    control = control_of(found.card)
    lines = [f"excess loss on held-out tasks against {config.warm_start} (with one standard error):"]
    bands = itertools.pairwise(gains["log_signal"])
    for (low, high), mean, error in zip(bands, gains["mean"], gains["standard_error"], strict=True):
        is_idle = control is not None and any(start <= low < end for start, end in control.idle)
        kept = f"; {config.warm_start} runs here" if is_idle else ""
        lines.append(f"  epsilon {_epsilon(low)} to {_epsilon(high)}: {_change(mean, error)}{kept}")
    lines[1] += f" (for {SAID_ROWS:,} rows at delta {SAID_DELTA:g})"
    for source, one in gains.get("by_source", {}).items():
        error = float(np.linalg.norm(one["standard_error"])) / len(one["mean"])
        name = own_tables.find(source).name if is_own(source) else source
        lines.append(f"  {name}, over all of these: {_change(float(np.mean(one['mean'])), error)}")
    if control is not None and len(control.idle) == len(gains["mean"]):
        lines.append(f"{config.warm_start} is kept everywhere: gains are within two standard errors of none.")
    return lines


def _epsilon(log_signal: float) -> str:
    found = epsilon_for(log_signal, "gdp", Budget(1.0, SAID_DELTA), SAID_ROWS)
    return "beyond any" if found is None else f"{found:.2g}"


def _change(mean: float, error: float) -> str:
    """A gain in log excess loss as a change of the excess loss.

    >>> _change(0.1, 0.02), _change(-0.01, 0.02)
    ('-9.5 % (1.8)', '+1.0 % (2.0)')
    """
    ratio = float(np.exp(-mean))
    return f"{100 * (ratio - 1):+.1f} % ({100 * ratio * error:.1f})"
