"""The sizes and budgets that a protector was made for, and warnings outside them."""

from collections.abc import Mapping, Sequence
from typing import Any

from l2p.oracle import Setup


def range_of(card: Mapping[str, Any]) -> dict[str, list[float]] | None:
    """The range on a checkpoint card; a missing number of classes is taken from the model that the config names.

    >>> range_of({"range": {"num_features": [64, 288]}, "config": {"model": "softmax:10"}})
    {'num_features': [64, 288], 'num_classes': [10, 10]}
    """
    trained = card.get("range")
    _, _, num_classes = card.get("config", {}).get("model", "").partition(":")
    if trained is None or not num_classes or "num_classes" in trained:
        return trained
    return {**trained, "num_classes": [int(num_classes)] * 2}


def range_warnings(trained: Mapping[str, Sequence[float]] | None, setup: Setup, num_features: int) -> list[str]:
    """Warnings if a protector is used outside the range that it was made for; none without a range.

    >>> from l2p.models import Logistic
    >>> from l2p.privacy.filter import Filter
    >>> from l2p.privacy.budget import Budget
    >>> budget = Budget(1.0, 1e-5)
    >>> setup = Setup.create(Logistic(), budget.adjacency, Filter("gdp", budget).price_list(), 1000)
    >>> range_warnings({"num_features": [8, 104]}, setup, 20)
    []
    """
    here = {
        "log_signal": float(setup.log_signal),
        "num_features": num_features,
        "num_classes": len(setup.model.labels),
        "sampling_rate": setup.price_list.sampler.rate(),
    }
    return [
        f"This run's {name} is {here[name]:.4g}, outside [{low:g}, {high:g}] that the protector was made for; the "
        "guarantee holds all the same, but accuracy may be poor."
        for name, (low, high) in (trained or {}).items()
        if name in here and not low <= here[name] <= high
    ]
