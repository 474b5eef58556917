"""Starting points of a meta-training, as its config says."""

import dataclasses

import jax
import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.checkpoints.control import constants_checkpoint
from l2p.checkpoints.named import describe
from l2p.models import Model
from l2p.privacy.budget import Budget
from l2p.privacy.cost.sampling import Poisson
from l2p.privacy.events import Adjacency
from l2p.protectors import HAND_DESIGNED, Stepwise
from l2p.protectors.learned.tunable import lift, tunable
from l2p.run.protector import Protector
from meta_train.config import MetaConfig, OwnConstants
from meta_train.config.parts import AnyStart, Simulated
from meta_train.evaluation.budgets import epsilon_for, sized
from meta_train.training.untrained import BUILDERS


def starting_point(config: MetaConfig) -> Protector:
    """The protector that meta-training starts from, with batches for the rows of a task.

    Raises:
      InputError: there is no such starting point, none of its fields can be tuned, or it cannot train the model.
    """
    start_config, tasks = config.start, config.tasks
    model, name = tasks.one_model(), start_config.protector
    if isinstance(start_config, AnyStart) and start_config.coefficients is not None:
        lifted = _lifted(name, start_config.coefficients, model, config.simulated, tasks.log_signal)
        start = sized(lifted, tasks.rows)
    elif name in BUILDERS:
        start = BUILDERS[name](jax.random.key(config.outer.seed))
    else:
        raise InputError(
            f"there is no starting point {name!r}; choose one of {', '.join(BUILDERS)}, or set "
            f"coefficients to start from a hand-designed method: {', '.join(HAND_DESIGNED)}."
        )
    if isinstance(start, Stepwise) and not model.has_intercept:
        # Rows are not centred then, so the parameters of the mean's query would ship untrained.
        start = _without_moments(start)
    if tasks.rates:
        start = start.replace(sampler=Poisson(tasks.rates[0]))
    if start_config.num_steps is not None:
        start = start.replace(num_steps=start_config.num_steps)
    describe(start, name, model)
    if not any(jax.tree.leaves(tunable(start))):
        raise InputError(f"protector {name!r} has no field that can be tuned; choose another one.")
    if start_config.warm_start is None:
        return start
    find = constants_checkpoint if isinstance(config, OwnConstants) else checkpoint.load
    return warm_start(start, find(start_config.warm_start).protector)


def _without_moments(start: Stepwise) -> Stepwise:
    """`start` without its queries for the features' means and moments."""
    remaining = tuple(purchase for purchase in start.purchases if purchase.is_free or not purchase.maps_rows)
    return dataclasses.replace(start, purchases=remaining)


def _lifted(
    name: str, coefficients: int, model: Model, simulated: Simulated, log_signal: tuple[float, float]
) -> Protector:
    """A hand-designed method with the settings it has at budgets over the range, interpolated by polynomials."""
    if name not in HAND_DESIGNED:
        raise InputError(
            f"protector {name!r} is not a hand-designed method, and only these take coefficients; "
            f"choose one of {', '.join(HAND_DESIGNED)}, or leave out coefficients."
        )
    method = HAND_DESIGNED[name]

    def at(epsilon: float) -> Protector:
        adjacency = Adjacency.ZERO_OUT if method.adjacency is None else method.adjacency
        budget = Budget(epsilon, simulated.delta, adjacency)
        method.check_paper_terms(name, budget, simulated.accountant)
        return method(budget, model, simulated.simulated_rows, simulated.accountant)

    any_budget = at(1.0)
    if "none" in any_budget.mechanisms:
        raise InputError(f"protector {name!r} is not private and has nothing to tune; choose another one.")
    # The ends of the range are included: settings that depend on the budget differ most there.
    low, high = log_signal
    last = coefficients - 1
    signals = [low + (high - low) * (index / last if last else 0.5) for index in range(coefficients)]
    return lift([at(epsilon_for(simulated, any_budget, signal)) for signal in signals], signals)


def warm_start(start: Protector, source: Protector) -> Protector:
    """`start` with the values from `source` of every parameter and constant that `source` has with the same path and
    shape."""
    source_leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(source)}

    def take(path, leaf: jax.Array) -> jax.Array:
        source_leaf = source_leaves.get(jax.tree_util.keystr(path))
        return leaf if source_leaf is None or source_leaf.shape != leaf.shape else jnp.asarray(source_leaf)

    return jax.tree_util.tree_map_with_path(take, start)


def between(start: Protector, trained: Protector, kept: float) -> Protector:
    """`trained` with this share of what it changed of the numbers of `start` that may be tuned; all of it is `trained`
    itself.

    >>> from l2p.protectors import Decaying
    >>> start, trained = (Decaying(jnp.array([clip]), jnp.array([0])) for clip in (1.0, 3.0))
    >>> between(start, trained, 0.25).log_clip_norm.tolist()
    [1.5]
    """
    if kept == 1:
        return trained

    def mix(may_be_tuned: bool, before: jax.Array, after: jax.Array) -> jax.Array:
        return before + kept * (after - before) if may_be_tuned else after

    return jax.tree.map(mix, tunable(start), start, trained)
