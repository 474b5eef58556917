"""Training as configured: what a config names is looked up once and handed on."""

import dataclasses
from collections.abc import Callable
from typing import Any

from l2p.checkpoints import checkpoint
from l2p.run.protector import Protector
from meta_train.config import MetaConfig, OwnConstants
from meta_train.config.drawn import Shape
from meta_train.config.learners import Evolution, MetaGradients, RandomSearch
from meta_train.evaluation.budgets import sized
from meta_train.evaluation.held_out import Evaluator, stand_in
from meta_train.evaluation.resolved import resolve
from meta_train.training import gradients, perturbed, search
from meta_train.training.tuned import check_tunes


@dataclasses.dataclass(frozen=True)
class Method:
    """A training that may begin.

    Attributes:
      state: before the first outer step.
      update: one outer step: (state, its number) -> (state, what is logged).
      evaluator: judges protectors on held-out tasks.
      counts: number of features of the tasks of each shape.
      compiles_networks: whether a step is a program of its own, beside those that judge.
    """

    state: Any
    update: Callable
    evaluator: Evaluator
    counts: dict[Shape, int]
    compiles_networks: bool


def method_for(config: MetaConfig, start: Protector) -> Method:
    """The method of a training, from this start.

    Raises:
      InputError: the start has nothing that is tuned, or a model, a source and the accountant do not fit one another.
    """
    tasks, learner, outer, scoring = config.tasks, config.learner, config.outer, config.scoring
    if isinstance(learner, MetaGradients):
        check_tunes(start, learner.tunes, config.start.protector)
    resolved = resolve(tasks, config.simulated, start)
    counts = {shape: shape.num_features or int(family.train.max_features) for shape, family in resolved.items()}
    # Constants alone are judged by what would run without them, which has networks.
    rival = _shipped(config) if isinstance(config, OwnConstants) else start
    evaluator = Evaluator(
        tasks,
        resolved,
        config.judging,
        scoring,
        rival,
        stand_in(config.start.warm_start, tasks.rows),
        tells_spending=isinstance(learner, MetaGradients) and learner.constraint == "augmented_lagrangian",
        stacked=isinstance(learner, Evolution),
    )
    if isinstance(learner, MetaGradients):
        state = gradients.init(start, learner.unroll, learner.aversion > 1)
        update: Callable = gradients.compiled(tasks, resolved, learner, outer, scoring)
    elif isinstance(learner, RandomSearch):
        state, update = search.init(start), search.compiled(tasks, resolved, outer, scoring)
    else:
        state, num_tasks = perturbed.init(start), config.judging.eval_tasks
        update = perturbed.compiled(tasks.shapes, num_tasks, learner.learning_rate, outer, evaluator)
    return Method(state, update, evaluator, counts, not isinstance(learner, Evolution))


def _shipped(config: OwnConstants) -> Protector:
    """The shipped protector that a training on a user's tables was asked to start from, as deployed."""
    return sized(checkpoint.load(config.start.warm_start).protector, config.tasks.rows)
