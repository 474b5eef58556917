"""Meta-gradients: the same unroll in PyTorch, and whole outer steps as unrolls grow."""

import functools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.speed import lstm_unrolls
from benchmarks.speed.peers import imported
from benchmarks.speed.steps import protector_and_setup
from benchmarks.speed.timing import Contender, Prepare, Table, measure
from benchmarks.speed.work import CLIP_NORM, MOMENTUM, RATE, Work
from l2p.protectors.learned.tunable import combine, partition
from l2p.run.run import run
from l2p.run.simulate import mean_loss
from l2p.task.rows import Rows
from meta_train.config import Constrained, Plain
from meta_train.evaluation.resolved import resolve
from meta_train.training import gradients
from meta_train.training.starting_points import starting_point

NUM_TASKS, NUM_ROWS, NUM_FEATURES, NUM_STEPS = 16, 1_024, 24, 50
PROTECTORS: dict[str, Plain | Constrained] = {
    "paper": Constrained.of("unroll", "paper", source="synthetic", alternate=(1, 5), accountant="ctcdp"),
    "control": Plain.of("unroll", "control", source="synthetic"),
}
#: Steps of runs, and the segments in which they are differentiated, or None for all at once.
UNROLLS: tuple[tuple[int, int | None], ...] = ((10, None), (50, None), (200, None), (200, 10))


def tables(quick: bool, rounds: int) -> Iterator[Table]:
    """The unroll beside PyTorch's; the time, the compilation and the memory of outer steps."""
    steps = 10 if quick else NUM_STEPS
    title = f"meta-gradient of {NUM_TASKS} runs of {steps} steps, {NUM_ROWS:,} x {NUM_FEATURES + 1}"
    unrolls = {"l2p": lambda work: l2p_unroll(work), "PyTorch": lambda work: torch_unroll(work)}
    work = Work("logistic", NUM_TASKS * NUM_ROWS, NUM_FEATURES + 1, steps=steps)
    yield measure(title, "l2p", {name: timed(prepare, work) for name, prepare in unrolls.items()}, rounds, 0.02)
    yield from lstm_unrolls.tables(quick, rounds)
    yield from outer_steps(UNROLLS[:1] if quick else UNROLLS, rounds)


def timed(prepare: Callable[[Work], Callable[[], np.ndarray]], work: Work) -> Prepare:
    """A contender that gives the derivatives of the mean final loss in the logarithms of learning rate and clipping
    norm and in the logit of the momentum; the first is compared, with little noise and rows that are clipped."""
    quiet = Work("logistic", work.num_rows, work.num_columns, steps=work.steps, private=False, clip_norm=CLIP_NORM)

    def ready() -> Contender:
        return Contender(prepare(work), check=lambda: float(prepare(quiet)()[0]))

    return ready


def l2p_unroll(work: Work) -> Callable[[], np.ndarray]:
    """The run that is deployed, differentiated."""
    protector, setup = protector_and_setup(work, num_rows=NUM_ROWS)
    floats, others = partition(protector)
    x = jnp.asarray(work.table[:, :-1]).reshape(NUM_TASKS, NUM_ROWS, -1)
    rows = Rows(x, jnp.asarray(work.labels).reshape(NUM_TASKS, -1), jnp.ones((NUM_TASKS, NUM_ROWS)))
    keys = jax.random.split(jax.random.key(0), NUM_TASKS)

    @jax.jit
    def gradient(floats: Any, rows: Rows, keys: jax.Array) -> Any:
        def final_loss(floats: Any) -> jax.Array:
            def loss(rows: Rows, key: jax.Array) -> jax.Array:
                params = run(combine(floats, others), work.start(), rows, setup, key)[0]
                return mean_loss(params, work.learner, rows)

            return jax.vmap(loss)(rows, keys).mean()

        return jax.grad(final_loss)(floats)

    def descend() -> np.ndarray:
        slopes = jax.block_until_ready(gradient(floats, rows, keys))
        rates = slopes.projector.hyperparameters
        leaves = rates["learning_rate"], slopes.scheduler.log_clip_norm, rates["momentum"]
        return np.concatenate([np.ravel(leaf)[:1] for leaf in leaves])

    return descend


