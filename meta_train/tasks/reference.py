"""The non-private solution of a task, from whose loss an excess loss is measured."""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import optax

from l2p.models import GeneralizedLinear, Model, Softmax
from l2p.models.base import INTERCEPT_COLUMN
from l2p.models.custom import CustomLoss
from l2p.run.simulate import mean_loss
from l2p.task.rows import Rows

#: Ridge of the reference solution: a task with separable labels has no finite minimiser. Where runs may reach a lower
#: loss than this solution, their scores no longer distinguish them; a config may then set a smaller ridge.
RIDGE = 1e-3
NEWTON_STEPS = 10
#: The least that is added to the diagonal of Hessians, also where the ridge is smaller: columns that add up to one
#: would make them singular in float32.
DAMPING = 1e-5
#: The same where a direction with the former is not finite: a table of a hundred columns, some of them equal, was met
#: whose largest eigenvalue is 33 and whose others reach down to 0.
MORE_DAMPING = 1e-3
#: The time of Newton's method grows with the cube of the number of parameters; above this many it is not used.
MAX_NEWTON = 256
#: Error of eigenvalues of second moments in float32, over the largest: on tables of hundreds of columns,
#: small ones that were taken for smaller ones made accelerated steps diverge.
ROUNDING = 4e-6
#: Steps of accelerated gradient descent.
ACCELERATED_STEPS = 200
#: Adam's steps and the peak of its cosine schedule.
ADAM_STEPS, ADAM_RATE = 200, 0.1
#: Ridges of the fits from which an excess loss on rows that were not read is measured, beside the config's; and how
#: much less than any of them a run is thought to reach, as a share of what a fit loses on such rows.
MORE_RIDGE, FURTHER = (1e-3, 1e-2), 0.1
#: Shares of a method's steps for one of several fits: for the one with the least ridge, and for others.
LAST, EARLIER = 0.8, 0.25
#: The same for networks, for fits with more ridge than the config's.
ANEW = 0.4
#: The minimum loss of a network is unknown. It is assumed to be lower than the best one found by this share of it, so
#: that runs which end below the latter still differ in their scores.
UNFOUND = 0.1


def best_loss(model: Model, rows: Rows, ridge: float = RIDGE) -> jax.Array:
    """Mean loss f32[] from which a task's excess loss is measured; 0 for a user's, of which no minimum is known."""
    if isinstance(model, CustomLoss):
        return jnp.zeros(())
    loss = jax.vmap(model.loss, (None, 0, 0))(reference(model, rows, ridge), rows.x, rows.y).mean()
    return loss if model.convex else (1.0 - UNFOUND) * loss


def best_losses(model: Model, read: Rows, scored: Rows, ridge: float = RIDGE) -> tuple[jax.Array, jax.Array]:
    """Mean losses f32[] from which excess losses are measured on the rows that a run reads, and on others of its task.

    No run reaches the minimum on rows that it does not read. So on these it is the least loss of a few fits to the
    rows that are read, with more and more ridge, less `FURTHER` of what the first of them loses on the other rows.
    """
    if isinstance(model, CustomLoss):
        return jnp.zeros(()), jnp.zeros(())
    fits = references(model, read, (ridge, *MORE_RIDGE))
    on_read, on_scored = (jax.vmap(mean_loss, (0, None, None))(fits, model, rows) for rows in (read, scored))
    lost = jnp.maximum(on_scored[0] - on_read[0], 0.0)
    share = 1.0 if model.convex else 1.0 - UNFOUND
    return share * on_read[0], share * (on_scored.min() - FURTHER * lost)


#: Params f32[p] to start from, a ridge, and the share of its steps that a method takes -> params f32[p].
Fit = Callable[[jax.Array, float | jax.Array, float], jax.Array]


def reference(model: Model, rows: Rows, ridge: float | jax.Array = RIDGE) -> jax.Array:
    """Near-minimiser f32[p] of the mean loss plus `ridge` / 2 ||params||^2.

    By Newton's method where the loss is curved at the start (the losses of support vector machines are flat there, and
    those of networks have no closed-form Hessian), for other smooth functions of margins by accelerated gradient
    descent, else by Adam, taking the best of its iterates.
    """
    return _method(model, rows)(model.init(rows.x.shape[1]), ridge, 1.0)


def references(model: Model, rows: Rows, ridges: Sequence[float]) -> jax.Array:
    """`reference` f32[k, p] for k ridges, in fewer steps than as many calls of it.

    Where the loss is convex, a fit starts from that with the next larger ridge, which is near and was found in a few
    steps. Networks overfit from there, so their fits all start anew.
    """
    fit, start = _method(model, rows), model.init(rows.x.shape[1])
    if not model.convex:
        return jnp.stack([fit(start, ridge, 1.0 if place == 0 else ANEW) for place, ridge in enumerate(ridges)])
    by_ridge = {}
    for ridge in sorted(ridges, reverse=True):
        by_ridge[ridge] = start = fit(start, ridge, LAST if ridge == min(ridges) else EARLIER)
    return jnp.stack([by_ridge[ridge] for ridge in ridges])


def _method(model: Model, rows: Rows) -> Fit:
    """The fit of `reference` for these rows."""
    curvature = math.inf
    if isinstance(model, Softmax):
        curvature = model.largest_curvature("multiclass")
    elif isinstance(model, GeneralizedLinear) and model.has_intercept:
        curvature = model.smoothness
    if isinstance(model, GeneralizedLinear) and _is_curved(model) and model.num_params(rows.x.shape[1]) <= MAX_NEWTON:
        fit, most = functools.partial(newton, model), NEWTON_STEPS
    elif isinstance(model, Softmax | GeneralizedLinear) and math.isfinite(curvature):
        fit, most = functools.partial(accelerated, model, curvature), ACCELERATED_STEPS
    else:
        fit, most = functools.partial(_adam, model), ADAM_STEPS
    return lambda start, ridge, share: fit(start, rows, math.ceil(share * most), ridge)


