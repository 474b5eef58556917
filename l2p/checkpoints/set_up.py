"""Sets up a run before it reads a row: its protector, its filter and the public facts.

A schedule that must be fixed beforehand is rehearsed on a table of null rows.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.checkpoints.control import CONTROL
from l2p.checkpoints.named import NamedProtector, stand_in
from l2p.checkpoints.other_tables import unlike
from l2p.checkpoints.ranges import range_warnings
from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.oracle.trace import Records, trace_of
from l2p.privacy.accountants import find
from l2p.privacy.budget import Budget
from l2p.privacy.cap.envelope import rehearsed
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.prices import PriceList, float32_down
from l2p.privacy.events import Answered
from l2p.privacy.units import check_unit
from l2p.run.protector import Protector
from l2p.run.run import run
from l2p.tables.schema import Schema
from l2p.task.rows import Rows

#: Name and mechanism of a query.
Kind = tuple[str, str]


def set_up(
    named: NamedProtector,
    budget: Budget,
    model: Model,
    num_features: int,
    num_rows: int,
    public: Rows | None = None,
    kind: str | None = None,
    rows_per_unit: int | None = None,
    share: float = 0.0,
    schema: Schema | None = None,
) -> tuple[NamedProtector, Filter, Setup, list[str]]:
    """The protector that runs, its filter, the public facts, and warnings about its range and, by the table's `schema`
    if it has one, about the tables that it was fine-tuned on.

    Where units are protected, `rows_per_unit` of each count. A `share` of the budget is left out of the setup's, for
    purchases before the run under the same filter.

    A learned protector's control runs instead outside the range that the protector was made for, and where its networks
    gained nothing, or lost on one of its sources or with this model.

    Raises:
      InputError: as for `filter_for` and `Setup.create`, or the sampler is set up for a table of another size.
    """
    if rows_per_unit is not None:
        check_unit(named.accountant, named.protector.sampler, rows_per_unit)
    if share > 0:
        check_shared(named)
    filter = filter_for(named, budget, model, num_features, num_rows, public, kind)
    filter.sampler.check_adjacency(budget.adjacency, num_rows)
    price_list = filter.price_list()
    if share > 0:
        price_list = dataclasses.replace(price_list, budget=jnp.asarray(float32_down(filter.limit * (1.0 - share))))
    setup = Setup.create(model, budget.adjacency, price_list, num_rows, kind, rows_per_unit)
    warnings = range_warnings(named.range, setup, num_features, budget)
    level = named.control is not None and named.control.is_level(float(setup.log_signal), model.name)
    control = stand_in(named) if warnings or level else None
    if control is None:
        elsewhere = unlike(named.own_tables, named.name, num_features, setup.kind, schema)
        return named, filter, setup, [*warnings, *elsewhere]
    has_networks = control.name.startswith(CONTROL)
    ran, filter, setup, later = set_up(
        control, budget, model, num_features, num_rows, public, kind, rows_per_unit, share
    )
    if warnings:
        instead = f"{'its control ' if has_networks else ''}{control.name} runs instead."
        return ran, filter, setup, [f"{named.name} was not trained for this range; {instead}", *later]
    # A fine-tuned protector's start may give way in turn, which is no fault of the protector's own range.
    gives_way = "" if ran.name == control.name else f" {control.name} gives way to {ran.name} here, in turn."
    sentence = (
        f"At this budget {control.name} runs: on held-out tasks {'the networks of ' if has_networks else ''}"
        f"{named.name} did no better than it, over all of them or with this model, or did worse on those of one source."
    )
    return ran, filter, setup, [sentence + gives_way, *(later[1:] if gives_way else later)]


def check_shared(named: NamedProtector) -> None:
    """Refuse a run that cannot follow a purchase under one filter.

    Raises:
      InputError: its accountant certifies one query that takes all, or noise that was fixed as a whole beforehand.
    """
    accountant = find(named.accountant)
    if not (accountant.adaptive and accountant.composes and "gaussian" in accountant.coefficients):
        raise InputError(
            f"bounds are to be bought from the budget, but accountant {named.accountant!r} has no theorem for a "
            "run that follows another query; choose accountant gdp or rdp with a method that takes it, or declare "
            "[low, high]."
        )


def filter_for(
    named: NamedProtector,
    budget: Budget,
    model: Model,
    num_features: int,
    num_rows: int,
    public: Rows | None = None,
    kind: str | None = None,
) -> Filter:
    """The filter that stops a protector's runs within `budget`; with an envelope for accountants of fixed noise.

    Raises:
      InputError: no theorem covers the combination, or the accountant cannot certify the budget with any noise.
    """
    filter = named.filter(budget)
    if filter.accountant.adaptive:
        return filter

    def rehearse(price_list: PriceList) -> list[Answered]:
        setup = Setup.create(model, budget.adjacency, price_list, num_rows, kind)
        return granted_queries(named.protector, setup, num_features, public)

    return rehearsed(filter, rehearse)


def granted_queries(
    protector: Protector,
    setup: Setup,
    num_features: int,
    public: Rows | None = None,
    seed: int = 0,
    value: float = 0.0,
) -> list[Answered]:
    """The queries granted on a table of null rows; if noise is fixed beforehand, the same as on every table.

    With a `value` the rows count, and every cell holds it; `seed` fixes their noise.
    """
    params, shape = setup.model.init(num_features), shape_of(setup, num_features)
    first, later = _asked(protector, params, shape, setup, public, jax.random.key(seed), jnp.float32(value))
    return trace_of(first, [later])


def kinds_asked(
    protector: Protector, setup: Setup, num_features: int, public: Rows | None = None
) -> tuple[tuple[Kind, ...], tuple[Kind, ...]]:
    """The queries of `init`, and those of every step, in order; traced abstractly, without running it."""
    trace = partial(_asked, shape=shape_of(setup, num_features), public=public, key=jax.random.key(0))
    params = jax.eval_shape(partial(setup.model.init, num_features))
    first, later = jax.eval_shape(trace, protector, params, setup=setup, value=jnp.float32(0))
    return tuple((record.query, record.mechanism) for record in first), tuple(
        (record.query, record.mechanism) for record in later
    )


def shape_of(setup: Setup, num_features: int) -> tuple[int, int]:
    """Lines and columns of a table to rehearse on; fixed-size batches need one with exactly the sampler's number of
    rows."""
    return getattr(setup.price_list.sampler, "num_rows", 1), num_features


@partial(jax.jit, static_argnames="shape")
def _asked(
    protector: Protector,
    params: jax.Array,
    shape: tuple[int, int],
    setup: Setup,
    public: Rows | None,
    key: jax.Array,
    value: jax.Array,
) -> tuple[Records, Records]:
    """The queries of a run on a table of this shape; of null rows where `value` f32[] is 0."""
    cells = jnp.full(shape, value)
    rows = Rows(cells, jnp.full(shape[:1], value), jnp.full(shape[:1], jnp.where(value == 0, 0.0, 1.0)))
    _, _, records, _ = run(protector, params, rows, setup, key, public)
    return records