def torch_unroll(work: Work) -> Callable[[], np.ndarray]:
    """The same by PyTorch's autograd: all tasks in one batch, gradients of rows never formed."""
    torch = imported("torch")
    _, setup = protector_and_setup(work, num_rows=NUM_ROWS)
    noise_multiplier = float(setup.price_list.noise_multiplier(setup.cap / work.steps, sampled=True))
    table = torch.from_numpy(work.table.reshape(NUM_TASKS, NUM_ROWS, -1))
    labels = torch.from_numpy(work.labels.reshape(NUM_TASKS, NUM_ROWS))
    lengths = table.square().sum(-1).sqrt()

    def descend() -> np.ndarray:
        settings = torch.tensor([math.log(RATE), math.log(work.clip_norm), math.log(MOMENTUM / (1.0 - MOMENTUM))])
        settings.requires_grad_()
        rate, clip_norm, momentum = settings[0].exp(), settings[1].exp(), settings[2].sigmoid()
        params = buffer = torch.zeros(NUM_TASKS, work.num_columns)
        for _ in range(work.steps):
            residuals = torch.sigmoid((table @ params[:, :, None])[..., 0]) - labels
            weights = residuals * (clip_norm / (residuals.abs() * lengths).clamp(min=1e-12)).clamp(max=1.0)
            total = (weights[:, None, :] @ table)[:, 0] + clip_norm * noise_multiplier * torch.randn(params.shape)
            buffer = total / NUM_ROWS + momentum * buffer
            params = params - rate * buffer
        margins = (table @ params[:, :, None])[..., 0]
        (torch.nn.functional.softplus(margins) - labels * margins).mean().backward()
        return settings.grad.numpy()

    return descend


def outer_steps(unrolls: tuple[tuple[int, int | None], ...], rounds: int) -> Iterator[Table]:
    """Three tables: seconds, seconds of compilation and MiB of temporaries of whole outer steps."""
    contenders: dict[str, Prepare] = {}
    compiling: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    for protector, config in PROTECTORS.items():
        for steps, segment in unrolls:
            name = f"{protector}, T = {steps}{'' if segment is None else f' in segments of {segment}'}"
            changed = config.but(num_steps=steps, num_features=(NUM_FEATURES,), unroll=segment)
            draw, update, compiling[name], memory[name] = compiled_outer_step(changed)
            contenders.setdefault(f"{protector}, drawing the tasks", lambda draw=draw: Contender(draw))
            contenders[name] = lambda update=update: Contender(update)
    base = f"control, T = {unrolls[0][0]}"
    about = f"an outer step on {NUM_TASKS} tasks, {NUM_ROWS:,} x {NUM_FEATURES}"
    yield measure(about, base, contenders, rounds)
    yield Table(f"compiling {about}, processor time", "s", base, compiling)
    yield Table(f"temporaries of {about}", "MiB", base, memory)


def compiled_outer_step(config: Plain | Constrained) -> tuple[Callable, Callable, list[float], list[float]]:
    """What draws the tasks and what updates, the seconds of processor to compile the latter, and its MiB."""
    start, learned = starting_point(config), {"learner": config.learner, "outer": config.outer}
    (resolved,) = resolve(config.tasks, config.simulated, start).values()
    state, step = gradients.init(start, config.learner.unroll), jnp.array(0)
    draw = jax.jit(functools.partial(gradients.draw_tasks, tasks=config.tasks, resolved=resolved, **learned))
    batch = draw(step)
    fixed = learned | {"scoring": config.scoring, "budgets": resolved.budgets, "model": resolved.model}
    jax.config.update("jax_enable_compilation_cache", False)  # compile times are those of a first run
    began = time.process_time()  # of all its threads
    update = jax.jit(functools.partial(gradients.update, **fixed)).lower(state, step, batch).compile()
    seconds = time.process_time() - began
    jax.config.update("jax_enable_compilation_cache", True)
    memory = update.memory_analysis()
    assert memory is not None
    return (
        lambda: jax.block_until_ready(draw(step)),
        lambda: jax.block_until_ready(update(state, step, batch)),
        [seconds],
        [memory.temp_size_in_bytes / 2**20],
    )
