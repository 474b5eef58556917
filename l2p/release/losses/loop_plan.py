"""What a loop of one's own is planned for: the methods that it can follow, its noise, clipping and batches."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from optax import GradientTransformation

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.base.layout import Layout
from l2p.checkpoints.named import NamedProtector, describe
from l2p.models.custom import CustomLoss, Parameters
from l2p.oracle.setup import Setup
from l2p.privacy.cost.sampling import FullBatch, Poisson
from l2p.privacy.events import Adjacency
from l2p.protectors.hand_designed import log_constant
from l2p.protectors.stepwise.projectors import Optax, Projector
from l2p.protectors.stepwise.schedulers import Decaying, Observation, StepPlan
from l2p.protectors.stepwise.stepwise import Stepwise
from l2p.queries import ClippedGradient, NormalizedGradient, Query
from l2p.release.losses.clipped_sum import ClippedSum, Clipping, layout_of
from l2p.release.losses.custom import split
from l2p.release.losses.loop_noise import HostSide
from l2p.run.protector import Protector
from l2p.task.feature_map import FeatureMap

#: Parameters of the stand-in that a plan is rehearsed on: noise does not depend on how many there are.
REHEARSED = 64
#: What every refusal of a method advises.
_FITTING = "choose noisygd, dpsgd, auto_clip or an optax optimizer, or train with l2p.private_train"


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


class LoopPlan(NamedTuple):
    """A loop that passed every check, before its first update.

    Attributes:
      named: the method as its card has it.
      running: the protector that updates.
      setup: the public facts.
      layout: of the trained parameters, None in place of others.
      clipping: what sums are to be made with.
      host: what adds noise and counts.
    """

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


def own_optimizer(
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
    if hasattr(method, "clipping"):
        raise InputError(
            "a transformation that l2p.optax made adds noise itself, and would get no clipped sum; pass the optimizer "
            "that it was made of."
        )
    declared = {"num_steps": num_steps, "sampling_rate": sampling_rate, "clip_norm": clip_norm}
    if lacking := [name for name, value in declared.items() if value is None]:
        raise InputError(
            f"{lacking[0]} is missing, and an optax optimizer does not say it; declare num_steps, sampling_rate and "
            "clip_norm from public knowledge."
        )
    scheduler = Decaying(log_clip_norm=log_constant(Clipping(clip_norm).norm), rate=jnp.array([0.0]))  # pyrefly: ignore[bad-argument-type]
    return Stepwise(scheduler, Optax("sgd", {"learning_rate": log_constant(1.0)}))


def declared(
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
        if not isinstance(sampling_rate, (int, float, np.number)):
            raise InputError(
                f"sampling_rate is {sampling_rate!r}, but is the probability with which a row is in a batch; pass a "
                "number above 0, and 1 for all rows in every batch."
            )
        changes["sampler"] = FullBatch() if sampling_rate == 1 else Poisson(sampling_rate)
    protector = named.protector
    if all(getattr(protector, name, None) == value for name, value in changes.items()):
        return named
    fitting(named)  # others may have no such fields
    return describe(protector.replace(**changes), type(protector).__name__, model, accountant)


def fitting(named: NamedProtector) -> Stepwise:
    """The protector, if a loop can ask what it asks: one gradient for each update, where the loop stands.

    Raises:
      InputError: it asks for anything else.
    """
    protector = named.protector
    if not isinstance(protector, Stepwise) or type(protector).step is not Stepwise.step:
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


def clipping_of(
    protector: Stepwise,
    setup: Setup,
    norms: Sequence[float],
    trainable: Callable[[str], bool] | None,
    per_tensor: Callable[[str], float] | None,
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
    padded = not isinstance(setup.price_list.sampler, FullBatch)
    return Clipping(float(norms[0]), stability, trainable, padded, per_tensor)
