"""Private updates in a loop of one's own: an optax transformation that plans noise, adds it, counts, and gives a card.

The loop draws its batches and holds its rows; everything else is as in `l2p.private_train`: the same accountants, the
same oracle, noise from the same generator. What the loop has to vouch for stands on the card.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from optax import GradientTransformation

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.checkpoints.named import NamedProtector
from l2p.checkpoints.set_up import granted_queries, set_up
from l2p.models.custom import CustomLoss, Parameters
from l2p.oracle.readers import Reader
from l2p.privacy.budget import Budget
from l2p.privacy.cap.spending import Spending
from l2p.privacy.card.card import Card
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import open_ledger
from l2p.queries import Query
from l2p.release.admission import admit
from l2p.release.losses.clipped_sum import ClippedSum, Clipping, layout_of
from l2p.release.losses.custom import shares_of, starting_point
from l2p.release.losses.loop_noise import AddedByHost, HostSide
from l2p.release.losses.loop_plan import REHEARSED, Given, LoopPlan, clipping_of, declared, fitting, own_optimizer
from l2p.release.saved_run import open_run
from l2p.run.protector import Protector
from l2p.run.run import Run, Simulation, start, take_step
from l2p.task.noise import Batch
from l2p.task.rows import Rows


class PrivateTransformation(GradientTransformation):
    """An optax transformation that takes clipped sums (`l2p.clipped_sum`) and returns private updates.

    Attributes:
      clipping: what the sums are to be made with.
      plan: of the loop.
    """

    clipping: Clipping
    plan: LoopPlan

    @classmethod
    def of(cls, plan: LoopPlan, init: Callable, update: Callable) -> "PrivateTransformation":
        """The transformation of a plan."""
        transformation = cls(init, update)
        transformation.clipping, transformation.plan = plan.clipping, plan
        return transformation

    def batches(
        self, state: "LoopState | None" = None, num_lines: int | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The batches of all updates that are left, drawn from the loop's own randomness: lines of the table i32[n],
        from 0, and a mask bool[n], which is false for places that no row was drawn for.

        Args:
          state: that a loop goes on from; None for one that starts.
          num_lines: of the table; N where that is not private.

        >>> own = optax("dpsgd", Budget(1.0, 1e-5), params=jnp.zeros(2), num_rows=900, num_steps=5)
        >>> {lines.shape == mask.shape for lines, mask in own.batches()}, own.card().max_steps
        ({True}, 5)
        """
        if state is None:
            return self.plan.host.batches(0, num_lines)
        self.plan.host.refuse_other_plan(np.asarray(state.plan))
        return self.plan.host.batches(int(state.count), num_lines)

    def card(self) -> Card:
        """The privacy card of the loop, which ends here; settles its reservation in a ledger.

        Raises:
          InputError: it was given before.
        """
        return self.plan.host.card(self.plan.named)


@struct.dataclass
class LoopState(struct.Struct):
    """Between two updates. It may be saved, and a loop that was planned in the same way goes on from it and counts on.

    Attributes:
      method: state of the protector.
      spending: what has been spent.
      step: i32[], updates that led here.
      alive: bool[], False once an update was refused.
      count: i32[], answers of the whole loop so far, also of updates that were thrown away.
      plan: u32[8], digest of what was planned.
      loop: which began with it (static): a program traced for another loop, whose noise it adds, is traced anew.
    """

    method: Any
    spending: Spending
    step: jax.Array
    alive: jax.Array
    count: jax.Array
    plan: jax.Array
    loop: str = struct.field(pytree_node=False)


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
    per_tensor: Callable[[str], float] | None = None,
    accountant: str | None = None,
    key: jax.Array | None = None,
    ledger: Ledger | str | Path | None = None,
    resume: str | Path | None = None,
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
      per_tensor: as in `l2p.private_train`.
      accountant: as in `l2p.private_train`.
      key: None is a release. A JAX key makes it a simulation, whose noise whoever has the key can undo.
      ledger: of this data set. The most that the loop may spend is reserved now, and settled by `card()`.
      resume: a file, made if need be, that counts the answers. After its process was killed a loop that is planned
        again, with the same arguments, goes on from a state that it saved: under the same reservation, and answers
        that the state did not know of stay counted.

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
    parameters, _ = starting_point(params, trainable)
    shares_of(parameters, per_tensor)  # or the first sum would be the first to refuse it
    model = CustomLoss.stand_in(REHEARSED, 1)
    own = own_optimizer(method, num_steps, sampling_rate, clip_norm)
    if own is None and clip_norm is not None:
        raise InputError(
            f"clip_norm is {clip_norm!r}, but a method clips as it was designed to; leave it out, or pass an optax "
            "optimizer."
        )
    named = admit(own or method, budget, model, accountant).for_rows(num_rows)  # pyrefly: ignore[bad-argument-type]
    named = declared(named, model, num_steps, sampling_rate, accountant)
    protector = fitting(named)
    named, filter, setup, warnings = set_up(named, budget, model, 1, num_rows)
    planned = granted_queries(protector, setup, 1)
    clipping = clipping_of(protector, setup, [answer.clip_norm for answer in planned], trainable, per_tensor)
    running: Protector = protector
    if own is not None:
        named = dataclasses.replace(named, name="optax")
        running = dataclasses.replace(protector, projector=Given(method, layout_of(parameters)))  # pyrefly: ignore[bad-argument-type]
    model = CustomLoss.stand_in(parameters.trained.size, 1)
    host = HostSide(filter, planned, str(model), num_rows, key, [*budget.warnings(), *warnings])
    if resume is not None:
        if key is not None:
            raise InputError(
                "a simulated loop would draw the noise of its first answers again where it goes on; leave out resume, "
                "or the key."
            )
        host.count_in(open_run(resume, [named.name, host.digest.tolist()], ledger))
    if ledger is not None:
        ledger.budget.check_rows(num_rows)
        purpose = f"a loop with {named.name}, epsilon {budget.epsilon:g}, delta {budget.delta:g}"
        host.reserve(ledger, protector.mechanisms, purpose)
    return _transformation(LoopPlan(named, running, setup.replace(model=model), layout_of(parameters), clipping, host))


def _transformation(plan: LoopPlan) -> PrivateTransformation:
    """The transformation of a loop that is planned."""

    def init(params: Any) -> LoopState:
        with jax.enable_x64(False):
            nothing = Rows(jnp.zeros((1, 1)), jnp.zeros(1), jnp.zeros(1))
            _, vector = plan.vector(params)
            run, _ = start(plan.running, vector, nothing, plan.setup, Simulation(jax.random.key(0)))
            count, digest = jnp.zeros((), jnp.int32), jnp.asarray(plan.host.digest)
            return LoopState(run.state, run.spending, run.step, run.alive, count, digest, plan.host.loop)

    def update(total: Any, state: LoopState, params: Any = None, **others: Any) -> tuple[Any, LoopState]:
        del others  # optax hands on what other transformations of a chain take
        if params is None:
            raise InputError(
                "update got no params, by which it knows what is trained; pass them as its third argument."
            )
        plan.check(total)
        plan.host.refuse(state.count, state.plan)
        with jax.enable_x64(False):
            parameters, vector = plan.vector(params)
            noise = AddedByHost(plan.host, state.count, state.plan)
            run = Run(vector, state.method, state.spending, state.step, state.alive)
            run, _ = take_step(plan.running, run, _Handed(total), plan.setup, noise, None)
            updates = _updates(run.params - vector, parameters)
            return updates, LoopState(run.state, run.spending, run.step, run.alive, noise.count, state.plan, state.loop)

    return PrivateTransformation.of(plan, init, update)


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
