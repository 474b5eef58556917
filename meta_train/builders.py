"""Starting points of meta-training."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from l2p.protector import Protector
from l2p.protectors import (
    AGD,
    Centering,
    Decaying,
    LSTMProjector,
    LSTMScheduler,
    MixProjector,
    Optax,
    ShareScheduler,
    Stepwise,
)
from l2p.protectors.networks import init_mlp
from l2p.protectors.projectors import COORDINATE_INPUTS, MEMORY


def _quadratic(*constants: float) -> jax.Array:
    """Coefficients f32[3, ...] of quadratics in log(mu N) that start as the given constants."""
    start = jnp.zeros((3, len(constants))).at[0].set(jnp.array(constants))
    return start[:, 0] if len(constants) == 1 else start


def noisygd(key: jax.Array) -> Stepwise:
    """NoisyGD whose every constant is a function of the budget: learning rate, momentum, clipping, decay, averaging."""
    del key
    return Stepwise(
        scheduler=Decaying(log_clip_norm=_quadratic(0.5), rate=_quadratic(0.0)),
        projector=Optax("sgd", {"learning_rate": _quadratic(-1.0), "momentum": _quadratic(1.0)}),
        averaging=_quadratic(0.0),
    )


def control(key: jax.Array) -> Stepwise:
    """Constants as functions of the budget, with the private feature mean: what learning has to beat."""
    del key
    return Stepwise(
        scheduler=ShareScheduler(share=_quadratic(0.0, 0.0), log_clip_norm=_quadratic(0.5, 0.0)),
        projector=MixProjector(
            log_learning_rate=_quadratic(0.5, 0.0), mix=_quadratic(*[1.0 * (rate == 0.8) for rate in MEMORY])
        ),
        centering=Centering(
            logit_share=_quadratic(-2.5), row_norm=jnp.array(0.5, jnp.float32), target_norm=jnp.array(2.5, jnp.float32)
        ),
        averaging=_quadratic(0.0),
    )


def census(key: jax.Array) -> Stepwise:
    """`control` with zero-initialised networks on top: schedule, learning rate and mixture, and every coordinate."""
    base = control(key)
    schedule, tensor, coordinate = jax.random.split(key, 3)
    projector = base.projector.replace(
        tensor_network=init_mlp(tensor, (2, 16, len(MEMORY) + 1)),
        coordinate_network=init_mlp(coordinate, (COORDINATE_INPUTS, 24, 12, len(MEMORY) + 1)),
    )
    return base.replace(
        scheduler=base.scheduler.replace(network=init_mlp(schedule, (2, 16, 2))), projector=projector
    )


def paper(key: jax.Array) -> Stepwise:
    """The LSTM pair of Hong et al. (2021)."""
    scheduler, projector = jax.random.split(key)
    return Stepwise(LSTMScheduler.create(scheduler, clip_norm=1.0), LSTMProjector.create(projector))


def agd(key: jax.Array) -> AGD:
    """AGD with Gumbel selection, from guesses near what its authors call for when the budget allows few steps."""
    del key
    settings = {
        "log_gradient_share": -4.0,
        "log_selection_share": -5.0,
        "log_increase": -1.5,
        "log_gradient_clip": 0.0,
        "log_loss_clip": 0.7,
        "log_max_step": 0.0,
        "log_regularization": -7.0,
    }
    lines = {name: jnp.array([setting, 0.0], jnp.float32) for name, setting in settings.items()}
    return AGD(**lines, selection="gumbel", num_steps=256)


BUILDERS: dict[str, Callable[[jax.Array], Protector]] = {
    "noisygd": noisygd,
    "control": control,
    "census": census,
    "paper": paper,
    "agd": agd,
}


def warm_start(start: Protector, source: Protector) -> Protector:
    """`start` with every parameter that `source` has too, by path and shape."""
    known = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(source)}

    def take(path, leaf: jax.Array) -> jax.Array:
        found = known.get(jax.tree_util.keystr(path))
        return leaf if found is None or found.shape != leaf.shape else jnp.asarray(found)

    return jax.tree_util.tree_map_with_path(take, start)
