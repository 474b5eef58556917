"""Objectives of meta-training other than the score of a whole run: soft constraints, segments, constant gradients."""

import copy
import functools

import jax
import jax.numpy as jnp

from l2p.models import Model
from l2p.models.base import Factor
from l2p.oracle.setup import Setup
from l2p.run.protector import Protector
from l2p.run.run import Run, Simulation, advance, start
from l2p.run.simulate import mean_loss
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows
from meta_train.config.parts import USUAL, Scoring
from meta_train.evaluation.marks import marks_of
from meta_train.evaluation.scores import Score, score, whole_run
from meta_train.training.constraints import STEP_WINDOW, soft_score


def soft_run(
    protector: Protector,
    rows: Rows,
    best_loss: jax.Array,
    setup: Setup,
    key: jax.Array,
    scoring: Scoring = USUAL,
) -> tuple[Score, Score, jax.Array]:
    """A run past the end of its budget: Eq. 3's score f32[] around that end, the last step's score, and total spending.

    The protector's `num_steps` is the paper's constant T, more steps than the budget lasts; where the budget ends is
    learned.
    """
    noise = Simulation(key)
    begun, _ = start(protector, setup.model.init(rows.x.shape[1]), rows, setup, noise)
    _, records, losses = advance(
        protector,
        begun,
        rows,
        setup,
        noise,
        protector.num_steps,
        observe=lambda params: mean_loss(params, setup.model, rows),
    )
    scores = score(losses, marks_of(setup.model, rows, rows, best_loss, setup, scoring), scoring)
    spent = records[-1].spent / setup.price_list.budget
    around_end = jax.tree.map(lambda values: soft_score(values, spent, STEP_WINDOW), scores)
    return around_end, jax.tree.map(lambda values: values[-1], scores), spent[-1]


def run_beside(
    protector: Protector,
    start: Protector,
    rows: Rows,
    best_loss: jax.Array,
    setup: Setup,
    key: jax.Array,
    *others: Rows,
    aversion: float,
    draws: int,
    scoring: Scoring = USUAL,
) -> tuple[Score, jax.Array]:
    """How much worse runs score than those of `start` with the same noise, in the mean over `draws` of it, where worse
    counts `aversion` times as much as better; and the share f32[] of the budget that they spend.

    Means over tasks let a large gain on one pay for a loss on another. Of few draws, noise alone would make losses.
    `others` are rows that runs are scored on and public rows, as of `whole_run`.
    """

    def score_of(protector: Protector) -> tuple[Score, jax.Array]:
        def of_draw(key: jax.Array) -> tuple[Score, jax.Array]:
            return whole_run(protector, rows, best_loss, setup, key, *others, scoring=scoring)

        return jax.tree.map(lambda values: values.mean(0), jax.vmap(of_draw)(jax.random.split(key, draws)))

    scores, spent = score_of(protector)
    change = scores.value - score_of(start)[0].value
    return scores._replace(value=jnp.where(change > 0.0, aversion, 1.0) * change), spent


def first_segment(
    protector: Protector,
    rows: Rows,
    best_loss: jax.Array,
    setup: Setup,
    key: jax.Array,
    scored: Rows | None = None,
    public: Rows | None = None,
    *,
    num_steps: int,
    scoring: Scoring = USUAL,
) -> tuple[Score, tuple[Run, jax.Array]]:
    """`next_segment` from the start of a run, including the queries of `init`."""
    begun, _ = start(protector, setup.model.init(rows.x.shape[1]), rows, setup, Simulation(key), public)
    pieces = {"num_steps": num_steps, "scoring": scoring}
    return next_segment(protector, begun, rows, best_loss, setup, key, scored, public, **pieces)


def next_segment(
    protector: Protector,
    run: Run,
    rows: Rows,
    best_loss: jax.Array,
    setup: Setup,
    key: jax.Array,
    scored: Rows | None = None,
    public: Rows | None = None,
    *,
    num_steps: int,
    scoring: Scoring = USUAL,
) -> tuple[Score, tuple[Run, jax.Array]]:
    """Mean score along `num_steps` more steps (Andrychowicz et al. 2016), on the rows that it reads or on those in
    `scored`, the run after them, and their spending.

    Spending is relative to the segment's even share of the budget (the paper's r_b, all equal), so 1 is on target.
    """
    noise = Simulation(key)
    before, scored = run.spending.spent, rows if scored is None else scored
    run, _, losses = advance(
        protector,
        run,
        rows,
        setup,
        noise,
        num_steps,
        public,
        observe=lambda params: mean_loss(params, setup.model, scored),
    )
    even = setup.price_list.budget * num_steps / protector.num_steps
    scores = score(losses, marks_of(setup.model, rows, scored, best_loss, setup, scoring), scoring)
    return jax.tree.map(jnp.mean, scores), (run, (run.spending.spent - before) / even)


@functools.cache
def with_constant_gradients(model: Model) -> Model:
    """The same model, whose gradient sums are constants to a meta-gradient and not functions of the params (Hong et al.
    2021, "treat it as a constant observation with zero gradient")."""

    class Observed(type(model)):
        def scaled_gradient_sum(self, params: jax.Array, rows: Rows, features: FeatureMap, factor: Factor) -> jax.Array:
            return super().scaled_gradient_sum(jax.lax.stop_gradient(params), rows, features, factor)

    clone = copy.copy(model)
    object.__setattr__(clone, "__class__", Observed)
    return clone
