"""l2p: meta-learned private optimizers, and private training with them.

>>> import jax, jax.numpy as jnp, l2p
>>> rows = l2p.Rows(jnp.ones((900, 1)), jnp.ones(900), jnp.ones(900))
>>> result = l2p.private_train(rows, "noisygd", l2p.Budget(epsilon=1.0, delta=1e-5), key=jax.random.key(0))
>>> result.steps, result.card.private_release
(50, False)
"""

import importlib
from typing import Any

__version__ = "0.2.0"  # the only place: pyproject.toml reads it here

# Imported on first use, so that `l2p --help` and jax-free code need not wait for JAX.
_MODULES = {
    "Adjacency": "l2p.privacy.events",
    "ArraySource": "l2p.task.sources",
    "BlockSource": "l2p.release.losses.blocks",
    "Budget": "l2p.privacy.budget",
    "Card": "l2p.privacy.card.card",
    "EngineRun": "l2p.privacy.sensitivity.engine_run",
    "InputError": "l2p.base.errors",
    "Oracle": "l2p.oracle",
    "Protector": "l2p.run.protector",
    "Query": "l2p.queries",
    "Result": "l2p.release.result",
    "RowSource": "l2p.task.sources",
    "Rows": "l2p.task.rows",
    "Setup": "l2p.oracle.setup",
    "Task": "l2p.task.task",
    "bolt_on": "l2p.release.engine",
    "clipped_sum": "l2p.release.losses.clipped_sum",
    "load": "l2p.release.api",
    "load_model": "l2p.release.prediction.saved",
    "load_params": "l2p.release.prediction.parameters",
    "optax": "l2p.release.losses.loop",
    "private_train": "l2p.release.api",
}
__all__ = [*_MODULES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'l2p' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
