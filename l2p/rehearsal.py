"""The filter of a run whose schedule must be known beforehand: the run is rehearsed on a table that holds nothing."""

import jax
import jax.numpy as jnp

from l2p.checkpoint import Resolved
from l2p.errors import InputError
from l2p.models import Model
from l2p.oracle import Setup
from l2p.privacy.accountants import Filter
from l2p.privacy.budget import Budget
from l2p.privacy.envelope import rehearsed
from l2p.privacy.events import Answered
from l2p.privacy.prices import Accountant
from l2p.result import answered
from l2p.run import run, trace_rows
from l2p.task import Rows

_run = jax.jit(run)


def filter_for(
    resolved: Resolved, budget: Budget, model: Model, num_features: int, num_rows: int, public: Rows | None = None
) -> Filter:
    """What stops the runs of a protector within `budget`; for accountant "pld", with the envelope of their noise.

    Raises:
      InputError: no theorem covers the combination, or "pld" is asked of noise that depends on earlier answers.
    """
    filter = resolved.filter(budget)
    if filter.name != "pld":
        return filter
    if resolved.protector.adaptive_noise:
        raise InputError(
            f"accountant 'pld' certifies noise that is fixed beforehand, but that of protector {resolved.name!r} "
            "depends on earlier answers, for which it proves nothing; choose 'rdp'."
        )
    nothing = Rows(jnp.zeros((1, num_features)), jnp.zeros(1), jnp.zeros(1))

    def rehearse(accountant: Accountant) -> list[Answered]:
        setup = Setup.create(model, budget.adjacency, accountant, num_rows)
        params, key = model.init(num_features), jax.random.key(0)
        _, _, (first, later), _ = _run(resolved.protector, params, nothing, setup, key, public)
        return answered(trace_rows(first, [later]))

    return rehearsed(filter, rehearse)
