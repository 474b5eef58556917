"""What networks gain on classes that they have never seen: trainings that leave some out, beside the one that ships.

What is learned of some pairs of digits may hold for those pairs alone, and fresh rows of them do not tell. So the
classes of every fold are kept out of one training and of its directions, and its gains are measured on tasks of these.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from l2p import checkpoint
from meta_train.config import MetaConfig
from meta_train.judge import rounded

#: The training on all classes, beside those that are named by what they leave out.
WHOLE = "all"


def trials(config: MetaConfig) -> dict[str, MetaConfig]:
    """The trainings by the folders that they run in: one for each fold, and the one that ships.

    >>> whole = {"source": "mnist:rest:3,5", "num_features": None, "fresh_rows": True, "gain_rounds": 1}
    >>> found = trials(MetaConfig("x", "universal", folds=((0, 1), (7, 9)), **whole))
    >>> [(name, trial.unseen) for name, trial in found.items()]
    [('unseen-0,1', (0, 1)), ('unseen-7,9', (7, 9)), ('all', None)]
    """
    assert config.folds is not None
    folds = {
        f"unseen-{_said(fold)}": dataclasses.replace(config, folds=None, unseen=tuple(fold)) for fold in config.folds
    }
    return folds | {WHOLE: dataclasses.replace(config, folds=None)}


def ship_whole(config: MetaConfig, trained: dict[str, Path], out: Path) -> Path:
    """Write what was trained on all classes to `out/NAME.safetensors`, with the gains of those trained on some.

    `held_out` has its scores on held-out rows; `gains` the mean over folds, of which `tasks` counts each once, with the
    standard error between them, and `by_fold` those of each. `seconds` is the time of all trainings together.
    """
    assert config.folds is not None
    cards = {name: checkpoint.read_card(path) for name, path in trained.items()}
    whole = cards.pop(WHOLE)
    found = [card["held_out"]["gains"] for card in cards.values()]
    means = np.array([gains["mean"] for gains in found])
    gains = {
        "log_signal": found[0]["log_signal"],
        "mean": rounded(means.mean(0), 5),
        # Tasks of one fold have their classes in common, so folds are what varies, and not tasks.
        "standard_error": rounded(means.std(0, ddof=1) / len(means) ** 0.5, 5),
        "tasks": len(means),
        "by_fold": {
            _said(fold): {name: one[name] for name in ("mean", "standard_error", "tasks")}
            for fold, one in zip(config.folds, found, strict=True)
        },
    }
    every = (whole, *cards.values())
    card: dict[str, Any] = {
        **whole,
        "config": config.__dict__,
        "held_out": {**whole["held_out"], "gains": gains},
        "seconds": round(sum(card["seconds"] for card in every), 1),
        "peak_memory_mib": max(card["peak_memory_mib"] for card in every),
    }
    path = out / f"{config.name}.safetensors"
    checkpoint.save(checkpoint.load(trained[WHOLE]).protector, path, card)
    return path


def _said(fold: tuple[int, ...]) -> str:
    return ",".join(str(label) for label in fold)
