"""Private updates in a loop of one's own: an optax transformation that plans noise, adds it, counts, and gives a card.

The loop draws its batches and holds its rows; everything else is as in `l2p.private_train`: the same accountants, the
same oracle, noise from the same generator. What the loop has to vouch for stands on the card.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from optax import GradientTransformation

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.base.layout import Layout
from l2p.checkpoints.named import NamedProtector, describe
from l2p.checkpoints.set_up import granted_queries, set_up
from l2p.models.custom import CustomLoss, Parameters
from l2p.oracle.readers import Reader
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.spending import Spending
from l2p.privacy.card.card import Card
from l2p.privacy.cost.sampling import FullBatch, Poisson
from l2p.privacy.events import Adjacency
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import Reservation, open_ledger
from l2p.protectors.hand_designed import log_constant
from l2p.protectors.stepwise.projectors import Optax, Projector
from l2p.protectors.stepwise.schedulers import Decaying, Observation, StepPlan
from l2p.protectors.stepwise.stepwise import Stepwise
from l2p.queries import ClippedGradient, NormalizedGradient, Query
from l2p.release.admission import admit
from l2p.release.clipped_sum import ClippedSum, Clipping, layout_of
from l2p.release.custom import split
from l2p.release.loop_noise import AddedByHost, HostSide
from l2p.run.protector import Protector
from l2p.run.run import Run, Simulation, start, take_step
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import Batch
from l2p.task.rows import Rows

#: Parameters of the stand-in that a plan is rehearsed on: noise does not depend on how many there are.
REHEARSED = 64
#: What every refusal of a method advises.
_FITTING = "choose noisygd, dpsgd, auto_clip or an optax optimizer, or train with l2p.private_train"


class PrivateTransformation(GradientTransformation):
    """An optax transformation that takes clipped sums (`l2p.clipped_sum`) and returns private updates.

    Attributes:
      clipping: what the sums are to be made with.
      card: a function that ends the loop and returns its privacy card.
    """

    clipping: Clipping
    card: Callable[[], Card]

    def __new__(cls, init: Callable, update: Callable, clipping: Clipping, card: Callable[[], Card]) -> Any:
        transformation = super().__new__(cls, init, update)
        transformation.clipping, transformation.card = clipping, card
        return transformation


@struct.dataclass
class LoopState(struct.Struct):
    """Between two updates. It may be saved, and a loop that goes on from it counts on.

    Attributes:
      method: state of the protector.
      spending: what has been spent.
      step: i32[], updates that led here.
      alive: bool[], False once an update was refused.
      count: i32[], answers of the whole loop so far, also of updates that were thrown away.
    """

    method: Any
    spending: Spending
    step: jax.Array
    alive: jax.Array
    count: jax.Array


@struct.dataclass
class Given(Projector):
    """An optax optimizer of the user's own, which sees the noised mean gradient as a pytree like the parameters.

    Attributes:
      optimizer: itself (static).
      layout: of the trained parameters, None in place of others (static).
    """

    optimizer: GradientTransformation = struct.field(pytree_node=False)
    layout: Layout = struct.field(pytree_node=False)
    any_model = True

    def init(self, params: jax.Array, setup: Setup) -> Any:
        return self.optimizer.init(self.layout.tree_of(params))

    def __call__(
        self, state: Any, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Any]:
        gradient, point = self.layout.tree_of(observation.gradient), self.layout.tree_of(params)
        updates, state = self.optimizer.update(gradient, state, point)
        return self.layout.flat_on_device(updates), state


class _Plan(NamedTuple):
    """A loop that passed every check, before its first update."""

    named: NamedProtector
    running: Protector
    setup: Setup
    layout: Layout
    clipping: Clipping
    host: HostSide

    def vector(self, params: Any) -> tuple[Parameters, jax.Array]:
        """Params of the loop, and their vector f32[p]; `InputError` if it was planned for others."""
        parameters, trained = split(params, self.clipping.trainable)
        if not _alike(layout_of(parameters), self.layout):
            raise InputError(
                "params have another structure or other shapes than those that the loop was planned for, so its noise "
                "would not fit them; pass params like those that l2p.optax was given."
            )
        return parameters, parameters.trained.flat_on_device(trained)

    def check(self, total: Any) -> None:
        """Refuse what is no clipped sum of this loop."""
        if not isinstance(total, ClippedSum):
            raise InputError(
                f"update got {type(total).__name__} in place of a clipped sum, and a mean or another gradient bounds "
                "nothing that one row adds; pass l2p.clipped_sum(loss, params, batch, transformation.clipping)."
            )
        is_sealed = jnp.shape(total.seal) == () and jax.dtypes.issubdtype(total.seal.dtype, jax.dtypes.prng_key)
        if not is_sealed or jnp.shape(total.total) != (self.layout.size,) or total.total.dtype != jnp.float32:
            raise InputError(
                "the clipped sum has another shape or type than the parameters of this loop, so it is one of several "
                "batches at once, or was computed with; hand it to update as clipped_sum gave it."
            )
        if total.clipping != self.clipping or not _alike(total.layout, self.layout):
            raise InputError(
                "the clipped sum was made with another clip norm or for other parameters than noise is planned for; "
                "make it with this transformation's own clipping."
            )
        num_rows, adjacency = float(self.setup.num_rows), self.setup.adjacency
        if adjacency is not Adjacency.ADD_REMOVE and total.num_lines > num_rows:
            raise InputError(
                f"the batch has places for {total.num_lines} rows, but the table has {num_rows:.0f}, so a row would be "
                "in it twice; sum over at most as many."
            )
        self.host.row_size = total.row_size


def _alike(layout: Layout, other: Layout) -> bool:
    return (layout.tree, layout.shapes) == (other.tree, other.shapes)


def optax(
    method: Protector | NamedProtector | str | Path | GradientTransformation,
    budget: Budget,
    *,
    params: Any,
    num_rows: int,
    num_steps: int | None = None,
    sampling_rate: float | None = None,
    clip_norm: float | None = None,
    trainable: Callable[[str], bool] | None = None,
    accountant: str | None = None,
    key: jax.Array | None = None,
    ledger: Ledger | str | Path | None = None,
) -> PrivateTransformation:
    """An optax transformation that spends a budget over a planned number of updates.

    Args:
      method: a hand-designed method that asks for one gradient at each point (noisygd, dpsgd, auto_clip, sgd_ma), or
        an optax optimizer, which gets the noised mean gradient.
      budget: what the whole loop may spend.
      params: where the loop starts: a pytree of arrays.
      num_rows: N of the table, public by declaration.
      num_steps: the most updates; default the method's own.
      sampling_rate: with which each row is in a batch, independently (Poisson); 1 for all rows in every batch. Default
        the method's own; for an optax optimizer both are needed.
      clip_norm: of an optax optimizer's gradients; methods have their own.
      trainable: true for the paths of parameters that are trained; default all arrays.
      accountant: as in `l2p.private_train`.
      key: None is a release. A JAX key makes it a simulation, whose noise whoever has the key can undo.
      ledger: of this data set. The most that the loop may spend is reserved now, and settled by `card()`.

    Raises:
      InputError: an argument does not fit.

    >>> own = optax("noisygd", Budget(1.0, 1e-5), params=jnp.zeros(2), num_rows=900)
    >>> state = own.init(jnp.zeros(2))
    >>> round(own.clipping.norm, 6), own.card().steps
    (1.0, 0)
    """
    if not isinstance(budget, Budget):
        raise InputError(
            "a private loop needs a budget, for which there is no default; pass l2p.Budget(1.0, 1e-6) second."
        )
    ledger = None if ledger is None else open_ledger(ledger, releases=key is None)
    if not (isinstance(num_rows, (int, np.integer)) and num_rows > 0):
        raise InputError(
            f"num_rows is {num_rows!r}, but means and noise depend on the public number of rows; declare a whole "
            "number of them."
        )
    budget.check_rows(num_rows)
    parameters, _ = split(params, trainable)
    model = CustomLoss.stand_in(REHEARSED, 1)
    own = _own_optimizer(method, num_steps, sampling_rate, clip_norm)
    if own is None and clip_norm is not None:
        raise InputError(
            f"clip_norm is {clip_norm!r}, but a method clips as it was designed to; leave it out, or pass an optax "
            "optimizer."
        )
    named = admit(own or method, budget, model, accountant).for_rows(num_rows)  # pyrefly: ignore[bad-argument-type]
    named = _declared(named, model, num_steps, sampling_rate, accountant)
    protector = _fitting(named)
    named, filter, setup, warnings = set_up(named, budget, model, 1, num_rows)
    planned = granted_queries(protector, setup, 1)
    clipping = _clipping(protector, setup, [answer.clip_norm for answer in planned], trainable)
    running: Protector = protector
    if own is not None:
        named = dataclasses.replace(named, name="optax")
        running = dataclasses.replace(protector, projector=Given(method, layout_of(parameters)))  # pyrefly: ignore[bad-argument-type]
    reservation = None
    if ledger is not None:
        ledger.budget.check_rows(num_rows)
        purpose = f"a loop with {named.name}, epsilon {budget.epsilon:g}, delta {budget.delta:g}"
        reservation = Reservation.make(ledger, filter, protector.mechanisms, purpose)
    model = CustomLoss.stand_in(parameters.trained.size, 1)
    host = HostSide(filter, planned, str(model), num_rows, key, reservation, [*budget.warnings(), *warnings])
    return _transformation(_Plan(named, running, setup.replace(model=model), layout_of(parameters), clipping, host))


def _own_optimizer(
    method: Any, num_steps: int | None, sampling_rate: float | None, clip_norm: float | None
) -> Stepwise | None:
    """What stands for an optax optimizer while noise is planned; None for a method of l2p's."""
    if not (callable(getattr(method, "init", None)) and callable(getattr(method, "update", None))):
        return None
    if hasattr(method, "pre_clipping_transform") or not isinstance(method, GradientTransformation):
        raise InputError(
            f"{type(method).__name__} changes gradients before they are clipped, or is no optax transformation, and "
            "clipped sums are of plain gradients; pass an optax.GradientTransformation, such as optax.adam(1e-3)."
        )
    if isinstance(method, PrivateTransformation):
        raise InputError("an optimizer that adds noise itself would add it twice; pass the optimizer inside it.")
    declared = {"num_steps": num_steps, "sampling_rate": sampling_rate, "clip_norm": clip_norm}
    if lacking := [name for name, value in declared.items() if value is None]:
        raise InputError(
            f"{lacking[0]} is missing, and an optax optimizer does not say it; declare num_steps, sampling_rate and "
            "clip_norm from public knowledge."
        )
    scheduler = Decaying(log_clip_norm=log_constant(Clipping(clip_norm).norm), rate=jnp.array([0.0]))  # pyrefly: ignore[bad-argument-type]
    return Stepwise(scheduler, Optax("sgd", {"learning_rate": log_constant(1.0)}))


