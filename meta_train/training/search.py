"""Random search, for protectors with choices that have no gradient (AGD picks step sizes by a noisy minimum)."""

import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.protectors.learned.tunable import around
from l2p.run.protector import Protector
from meta_train.config.drawn import Shape, Tasks
from meta_train.config.parts import Outer, Scoring
from meta_train.evaluation.budgets import Budgets
from meta_train.evaluation.resolved import Resolved
from meta_train.evaluation.scores import whole_run
from meta_train.tasks.family import TaskBatch

#: Standard deviation of the first candidates around the start, and of the last candidates around the best so far.
SPREAD = (1.5, 0.1)


@struct.dataclass
class SearchState:
    """The best candidate so far and its score f32[] on the search's tasks."""

    protector: Protector
    best_score: jax.Array


def init(protector: Protector) -> SearchState:
    """The state before the first candidate."""
    # With an explicit dtype: a weakly typed first state would cause a second compilation.
    return SearchState(protector, jnp.array(jnp.inf, jnp.float32))


def compiled(
    tasks: Tasks, resolved: Mapping[Shape, Resolved], outer: Outer, scoring: Scoring
) -> Callable[[SearchState, int], tuple[SearchState, dict]]:
    """One outer step: try one candidate. All candidates get the same tasks and noise, so that differences are due to
    the candidates; a shape that is listed twice would have the same tasks twice, and counts once."""
    key, models = jax.random.key(outer.seed), [of_shape.model for of_shape in resolved.values()]
    batches = [
        jax.jit(functools.partial(of_shape.train.sample, **tasks.arguments(shape), model=of_shape.model))(
            jax.random.fold_in(key, shape.num_features or 0)
        )
        for shape, of_shape in resolved.items()
    ]
    simulations = [of_shape.budgets for of_shape in resolved.values()]

    @jax.jit
    def update(
        state: SearchState, step: jax.Array, batches: list[TaskBatch], budgets: list[Budgets]
    ) -> tuple[SearchState, dict]:
        spread = SPREAD[0] * (SPREAD[1] / SPREAD[0]) ** (step / outer.steps)
        # The first candidate is the start itself.
        candidate = around(state.protector, jnp.where(step == 0, 0.0, spread), jax.random.fold_in(key, step))
        scores = []
        for model, batch, simulated in zip(models, batches, budgets, strict=True):
            rows, setups = simulated.simulate(batch, model, capped=True)
            keys = jax.random.split(key, tasks.tasks)
            run = jax.vmap(functools.partial(whole_run, scoring=scoring), (None, 0, 0, 0, 0, 0))
            scores.append(run(candidate, rows, batch.best_loss, setups, keys, batch.scored)[0].value)
        score = jnp.nan_to_num(jnp.stack(scores).mean(), nan=jnp.inf)
        better = score < state.best_score
        best_protector = jax.tree.map(lambda new, old: jnp.where(better, new, old), candidate, state.protector)
        best = jnp.minimum(score, state.best_score)
        return SearchState(best_protector, best), {"score": score, "best_score": best}

    return lambda state, step: update(state, jnp.array(step), batches, simulations)
