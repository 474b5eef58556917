"""What a run is set up with before it reads a row: its protector, its filter and the public facts.

Where its schedule must be known beforehand, it is rehearsed on a table that holds nothing.
"""

from functools import partial

import jax
import jax.numpy as jnp

from l2p.checkpoints.control import CONTROL
from l2p.checkpoints.lookup import Resolved, stand_in
from l2p.checkpoints.ranges import range_warnings
from l2p.models import Model
from l2p.oracle import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.envelope import rehearsed
from l2p.privacy.events import Answered
from l2p.privacy.filter import Filter
from l2p.privacy.prices import PriceList
from l2p.protector import Protector
from l2p.result import answered
from l2p.run import Records, TraceRow, run, trace_rows
from l2p.task import Rows


def set_up(
    resolved: Resolved,
    budget: Budget,
    model: Model,
    num_features: int,
    num_rows: int,
    public: Rows | None = None,
    kind: str | None = None,
) -> tuple[Resolved, Filter, Setup, list[str]]:
    """The protector that runs, its filter, the public facts, and what there is to say of its range.

    Outside the range that a learned protector was made for, and where its networks gained nothing or lost on one of its
    sources, its control stands in for it.

    Raises:
      InputError: as for `filter_for` and `Setup.create`, or the sampler draws from a table of another size.
    """
    filter = filter_for(resolved, budget, model, num_features, num_rows, public, kind)
    filter.sampler.check(budget.adjacency, num_rows)
    setup = Setup.create(model, budget.adjacency, filter.price_list(), num_rows, kind)
    warnings = range_warnings(resolved.range, setup, num_features)
    level = resolved.control is not None and resolved.control.is_level(float(setup.log_signal))
    control = stand_in(resolved) if warnings or level else None
    if control is None:
        return resolved, filter, setup, warnings
    has_networks = control.name.startswith(CONTROL)
    said = (
        f"{resolved.name} was not trained for this range; {'its control ' if has_networks else ''}{control.name} runs "
        "instead."
        if warnings
        else f"At this budget {control.name} runs: {'the networks of ' if has_networks else ''}{resolved.name} gained "
        "nothing over it on held-out tasks, or lost to it on those of one source."
    )
    resolved, filter, setup, warnings = set_up(control, budget, model, num_features, num_rows, public, kind)
    return resolved, filter, setup, [said, *warnings]


def filter_for(
    resolved: Resolved,
    budget: Budget,
    model: Model,
    num_features: int,
    num_rows: int,
    public: Rows | None = None,
    kind: str | None = None,
) -> Filter:
    """What stops the runs of a protector within `budget`; for accountants of fixed noise, with the envelope of theirs.

    Raises:
      InputError: no theorem covers the combination, or the accountant certifies the budget at no noise.
    """
    filter = resolved.filter(budget)
    if filter.accountant.adaptive:
        return filter

    def rehearse(price_list: PriceList) -> list[Answered]:
        setup = Setup.create(model, budget.adjacency, price_list, num_rows, kind)
        return answered(asked(resolved.protector, setup, num_features, public))

    return rehearsed(filter, rehearse)


def asked(protector: Protector, setup: Setup, num_features: int, public: Rows | None = None) -> list[TraceRow]:
    """What a run is granted on a table that holds nothing: of noise fixed beforehand, what it is on every table."""
    first, later = _asked(protector, setup.model.init(num_features), shape_of(setup, num_features), setup, public)
    return trace_rows(first, [later])


def kinds_asked(protector: Protector, setup: Setup, num_features: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Mechanisms of the queries of `init`, and of those of every step, in order; found without running it."""
    trace = partial(_asked, shape=shape_of(setup, num_features), public=None)
    params = jax.eval_shape(partial(setup.model.init, num_features))
    first, later = jax.eval_shape(trace, protector, params, setup=setup)
    return tuple(record.mechanism for record in first), tuple(record.mechanism for record in later)


def shape_of(setup: Setup, num_features: int) -> tuple[int, int]:
    """Lines and columns of a table to rehearse on; batches of a fixed size are drawn from one of just so many rows."""
    return getattr(setup.price_list.sampler, "num_rows", 1), num_features


@partial(jax.jit, static_argnames="shape")
def _asked(
    protector: Protector, params: jax.Array, shape: tuple[int, int], setup: Setup, public: Rows | None
) -> tuple[Records, Records]:
    """What a run asks of a table of null rows of this shape."""
    nothing = Rows(jnp.zeros(shape), jnp.zeros(shape[:1]), jnp.zeros(shape[:1]))
    _, _, records, _ = run(protector, params, nothing, setup, jax.random.key(0), public)
    return records
