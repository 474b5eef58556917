"""A run planned and checked before anything is reserved and a row is read."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.checkpoints.named import NamedProtector
from l2p.checkpoints.set_up import set_up
from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.privacy import class_weights
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.events import Adjacency
from l2p.queries.pass_descent import PassRows
from l2p.release.losses.own_model import check_own
from l2p.release.run_noise import RunNoise, SimulatedNoise, noise_for
from l2p.release.saved_run import digest_of
from l2p.tables import public_data, same_table
from l2p.tables.schema import Schema, schema_of
from l2p.tables.schema.target import Unit
from l2p.task import checks
from l2p.task.rows import Rows
from l2p.task.sources import RowSource
from l2p.task.task import Task


class PlannedRun(NamedTuple):
    """A run that passed every check; nothing is reserved and no row read yet."""

    task: Task
    budget: Budget
    named: NamedProtector
    filter: Filter
    setup: Setup
    params: jax.Array
    noise: RunNoise
    model: Model
    num_rows: int
    num_features: int
    warnings: list[str]
    unit: Unit | None = None

    @property
    def facts(self) -> list[Any]:
        """What a run that goes on has in common with the one that was begun; public."""
        named, setup, budget = self.named, self.setup, self.budget
        settings = [np.asarray(leaf).ravel().tolist() for leaf in jax.tree.leaves(named.protector)]
        structure = type(named.protector).__qualname__, str(jax.tree.structure(named.protector))
        exactly = [np.float64(number).tobytes() for number in (budget.epsilon, budget.delta)]
        table = self.num_rows, self.num_features, self.unit, setup.kind, setup.rows_per_unit, setup.in_float32
        weights = None if setup.class_weights is None else np.asarray(setup.class_weights).tolist()
        key = jax.random.key_data(self.noise.key).tolist() if isinstance(self.noise, SimulatedNoise) else None
        arrays = digest_of(self.params), digest_of(self.task.public)
        method = named.name, named.sha256, settings, *structure
        return [*method, repr(self.filter), exactly, str(self.model), *table, weights, *arrays, key]


def plan_run(
    data: Rows | RowSource | Task,
    named: NamedProtector,
    budget: Budget,
    model: Model,
    *,
    key: jax.Array | None = None,
    params: jax.Array | None = None,
    num_rows: int | None = None,
    kind: str | None = None,
    schema: Schema | None = None,
    share: float = 0.0,
    in_float32: bool = False,
) -> PlannedRun:
    """The run of a protector that was admitted with these facts; `InputError` if one does not fit the rows.

    Where the `schema` protects a unit, only its first rows may be other than null (`read_rows(unit=)`). A `share` of
    the budget is left to what is bought before the run. `in_float32` is as in `Setup`.
    """
    unit, weights = (None, None) if schema is None else (schema.unit, schema.target.weights)
    task = data if isinstance(data, Task) else Task(private=data)
    _check_declared(task.private, unit, weights)
    num_lines, num_features = checks.shape_of(task.private)
    check_own(model, num_features)
    num_rows = checks.number_of_rows(num_lines, num_rows, budget)
    budget.check_rows(num_rows)
    named, kind = named.for_rows(num_rows), model.known_kind(kind)
    if task.public is not None:
        same_table.refuse_same(task.private, task.public)
        if isinstance(task.private, PassRows):
            raise InputError(
                "where another machine takes the passes, no row is told apart from public ones, so one might count as "
                "both; leave out the public rows, which no such method reads, or read the table here."
            )
        task = dataclasses.replace(task, public=checked_public(task.public, named, num_features, model, kind))
    if isinstance(task.private, PassRows):
        task.private.check_model(named.protector, model)
    if not named.protector.additive:
        checks.check_whole(named.name, task.private, num_rows, named.protector.streams)
    if budget.adjacency is not Adjacency.ADD_REMOVE:  # under which lines are private, and none is planned for
        checks.check_planned(named.name, named.protector.planned_rows, num_lines)
    params = _starting_point(model, num_features, params)
    if not isinstance(key, jax.Array | None):
        raise InputError(
            f"key is {key!r}, but a simulation needs a JAX key; pass jax.random.key(0), or None to release."
        )

    named, filter, setup, warnings = set_up(
        named, budget, model, num_features, num_rows, task.public, kind, unit.max_rows if unit else None, share, schema
    )
    if weights is not None:
        setup = dataclasses.replace(setup, class_weights=class_weights.shares(weights))
    setup = dataclasses.replace(setup, in_float32=in_float32)
    filter.sampler.check_adjacency(budget.adjacency, num_lines)  # the card states N, and prices depend on it
    noise = noise_for(named.protector, params, num_lines, (num_rows, num_features), setup, task.public, key)
    # Last: it reads them.
    checks.check_rows(
        task.private, filter.sampler, labels_of(model, kind), releases=key is None, scaled=model.reads_features
    )
    warnings = [*budget.warnings(), *warnings]
    return PlannedRun(task, budget, named, filter, setup, params, noise, model, num_rows, num_features, warnings, unit)


def _check_declared(rows: Rows | RowSource, unit: Unit | None, weights: Sequence[float] | None) -> None:
    """Refuse a source whose schema says otherwise than this run what is protected or how rows count, and one that
    passes on all rows of a unit."""
    if not isinstance(rows, RowSource):
        return
    schema = schema_of(rows)
    if schema is not None and (schema.unit, schema.target.weights) != (unit, weights):
        raise InputError(
            "the table streams by a schema that protects units or weighs classes, but this run would protect single "
            "rows that all count alike; give the stream itself to private_train, with public rows as public=. A choice "
            "among several runs, which is proved for single rows, needs a schema without unit and weights."
        )
    if unit is not None and not rows.caps_units:
        raise InputError(
            f"the schema protects the unit {unit.column!r}, but this source may give more rows of one than count, so "
            "the guarantee would not hold; stream the table with l2p.tables.schema.stream.streamed, or, where the "
            "source leaves all but the first rows of a unit out itself, have it say so (caps_units)."
        )


def checked_public(public: Rows, named: NamedProtector, num_features: int, model: Model, kind: str) -> Rows:
    """Public rows as NumPy f32 arrays; `InputError` if they, or the protector, cannot be used with each other."""
    rows = public_data.checked(public, num_features, labels_of(model, kind))
    named.protector.check_public(rows, model, kind)
    return rows


def labels_of(model: Model, kind: str) -> tuple[float, ...] | None:
    """The labels of prepared rows; None where the target is a number."""
    return None if kind == "regression" else model.labels


def _starting_point(model: Model, num_features: int, params: jax.Array | None) -> jax.Array:
    if params is None:
        return model.init(num_features)
    expected = model.num_params(num_features)
    if params.shape != (expected,):
        raise InputError(
            f"params have shape {list(params.shape)}, but {model} on these columns has [{expected}]; give so many, or "
            "none for the model's own start."
        )
    return jnp.asarray(params, jnp.float32)
