"""Private meta-optimisation (Hong et al. 2021): settings learned on the private rows themselves, and charged.

It needs no public data. The table is cut into blocks of rows, each a small task that represents the whole table; a
protector's settings are tuned by gradient descent on noised sums of the blocks' clipped meta-gradients, and the run
goes on with the rest of the budget. The whole descent is one query, since outer steps with equal Gaussian noise compose
exactly.
"""

import dataclasses
import math
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import optax

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import NAMES, Model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.cost.sampling import FullBatch
from l2p.privacy.events import Adjacency
from l2p.protectors.by_hand.gradient_descent import noisygd
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.learned.tunable import tunable
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.schedulers import noise_for_share
from l2p.queries.base import Query, limit_norm, positive, within
from l2p.run.protector import Protector
from l2p.run.run import Simulation, advance, start
from l2p.run.simulate import mean_loss
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import GRID_STEPS, HostNoise, Noise
from l2p.task.rows import Rows, in_blocks

#: Smallest number of rows of a block: fewer tell nothing about a run.
MIN_ROWS = 32


def to_vector(protector: Protector) -> jax.Array:
    """The tunable numbers, f32[q]."""
    leaves = zip(jax.tree.leaves(protector), jax.tree.leaves(tunable(protector)), strict=True)
    return jnp.concatenate([jnp.ravel(leaf) for leaf, allowed in leaves if allowed])


def from_vector(vector: jax.Array, protector: Protector) -> Protector:
    """The protector with its tunable numbers replaced by f32[q]."""
    leaves, tree = jax.tree.flatten(protector)
    replaced, offset = [], 0
    for leaf, allowed in zip(leaves, jax.tree.leaves(tunable(protector)), strict=True):
        size = leaf.size if allowed else 0
        replaced.append(vector[offset : offset + size].reshape(leaf.shape) if allowed else leaf)
        offset += size
    return jax.tree.unflatten(tree, replaced)