def _declared(
    named: NamedProtector,
    model: CustomLoss,
    num_steps: int | None,
    sampling_rate: float | None,
    accountant: str | None,
) -> NamedProtector:
    """The protector with the number of updates and the batches that were declared."""
    changes: dict[str, Any] = {}
    if num_steps is not None:
        if not (isinstance(num_steps, (int, np.integer)) and num_steps > 0):
            raise InputError(
                f"num_steps is {num_steps!r}, but noise is planned for a whole number of updates; name it."
            )
        changes["num_steps"] = int(num_steps)
    if sampling_rate is not None:
        changes["sampler"] = FullBatch() if sampling_rate == 1 else Poisson(sampling_rate)
    protector = named.protector
    if all(getattr(protector, name, None) == value for name, value in changes.items()):
        return named
    _fitting(named)  # others may have no such fields
    return describe(protector.replace(**changes), type(protector).__name__, model, accountant)


def _fitting(named: NamedProtector) -> Stepwise:
    """The protector, if a loop can ask what it asks: one gradient for each update, where the loop stands.

    Raises:
      InputError: it asks for anything else.
    """
    protector = named.protector
    if not isinstance(protector, Stepwise):
        wants = "asks for losses, or for gradients at points of its own, between two updates"
    elif protector.purchases or protector.norm_query is not None:
        wants = "buys more than the gradient of each update"
    elif protector.averaging is not None or type(protector.projector).at_end is not Projector.at_end:
        wants = "ends with other params than those of its last update"
    elif protector.adaptive_noise:
        wants = "chooses its noise by earlier answers, so that none can be planned"
    elif not isinstance(protector.sampler, (FullBatch, Poisson)):
        wants = f"draws its batches by {protector.sampler}"
    else:
        return protector
    raise InputError(
        f"protector {named.name!r} {wants}, which a loop that hands over one clipped sum at a time does not give; "
        f"{_FITTING}."
    )


