"""Checkpoint files that tests write to their own folders."""

import jax

from l2p.checkpoints import checkpoint
from meta_train.training.untrained import BUILDERS

CARD = {
    "models": ["logistic"],
    "sources": ["adult"],
    "accountant": None,
    "range": {"log_signal": [0.7, 8.7], "num_features": [24, 104]},
}


def write_checkpoint(folder, name, protector=None, **card):
    """Write `protector`, or a fresh control, to `folder` with `CARD` overridden by `card`; returns its path."""
    path = folder / f"{name}.safetensors"
    checkpoint.save(protector or BUILDERS["control"](jax.random.key(0)), path, {**CARD, **card})
    return path