def accelerated(
    model: Softmax | GeneralizedLinear,
    curvature: float,
    start: jax.Array,
    rows: Rows,
    num_steps: int,
    ridge: float | jax.Array,
) -> jax.Array:
    """Near-minimiser f32[p] of the mean loss plus `ridge` / 2 ||params||^2 for a loss of at most this `curvature` in
    margins, by Nesterov's method, which starts anew where it goes uphill (O'Donoghue and Candes 2015).

    Steps are taken in coordinates in which rows have a second moment of at most one, so that columns that are nearly
    alike cost no more steps. Adam on such columns stops far above the minimum.
    """
    design = jnp.column_stack([rows.x, jnp.full(rows.x.shape[0], INTERCEPT_COLUMN)])
    weight = rows.mask / jnp.maximum(rows.mask.sum(), 1.0)
    moments, axes = jnp.linalg.eigh((design.T * weight[None, :]) @ design)
    # In these coordinates the curvature of loss and ridge together is at most that of the loss in margins.
    lengths = jnp.sqrt(jnp.maximum(moments, 0.0) + ridge / curvature + ROUNDING * moments.max())
    change = axes / lengths[None, :]
    table = design @ change

    def params_of(point: jax.Array) -> jax.Array:
        return (change @ point).reshape(-1)

    def objective(point: jax.Array) -> jax.Array:
        params = params_of(point)
        return weight @ model.margin_loss(table @ point, rows.y) + 0.5 * ridge * params @ params

    def step(carry: tuple, _: None) -> tuple[tuple, None]:
        point, ahead, pace = carry
        gradient = jax.grad(objective)(ahead)
        candidate = ahead - gradient / curvature
        rises = jnp.vdot(gradient, candidate - point) > 0.0
        faster = jnp.where(rises, 1.0, 0.5 * (1.0 + jnp.sqrt(1.0 + 4.0 * jnp.square(pace))))
        ahead = candidate + jnp.where(rises, 0.0, (pace - 1.0) / faster) * (candidate - point)
        return (candidate, ahead, faster), None

    matrix = start.reshape(design.shape[1], -1)
    initial = (lengths[:, None] * (axes.T @ matrix)).reshape(matrix.shape if isinstance(model, Softmax) else -1)
    return params_of(jax.lax.scan(step, (initial, initial, jnp.array(1.0)), length=num_steps)[0][0])


def _is_curved(model: GeneralizedLinear) -> bool:
    with jax.ensure_compile_time_eval():
        return bool((model.curvature(jnp.zeros(2), jnp.arange(2.0)) > 0).all())


def _adam(model: Model, start: jax.Array, rows: Rows, num_steps: int, ridge: float | jax.Array) -> jax.Array:
    optimizer = optax.adam(optax.cosine_decay_schedule(ADAM_RATE, num_steps))

    def objective(params: jax.Array) -> jax.Array:
        return mean_loss(params, model, rows) + 0.5 * ridge * params @ params

    def step(carry: tuple, _: None) -> tuple[tuple, None]:
        params, moments, best, least = carry
        loss, gradient = jax.value_and_grad(objective)(params)
        best, least = jnp.where(loss < least, params, best), jnp.minimum(loss, least)
        updates, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(params, updates), moments, best, least), None

    initial = start, optimizer.init(start), start, jnp.array(jnp.inf)
    (last, _, best, least), _ = jax.lax.scan(step, initial, length=num_steps)
    return jnp.where(objective(last) < least, last, best)


def newton(
    model: GeneralizedLinear, params: jax.Array, rows: Rows, num_iterations: int, ridge: float | jax.Array
) -> jax.Array:
    """Minimiser f32[p] of the mean loss plus ridge/2 ||params||^2, by damped Newton steps from `params`.

    The same number of steps for every task: in a batch, none would end before the slowest.
    """
    table = model.design(rows.x)
    weight = rows.mask / jnp.maximum(rows.mask.sum(), 1.0)

    def objective(params: jax.Array) -> jax.Array:
        return weight @ model.margin_loss(table @ params, rows.y) + 0.5 * ridge * params @ params

    def step(params: jax.Array, _: None) -> tuple[jax.Array, None]:
        margin = table @ params
        gradient = (weight * model.residual(margin, rows.y)) @ table + ridge * params
        hessian = (table.T * (weight * model.newton_curvature(margin, rows.y))[None, :]) @ table

        def solved(damping: jax.Array) -> jax.Array:
            return jax.scipy.linalg.solve(hessian + damping * jnp.eye(params.shape[0]), gradient, assume_a="pos")

        # In one call: two would run side by side, and on two cores a batch of each can wait for the other for ever,
        # since jaxlib's factorisations hold a thread of the pool that they wait for.
        direction, safer = jax.vmap(solved)(jnp.maximum(ridge, jnp.array([DAMPING, MORE_DAMPING])))
        direction = jnp.where(jnp.isfinite(direction).all(), direction, safer)
        # Full steps overshoot far from the minimum, where the logistic Hessian is flat; take the best of a few step
        # sizes.
        candidates = params[None, :] - jnp.array([0.0, 0.1, 0.25, 0.5, 1.0])[:, None] * direction[None, :]
        objectives = jax.vmap(objective)(candidates)
        return candidates[jnp.nanargmin(objectives)], None

    return jax.lax.scan(step, params, length=num_iterations)[0]