def _clipping(
    protector: Stepwise, setup: Setup, norms: Sequence[float], trainable: Callable[[str], bool] | None
) -> Clipping:
    """What a protector asks the gradients of each update to be clipped to."""
    if len(norms) != protector.num_steps or min(norms) != max(norms):
        raise InputError(
            "this method's clip norm changes from update to update, or its budget ends before its updates do, and a "
            f"loop takes one plan; {_FITTING}."
        )
    plan = StepPlan(jnp.float32(1.0), jnp.float32(norms[0]))
    query: Query = protector.query(jnp.zeros(REHEARSED), FeatureMap.identity(1), plan, setup)
    if type(query) not in (ClippedGradient, NormalizedGradient):
        raise InputError(f"{query.name} is no sum of clipped gradients, which is all that a loop gives; {_FITTING}.")
    stability = float(query.stability) if isinstance(query, NormalizedGradient) else None
    return Clipping(float(norms[0]), stability, trainable)


def _transformation(plan: _Plan) -> PrivateTransformation:
    """The transformation of a loop that is planned."""

    def init(params: Any) -> LoopState:
        with jax.enable_x64(False):
            nothing = Rows(jnp.zeros((1, 1)), jnp.zeros(1), jnp.zeros(1))
            _, vector = plan.vector(params)
            run, _ = start(plan.running, vector, nothing, plan.setup, Simulation(jax.random.key(0)))
            return LoopState(run.state, run.spending, run.step, run.alive, jnp.zeros((), jnp.int32))

    def update(total: Any, state: LoopState, params: Any = None, **others: Any) -> tuple[Any, LoopState]:
        del others  # optax hands on what other transformations of a chain take
        if params is None:
            raise InputError(
                "update got no params, by which it knows what is trained; pass them as its third argument."
            )
        plan.check(total)
        plan.host.refuse_beyond(state.count)
        with jax.enable_x64(False):
            parameters, vector = plan.vector(params)
            noise = AddedByHost(plan.host, state.count)
            run = Run(vector, state.method, state.spending, state.step, state.alive)
            run, _ = take_step(plan.running, run, _Handed(total), plan.setup, noise, None)
            updates = _updates(run.params - vector, parameters)
            return updates, LoopState(run.state, run.spending, run.step, run.alive, noise.count)

    return PrivateTransformation(init, update, plan.clipping, lambda: plan.host.card(plan.named))


@dataclasses.dataclass(frozen=True, repr=False)
class _Handed(Reader):
    """The rows of a loop, which come added up.

    Attributes:
      handed: the clipped sum over the batch of this update.
    """

    handed: ClippedSum
    skips_refused = False

    @property
    def num_lines(self) -> int:  # type: ignore[override]
        return self.handed.num_lines

    def sum(self, query: Query, batch: Batch | None, weights: jax.Array | None) -> jax.Array:
        return self.handed.total

    def exact_sum(self, query: Query, batch: Batch | None, weights: jax.Array | None) -> NoReturn:
        raise TypeError("the sums of a loop are those of float32.")


def _updates(changes: jax.Array, parameters: Parameters) -> Any:
    """Changes f32[p] as a pytree like params: zeros for arrays that are not trained, None for what is no array."""
    trained = dataclasses.replace(parameters.trained, dtypes=("float32",) * len(parameters.names)).tree_of(changes)
    leaves = iter(trained)

    def of(leaf: Any) -> Any:
        if leaf is None:
            return next(leaves)
        return jnp.zeros_like(leaf) if isinstance(leaf, (np.ndarray, jax.Array)) else None

    return jax.tree.unflatten(parameters.tree, list(map(of, parameters.frozen)))
