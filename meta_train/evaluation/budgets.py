"""Simulated budgets: from log(mu N) to the public setup of a run.

Noise in a full-batch run under Gaussian DP or a concentrated DP of all orders depends on budget and size through mu N
alone (and for a user's loss on the number of params), so N is the number of rows that those at hand stand for, and mu
is set to match (`ByMu`). The cost of a query at a Renyi order, or on a sampled batch, depends on (epsilon, delta) too.
Such runs get real budgets for a table of N rows, planned like those of deployed runs, and the rows at hand are a
weighted sample of that table (`Planned`).
"""

import dataclasses
import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.privacy.accountants import find
from l2p.privacy.budget import MAX_EPSILON, MIN_EPSILON, Budget
from l2p.privacy.cap.filter import Filter, price_list_for_mu
from l2p.privacy.cost.prices import PriceList
from l2p.privacy.cost.sampling import FullBatch, Poisson, Sampler
from l2p.privacy.events import Adjacency
from l2p.run.protector import Protector
from l2p.tables.kind import Kind
from l2p.task.rows import Rows
from meta_train.config.drawn import Shape, Tasks
from meta_train.config.parts import Simulated
from meta_train.tasks.family import TaskBatch
from meta_train.tasks.sources import kind_of

#: Budgets planned over a range of log(mu N); a task gets the one nearest to its own, at most half a spacing off.
PLANNED = 33


#: Costs for which `Tabled` has the noise: evenly spaced logs of shares of the budget. For a smaller share it uses, and
#: charges, the smallest one.
LOG_SHARES = np.linspace(math.log(1e-6), 0.0, 384, dtype=np.float32)
#: Added to the log of tabled noise, so that linear interpolation never gives less noise than the cost requires.
CHORD = 1e-3


@struct.dataclass
class ByMu:
    """Budgets given by mu only.

    Attributes:
      accountant: one under which only mu N matters to a full-batch run (static).
      kind: kind of the tasks' targets; None for the model's (static).
    """

    accountant: str = struct.field(pytree_node=False)
    kind: str | None = struct.field(pytree_node=False, default=None)

    def simulate(self, batch: TaskBatch, model: Model, capped: bool) -> tuple[Rows, Setup]:
        """The batch's rows, weighted by what they stand for, and one public setup per task, stacked. Without a cap,
        spending is only recorded."""
        rows, num_rows = batch.rows, jnp.full_like(batch.log_signal, batch.rows.x.shape[1])
        if batch.copies is not None:
            # Only tasks that are scored on other rows may have fewer.
            rows = dataclasses.replace(rows, mask=rows.mask * batch.copies[:, None])
            num_rows = rows.mask.sum(1)

        def setup(log_signal: jax.Array, num_rows: jax.Array) -> Setup:
            planned = price_list_for_mu(self.accountant, jnp.exp(log_signal) * model.dilution / num_rows)
            return _capped(Setup.create(model, Adjacency.ZERO_OUT, planned, num_rows, self.kind), capped)

        return rows.ready(full_passes=True), jax.vmap(setup)(batch.log_signal, num_rows)


@struct.dataclass
class Tabled(PriceList):
    """A price list that looks up the noise for a given cost, where that of a run solves an equation for it.

    Solving takes as long as pricing 4 to 20 sampled queries, half of a sampled step's time. Prices and the cap are
    those of the original price list, so that a run is charged the same; noise is at most 0.5 % more.

    Attributes:
      log_noise: f32[len(LOG_SHARES)], log of the noise multiplier of a sampled Gaussian query at each cost.
    """

    log_noise: jax.Array = struct.field(kw_only=True)

    @classmethod
    def of(cls, price_list: PriceList) -> "Tabled":
        """`price_list` with its table of noise."""
        costs = price_list.budget * jnp.exp(LOG_SHARES)
        log_noise = jnp.log(jax.vmap(lambda cost: price_list.noise_multiplier(cost, sampled=True))(costs))
        fields = {field.name: getattr(price_list, field.name) for field in dataclasses.fields(price_list)}
        return cls(**fields, log_noise=log_noise + CHORD)

    def noise_multiplier(
        self, cost: jax.typing.ArrayLike, mechanism: str = "gaussian", sampled: bool = False
    ) -> jax.Array:
        if not sampled or mechanism != "gaussian":
            return super().noise_multiplier(cost, mechanism, sampled)
        return jnp.exp(jnp.interp(jnp.log(cost / self.budget), LOG_SHARES, self.log_noise))


@struct.dataclass
class Planned:
    """Real budgets over a range of log(mu N), for one table size.

    The n rows at hand are weighted to represent the whole table, so that sums, noise and prices are those of N rows.
    The variance between batches is not: a sampled step reads its share of the n rows, so that gradients vary between
    batches as they do on a table of n rows, with N / n times the variance that they would have on one of N.

    Attributes:
      price_lists: stacked, leaves [G].
      log_signal: f32[G], log(mu N / sensitivity_factor) of each.
      num_rows: N, of the simulated table (static).
      adjacency: which tables are neighbours (static).
      kind: as for `ByMu` (static).
    """

    price_lists: PriceList
    log_signal: jax.Array
    num_rows: int = struct.field(pytree_node=False)
    adjacency: Adjacency = struct.field(pytree_node=False)
    kind: str | None = struct.field(pytree_node=False, default=None)

    def simulate(self, batch: TaskBatch, model: Model, capped: bool) -> tuple[Rows, Setup]:
        """The batch's rows, weighted, and one public setup per task, stacked, at the budget nearest to its own."""
        nearest = jnp.abs(self.log_signal[None, :] - batch.log_signal[:, None]).argmin(1)
        price_lists = jax.tree.map(lambda leaf: leaf[nearest], self.price_lists)
        weight = self.num_rows / batch.rows.mask.sum(1, keepdims=True)

        def setup(price_list: PriceList) -> Setup:
            return _capped(Setup.create(model, self.adjacency, price_list, self.num_rows, self.kind), capped)

        return dataclasses.replace(batch.rows, mask=batch.rows.mask * weight), jax.vmap(setup)(price_lists)


