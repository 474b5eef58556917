"""Random search, for protectors whose choices have no gradient (AGD's step sizes are picked by a noisy minimum)."""

import jax
import jax.numpy as jnp
from flax import struct

from l2p.models import MODELS
from l2p.protector import Protector
from meta_train.config import MetaConfig
from meta_train.family import TaskFamily
from meta_train.objective import setups_for, whole_run

#: Standard deviation of the first candidates around the start, and of the last ones around the best so far.
SPREAD = (1.5, 0.1)


@struct.dataclass
class SearchState:
    """The best candidate so far and its score f32[] on the search's tasks."""

    protector: Protector
    best_score: jax.Array


def init(protector: Protector) -> SearchState:
    """The state before the first candidate."""
    return SearchState(protector, jnp.array(jnp.inf))


def update(
    state: SearchState, step: jax.Array, config: MetaConfig, family: TaskFamily, num_features: int
) -> tuple[SearchState, dict[str, jax.Array]]:
    """Try one candidate. All meet the same tasks and noise, so that the difference is theirs; the first is the start.

    The number of features does not change between candidates for the same reason.
    """
    model = MODELS["logistic"]
    key = jax.random.key(config.seed)
    spread = SPREAD[0] * (SPREAD[1] / SPREAD[0]) ** (step / config.steps)
    candidate = jax.tree.map(jnp.add, state.protector, _noise(jax.random.fold_in(key, step), state.protector, spread))
    candidate = jax.tree.map(lambda new, old: jnp.where(step == 0, old, new), candidate, state.protector)
    batch = family.sample(key, model, config.tasks, config.rows, num_features, config.log_signal)
    setups = setups_for(batch, model, config.accountant, capped=True)
    keys = jax.random.split(key, config.tasks)
    scores, _ = jax.vmap(whole_run, (None, 0, 0, 0, 0))(candidate, batch.rows, batch.best_loss, setups, keys)
    score = jnp.nan_to_num(scores.mean(), nan=jnp.inf)
    better = score < state.best_score
    kept = jax.tree.map(lambda new, old: jnp.where(better, new, old), candidate, state.protector)
    return SearchState(kept, jnp.minimum(score, state.best_score)), {"score": score, "best_score": state.best_score}


def _noise(key: jax.Array, protector: Protector, spread: jax.Array) -> Protector:
    """Gaussian steps; a polynomial's slope moves half as much as its constant, and half of all fields stay."""
    leaves, tree = jax.tree.flatten(protector)
    steps = []
    for index, leaf in enumerate(leaves):
        noise_key, stay_key = jax.random.split(jax.random.fold_in(key, index))
        scale = spread * 0.5 ** jnp.arange(leaf.shape[0])
        steps.append(scale * jax.random.normal(noise_key, leaf.shape) * jax.random.bernoulli(stay_key))
    return jax.tree.unflatten(tree, steps)