@struct.dataclass
class MetaDescent(Query):
    """A protector's settings after gradient descent, f32[q], with Gaussian noise on each meta-gradient.

    A row lies in one block, so another row in its place, or none, moves one clipped meta-gradient, from anywhere in a
    ball of radius `clip_norm` to anywhere else in it: by twice that. K such answers with noise multiplier m sqrt(K),
    each depending on those before, cost as much as one with m. Blocks are of consecutive lines, which a row that is
    added would shift, so `add_remove` is refused.

    Attributes:
      protector: whose settings are learned; full batch.
      setup: of the runs simulated on blocks: that of the main run, with the budget that it will have.
      clip_norm: f32[], L2 bound on a block's meta-gradient; above 0.
      learning_rate: f32[], of Adam; any value, because Adam only sees noised answers.
      noise_multiplier: f32[], noise standard deviation over the sensitivity, of all outer steps together.
      num_outer: K (static); at least 1.
      num_blocks: number of tasks that the table is cut into (static); at least 1.
    """

    protector: Protector
    setup: Setup
    clip_norm: jax.Array
    learning_rate: jax.Array
    noise_multiplier: jax.Array
    num_outer: int = struct.field(pytree_node=False)
    num_blocks: int = struct.field(pytree_node=False)
    name: ClassVar[str] = "meta_descent"
    mechanism: ClassVar[str] = "gaussian"
    additive: ClassVar[bool] = False

    @property
    def bound(self) -> jax.Array:
        if min(self.num_outer, self.num_blocks) < 1:
            raise ValueError(f"{self.num_outer} outer steps over {self.num_blocks} blocks learn nothing; take one.")
        return within(2.0 * self.clip_norm, positive(self.clip_norm))

    def empty(self) -> jax.Array:
        return jnp.zeros_like(to_vector(self.protector))

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        raise TypeError(f"{self.name} adds noise at every step, so there is no sum to add it to at the end.")

    def answer(self, rows: Rows, noise: Noise, adjacency: Adjacency) -> jax.Array:
        if adjacency is Adjacency.ADD_REMOVE:
            raise InputError(
                "private meta-optimisation cuts the table into blocks of lines, all of which shift where a row is "
                "added, so there is no guarantee under add_remove; choose zero_out or replace_one."
            )
        begin, dtype = to_vector(self.protector), rows.x.dtype
        single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), rows)
        blocks = in_blocks(single, -(-rows.y.shape[0] // self.num_blocks))
        scale = self.noise_multiplier * math.sqrt(self.num_outer) * self.bound
        noises = scale * noise.standard(self.mechanism, (self.num_outer, begin.size))
        # Rounding to the grid may lengthen a meta-gradient, so it is first limited to less than the bound.
        shrink = 1.0 - (begin.size**0.5 + 2.0) / GRID_STEPS
        optimizer = optax.adam(self.learning_rate)

        def outer(carry: tuple, piece: tuple) -> tuple[tuple, None]:
            vector, moments = carry
            index, noise_now = piece
            clipped = limit_norm(self.meta_gradients(vector, blocks, index).astype(dtype), self.clip_norm * shrink)
            total = (noise.on_grid(clipped) if isinstance(noise, HostNoise) else clipped).sum(0)
            # Rounded after the sum: if the noise were rounded first, the digits of the sum below that grid would have
            # none.
            mean = (noise.coarse(total + noise_now, scale) / blocks.y.shape[0]).astype(jnp.float32)
            updates, moments = optimizer.update(mean, moments)
            return (vector + cast(jax.Array, updates), moments), None

        (ended, _), _ = jax.lax.scan(outer, (begin, optimizer.init(begin)), (jnp.arange(self.num_outer), noises))
        return ended

    @jax.enable_x64(False)
    def meta_gradients(self, vector: jax.Array, blocks: Rows, index: jax.Array) -> jax.Array:
        """Gradients of the final loss of a run on each block: f32[blocks, q]. The noise of these runs is public."""
        # A block's rows are weighted so that they count as N rows, so its run is as noisy as the real one.
        weight = self.setup.num_rows / blocks.y.shape[1]
        key = jax.random.fold_in(jax.random.key(0), index)

        def final_loss(vector: jax.Array, rows: Rows) -> jax.Array:
            protector = from_vector(vector, self.protector)
            rows = dataclasses.replace(rows, mask=rows.mask * weight)
            params = self.setup.model.init(rows.x.shape[1])
            initial, _ = start(protector, params, rows, self.setup, Simulation(key))
            final, _, _ = advance(protector, initial, rows, self.setup, Simulation(key), protector.num_steps)
            return mean_loss(protector.finish(final.params, final.state, self.setup), self.setup.model, rows)

        return jax.lax.map(lambda rows: jax.grad(final_loss)(vector, rows), blocks, batch_size=16)


@struct.dataclass
class PrivateMeta(Protector):
    """A protector whose settings are first learned on the private rows, for a share of the budget.

    Attributes:
      inner: the protector and the settings to start from.
      logit_share: f32[k], logit of the share of the budget that learning costs, a polynomial in log(mu N).
      log_clip_norm: f32[k], log of the clipping norm of a block's meta-gradient.
      log_learning_rate: f32[k], log of Adam's learning rate.
      num_outer: outer steps (static).
      num_blocks: tasks that the table is cut into (static).
    """

    inner: Protector
    logit_share: Polynomial
    log_clip_norm: Polynomial
    log_learning_rate: Polynomial
    num_outer: Count = struct.field(pytree_node=False, default=10)
    num_blocks: Count = struct.field(pytree_node=False, default=256)
    models = NAMES
    additive = False
    reads_in_order = True

    @property
    def num_steps(self) -> int:  # type: ignore[override]
        return self.inner.num_steps

    @property
    def mechanisms(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys((MetaDescent.mechanism, *self.inner.mechanisms)))

    def misfit(self) -> str | None:
        """Reason why its parts do not fit together; None if they do."""
        return "learns the settings of what learns settings" if isinstance(self.inner, PrivateMeta) else None

    def check_model(self, model: Model) -> None:
        if not isinstance(self.inner.sampler, FullBatch):
            raise InputError(
                f"private meta-optimisation simulates runs on blocks of the table, and batches of {self.inner.sampler} "
                "are planned for all of it; choose an inner protector that reads the full batch."
            )
        self.inner.check_model(model)

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, Any]:
        setup = oracle.setup
        share = jax.nn.sigmoid(value(self.logit_share, setup.log_signal))
        multiplier = noise_for_share(oracle, share)
        remaining = setup.price_list.budget * (1.0 - share) * oracle.left
        rest = dataclasses.replace(
            setup,
            price_list=dataclasses.replace(setup.price_list, budget=remaining),
            cap=jnp.asarray(remaining, jnp.float32),
        )
        learned = oracle.ask(
            MetaDescent(
                self.inner,
                rest,
                jnp.exp(value(self.log_clip_norm, setup.log_signal)),
                jnp.exp(value(self.log_learning_rate, setup.log_signal)),
                multiplier,
                self.num_outer,
                self.num_blocks,
            )
        )
        settings = jnp.where(oracle.refused, to_vector(self.inner), learned)
        params, state = from_vector(settings, self.inner).init(params, oracle)
        return params, (settings, state)

    def view(self, state: Any) -> FeatureMap | None:
        settings, inner = state
        return from_vector(settings, self.inner).view(inner)

    def step(self, params: jax.Array, state: Any, oracle: Oracle) -> tuple[jax.Array, Any]:
        settings, inner = state
        params, inner = from_vector(settings, self.inner).step(params, inner, oracle)
        return params, (settings, inner)

    def finish(self, params: jax.Array, state: Any, setup: Setup) -> jax.Array:
        settings, inner = state
        return from_vector(settings, self.inner).finish(params, inner, setup)


@hand_designed()
def private_meta(problem: Problem) -> PrivateMeta:
    """DP-SGD with settings learned privately for 10 % of the budget.

    `noisygd` whose clipping norm, schedule, learning rate and momentum are learned privately, for a tenth of the
    budget, in ten outer steps over blocks of at least `MIN_ROWS` rows."""
    num_blocks = min(max((problem.num_rows or 10_000) // MIN_ROWS, 1), 1024)
    return PrivateMeta(
        inner=noisygd(problem),
        logit_share=logit_constant(0.1),
        log_clip_norm=log_constant(0.1),
        log_learning_rate=log_constant(0.1),
        num_blocks=num_blocks,
    )