Budgets = ByMu | Planned


def budgets_for(simulated: Simulated, protector: Protector, log_signal: tuple[float, float], kind: Kind) -> Budgets:
    """The budgets at which a protector is simulated over a range of log(mu N), for tasks with targets of this kind.

    Raises:
      InputError: the accountant has no theorem for the protector's sampler, or prices none of its queries.
    """
    if find(simulated.accountant).by_mu and isinstance(protector.sampler, FullBatch):
        return ByMu(simulated.accountant, kind)
    adjacency = adjacency_for(protector.sampler)
    least, most = (epsilon_for(simulated, protector, signal) for signal in log_signal)
    planned = []
    for epsilon in np.geomspace(least, most, PLANNED):
        budget = Budget(float(epsilon), simulated.delta, adjacency)
        filter = Filter(simulated.accountant, budget, protector.sampler, protector.num_steps)
        for mechanism in protector.mechanisms:
            filter.prices(mechanism, np.ones(1), sampled=True)
        planned.append(filter.price_list())
    price_lists = cast(PriceList, jax.tree.map(lambda *leaves: jnp.stack(leaves), *planned))
    if price_lists.neighbours is not None:
        price_lists = jax.jit(jax.vmap(Tabled.of))(price_lists)
    size = simulated.simulated_rows / adjacency.sensitivity_factor
    signals = jnp.stack([jnp.log(price_list.mu * size) for price_list in planned])
    return Planned(price_lists, signals, simulated.simulated_rows, adjacency, kind)


def budgets_of_shapes(simulated: Simulated, tasks: Tasks, protector: Protector) -> dict[Shape, Budgets]:
    """Budgets for each of the different shapes of tasks; those with the same sampling rate and kind of target share
    them."""
    budgets: dict[tuple[float | None, Kind], Budgets] = {}
    keys = {shape: (shape.sampling_rate, kind_of(shape.source)) for shape in tasks.shapes}
    for rate, kind in keys.values():
        if (rate, kind) not in budgets:
            drawn = protector if rate is None else protector.replace(sampler=Poisson(rate))
            budgets[rate, kind] = budgets_for(simulated, drawn, tasks.log_signal, kind)
    return {shape: budgets[key] for shape, key in keys.items()}


def epsilon_for(simulated: Simulated, protector: Protector, log_signal: float) -> float:
    """Epsilon at the simulated delta and size at which log(mu N) is `log_signal`, to within 1e-3."""
    adjacency = adjacency_for(protector.sampler)

    def excess(log_epsilon: float) -> float:
        budget = Budget(math.exp(log_epsilon), simulated.delta, adjacency)
        mu = Filter(simulated.accountant, budget, protector.sampler, protector.num_steps).price_list().mu
        return math.log(float(mu) * simulated.simulated_rows / adjacency.sensitivity_factor) - log_signal

    ends = math.log(MIN_EPSILON) / 2, math.log(MAX_EPSILON) / 2
    if not excess(ends[0]) < 0 < excess(ends[1]):
        raise InputError(
            f"no epsilon from {math.exp(ends[0]):.1g} to {math.exp(ends[1]):.1g} has log(mu N) {log_signal:g} for "
            f"{simulated.simulated_rows} rows; simulate another number of rows, or train on a narrower range."
        )
    return math.exp(cast(float, brentq(excess, *ends, xtol=1e-3)))


def adjacency_for(sampler: Sampler) -> Adjacency:
    """Zero-out adjacency, or that for which the sampler's prices are proved."""
    return Adjacency.ZERO_OUT if Adjacency.ZERO_OUT in sampler.adjacencies else sampler.adjacencies[0]


def sized(protector: Protector, num_rows: int) -> Protector:
    """The protector with batches for a table of `num_rows` rows, at the same rate as before; most need no change.

    >>> from l2p.privacy.cost.sampling import FixedSize
    >>> from l2p.protectors import HAND_DESIGNED
    >>> dpsgd = dataclasses.replace(HAND_DESIGNED["dpsgd"](Budget(1.0, 1e-6)), sampler=FixedSize(1000, 30_000))
    >>> sized(dpsgd, 1024).sampler
    FixedSize(batch_size=34, num_rows=1024)
    """
    sampler: Any = protector.sampler
    if getattr(sampler, "num_rows", num_rows) == num_rows:
        return protector
    batch_size = min(max(1, round(sampler.rate() * num_rows)), num_rows - 1)
    resized = dataclasses.replace(sampler, batch_size=batch_size, num_rows=num_rows)
    return protector.replace(sampler=resized)


def _capped(setup: Setup, capped: bool) -> Setup:
    return setup if capped else dataclasses.replace(setup, cap=jnp.array(jnp.inf))
