"""The noise of a trace of Gaussian queries, for accountants that price nothing else."""

from collections.abc import Sequence

import numpy as np

from l2p.base.errors import InputError
from l2p.privacy.accountants.base import FixedTrace
from l2p.privacy.cost.sampling import FullBatch, PermutationEpochs
from l2p.privacy.events import Answered


def noise_multipliers(accountant: str, trace: FixedTrace) -> tuple[np.ndarray, np.ndarray]:
    """Noise multipliers f64[...] of queries on all rows, and of sampled ones; epochs count their least noisy step.

    Raises:
      InputError: the trace has other mechanisms, or an answer without noise.
    """
    answered, sampler = trace.answered, trace.sampler
    sampler.check_adjacency(trace.budget.adjacency)
    foreign = sorted({query.mechanism for query in answered} - {"gaussian"})
    if foreign:
        raise InputError(
            f"accountant {accountant!r} prices Gaussian queries only, but this trace has {', '.join(foreign)}; choose "
            "accountant rdp."
        )
    if not all(query.noise_multiplier > 0 for query in answered):
        raise InputError(
            f"accountant {accountant!r} needs noise multipliers above 0, because an answer without noise has no finite "
            "price; check the trace."
        )
    start = [query.noise_multiplier for query in answered if query.step == 0]
    steps = [query for query in answered if query.step > 0]
    if isinstance(sampler, PermutationEpochs):
        on_all_rows = start + _costliest(steps, sampler.steps_per_charge)
    elif isinstance(sampler, FullBatch):
        on_all_rows = start + [query.noise_multiplier for query in steps]
    else:
        return np.array(start), np.array([query.noise_multiplier for query in steps])
    return np.array(on_all_rows), np.zeros(0)


def _costliest(steps: Sequence[Answered], steps_per_charge: int) -> list[float]:
    """The noise multiplier of each epoch's costliest step, all its queries taken together."""
    per_step: dict[int, float] = {}
    for query in steps:
        per_step[query.step] = per_step.get(query.step, 0.0) + query.noise_multiplier**-2
    costliest: dict[int, float] = {}
    for step, cost in per_step.items():
        epoch = (step - 1) // steps_per_charge
        costliest[epoch] = max(costliest.get(epoch, 0.0), cost)
    return [cost**-0.5 for cost in costliest.values()]
