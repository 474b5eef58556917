"""The sizes and budgets that a protector was made for, and warnings outside them, in rows and epsilon."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from l2p.checkpoints.signal import epsilon_for, log_signal
from l2p.oracle.setup import Setup
from l2p.privacy.accountants import find
from l2p.privacy.budget import Budget
from l2p.privacy.rounded import rounded

_ALL_THE_SAME = "the guarantee holds all the same, but accuracy may be poor."
_SUBJECTS = {
    "num_features": "{:,} features are",
    "num_classes": "{} classes are",
    "sampling_rate": "Batches of {:.4g} of the rows are",
}


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


def range_warnings(
    trained: Mapping[str, Sequence[float]] | None, setup: Setup, num_features: int, budget: Budget
) -> list[str]:
    """Warnings if a protector is used outside the range that it was made for; none without a range.

    >>> from l2p.models import Logistic
    >>> from l2p.privacy.cap.filter import Filter
    >>> budget = Budget(1.0, 1e-5)
    >>> setup = Setup.create(Logistic(), budget.adjacency, Filter("gdp", budget).price_list(), 1000)
    >>> range_warnings({"num_features": [8, 104]}, setup, 20, budget)
    []
    """
    here = {
        "log_signal": float(setup.log_signal),
        "num_features": num_features,
        "num_classes": len(setup.model.labels),
        "sampling_rate": setup.price_list.sampler.rate(),
    }
    return outside(trained or {}, here, setup.price_list.name, budget, round(float(setup.num_rows)))


def outside(
    trained: Mapping[str, Sequence[float]], here: Mapping[str, float], accountant: str, budget: Budget, rows: int
) -> list[str]:
    """A sentence for each number of `here` that is outside the interval it has in `trained`.

    >>> budget = Budget(1.0, 1e-5)
    >>> print(*outside({"log_signal": [0.7, 5.2]}, {"log_signal": 5.6}, "gdp", budget, 1000))  # doctest: +ELLIPSIS
    Epsilon 1 on 1,000 rows is above the protector's range: at most epsilon 0.645 on so many rows, or 670 rows at ...
    """
    sentences = []
    for name, ends in trained.items():
        if name not in here or ends[0] <= here[name] <= ends[1]:
            continue
        if name == "log_signal":
            sentences.append(_of_signal(here[name], ends, accountant, budget, rows))
        else:
            subject = _SUBJECTS[name].format(here[name])
            sentences.append(f"{subject} outside the protector's range, {interval(ends)}; {_ALL_THE_SAME}")
    return sentences


def _of_signal(here: float, ends: Sequence[float], accountant: str, budget: Budget, rows: int) -> str:
    """The sentence on a budget and a number of rows whose log_signal, `here`, is outside `ends`."""
    if find(accountant).mu(budget) is None:
        accountant = "gdp"  # stands for an accountant of whole schedules: mu as a function of epsilon
    above = here > ends[1]
    shift = (ends[1] if above else ends[0]) - here
    wanted = rows * math.exp(shift)
    at_rows = f"{math.floor(wanted) if above else math.ceil(wanted):,} rows at this epsilon"
    epsilon = epsilon_for(log_signal(accountant, budget, rows) + shift, accountant, budget, rows)
    at_epsilon = "" if epsilon is None else f"epsilon {rounded(epsilon, up=not above)} on so many rows, or "
    side, limit = ("above", "at most") if above else ("below", "at least")
    return (
        f"Epsilon {budget.epsilon:g} on {rows:,} rows is {side} the protector's range: {limit} {at_epsilon}"
        f"{at_rows}; {_ALL_THE_SAME}"
    )


def interval(ends: Sequence[float]) -> str:
    """A range in words.

    >>> interval([4, 1000]), interval([10, 10])
    ('4 to 1,000', '10')
    """
    low, high = (f"{end:,.10g}" for end in ends)
    return low if low == high else f"{low} to {high}"
