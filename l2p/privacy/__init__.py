"""Privacy accounting: events, samplers, budgets, accountants, filters, and what a run has spent."""

import importlib
from typing import Any

# Imported on first use: the command line takes its choices from `l2p.privacy.accountants` without waiting for JAX.
_MODULES = {
    "MECHANISMS": "l2p.privacy.events",
    "Adjacency": "l2p.privacy.events",
    "Answered": "l2p.privacy.events",
    "Budget": "l2p.privacy.budget",
    "Event": "l2p.privacy.events",
    "Filter": "l2p.privacy.cap.filter",
    "FixedSize": "l2p.privacy.cost.sampling",
    "FullBatch": "l2p.privacy.cost.sampling",
    "PermutationEpochs": "l2p.privacy.cost.sampling",
    "Poisson": "l2p.privacy.cost.sampling",
    "PriceList": "l2p.privacy.cost.prices",
    "Sampler": "l2p.privacy.cost.sampling",
    "Spending": "l2p.privacy.cap.spending",
    "default_accountant": "l2p.privacy.cap.filter",
}
__all__ = list(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'l2p.privacy' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
