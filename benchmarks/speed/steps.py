"""Private steps against plain ones, their parts, and the steps of other libraries."""

import dataclasses
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.speed import peers
from benchmarks.speed.timing import Contender, Prepare, Table, measure
from benchmarks.speed.work import CLIP_NORM, MOMENTUM, RATE, Work, losses
from l2p.checkpoints.lookup import resolve
from l2p.models import INTERCEPT_COLUMN, Model
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.sampling import FullBatch, Poisson
from l2p.privacy.events import Event
from l2p.protectors import HAND_DESIGNED, Decaying, Optax, Stepwise
from l2p.protectors.hand_designed import log_constant, logit_constant
from l2p.run.run import run
from l2p.task.feature_map import FeatureMap, squared_lengths
from l2p.task.noise import Batch, KeyNoise
from l2p.task.rows import Rows
from meta_train.evaluation.budgets import Tabled

MODELS = ("logistic", "softmax:10", "svm", "mlp")
SIZES, QUICK_SIZE, BATCH = (30_400, 204_800), 4_096, 1_000
#: With the first the noise is too small to be seen; the second is a usual one.
QUIET, USUAL = Budget(1e6, 1e-6), Budget(1.0, 1e-6)
BASE, TABLED, PLAIN = "l2p", "l2p, noise multipliers from a table", "optax, rows [N, d]"
#: Protectors whose steps are timed beside plain ones.
PROTECTORS = ("noisygd", "noisygd:tuned", "paper-adult", "universal")
#: A run: does the steps of a work and gives the params they end at.
Run = Callable[[], np.ndarray | jax.Array]


def tables(quick: bool, rounds: int) -> Iterator[Table]:
    """One table for each model and kind of batch, and where the time of a step goes."""
    for work in works(quick):
        yield measure(str(work), BASE, contenders(work), rounds, work.tolerance)
        if work.model == "logistic":
            pieces = parts(work) if work.batch is None else batch_parts(work)
            yield measure(f"parts of a step: {work}", "whole step", pieces, rounds)
        if work.batch is None:
            if work.model == "logistic":
                yield measure(f"protectors: {work}", PLAIN, protectors(work), rounds)
            if work.model in ("softmax:10", "mlp"):
                yield measure(f"clipped sum of gradients: {work}", "never formed", clipped_sums(work), rounds)


def works(quick: bool) -> Iterator[Work]:
    """The steps that are timed; all models on the smaller size, logistic regression on the larger."""
    small, large = (QUICK_SIZE, None) if quick else SIZES
    for model in MODELS:
        yield Work(model, small)
        if model == "logistic" or not quick:
            yield Work(model, small, batch=BATCH)
    if large is not None:
        yield from (Work("logistic", large), Work("logistic", large, batch=BATCH))


def contenders(work: Work) -> dict[str, Prepare]:
    """What takes these steps, and what no step can do without."""
    planned = {} if work.batch is None else {TABLED: (lambda work: l2p_steps(work, tabled=True), work.steps)}
    takers: dict[str, tuple[Callable[[Work], Run], int]] = {
        BASE: (l2p_steps, work.steps),
        **planned,
        PLAIN: (plain_steps, work.steps),
        "optax, rows [d, N]": (lambda work: plain_steps(work, by_feature=True), work.steps),
        **{
            name: (prepare, whole if work.batch is None else batches)
            for name, (prepare, whole, batches) in peers.STEPS.items()
        },
    }
    return {
        **{name: timed(prepare, dataclasses.replace(work, steps=steps)) for name, (prepare, steps) in takers.items()},
        "two BLAS products, [N, d]": lambda: blas(work, by_feature=False),
        "two BLAS products, [d, N]": lambda: blas(work, by_feature=True),
        "one read of the rows": lambda: one_read(work),
    }


def timed(prepare: Callable[[Work], Run], work: Work) -> Prepare:
    """A contender from a function that makes a work's run ready; it is checked on the plain work."""

    def ready() -> Contender:
        plain = work.plain()
        return Contender(prepare(work), work.steps, lambda: plain.mean_loss(np.asarray(prepare(plain)())))

    return ready


def protector_and_setup(work: Work, num_rows: int | None = None) -> tuple[Stepwise, Setup]:
    """Noisy gradient descent with momentum, as in `noisygd`, and the public facts of its run on a table of `num_rows`,
    by default all of the work's."""
    sampler = FullBatch() if work.batch is None else Poisson(work.batch / work.num_rows)
    budget = USUAL if work.private else QUIET
    protector = dataclasses.replace(
        HAND_DESIGNED["noisygd"](budget),
        scheduler=Decaying(log_constant(work.clip_norm), jnp.array([0.0])),
        projector=Optax("sgd", {"learning_rate": log_constant(RATE), "momentum": logit_constant(MOMENTUM)}),
        sampler=sampler,
        num_steps=work.steps,
    )
    prices = Filter("gdp" if work.batch is None else "rdp", budget, sampler, work.steps).price_list()
    return protector, Setup.create(work.learner, budget.adjacency, prices, num_rows or work.num_rows)


def rows_of(work: Work) -> Rows:
    """The table as l2p takes it: the constant column is its own."""
    return Rows(jnp.asarray(work.table[:, :-1]), jnp.asarray(work.labels), jnp.ones(work.num_rows))


def l2p_steps(work: Work, tabled: bool = False) -> Run:
    """A simulated run, as comparisons run it on rows that are ready; `tabled`, as meta-training does, which has tables
    of noise multipliers made beforehand, as other libraries are given theirs."""
    protector, setup = protector_and_setup(work)
    if tabled:
        setup = dataclasses.replace(setup, price_list=Tabled.of(setup.price_list))
    rows = rows_of(work).ready(full_passes=work.batch is None)
    arguments = protector, work.start(), rows, setup, jax.random.key(0)
    compiled = jax.jit(lambda *arguments: run(*arguments)[0])
    return lambda: compiled(*arguments).block_until_ready()


def plain_descent(work: Work, by_feature: bool) -> tuple[Callable[..., jax.Array], tuple[jax.Array, jax.Array]]:
    """The same steps without privacy, by optax and a derivative of the mean loss: a function of params f32[p], and of
    the table and the labels, which come with it."""
    table = jnp.asarray(np.ascontiguousarray(work.table.T) if by_feature else work.table)
    optimizer = optax.sgd(RATE, MOMENTUM)

    def descend(params: jax.Array, table: jax.Array, labels: jax.Array) -> jax.Array:
        def step(state: tuple[jax.Array, optax.OptState], key: jax.Array) -> tuple[tuple, None]:
            params, momentum = state
            read, read_labels = table, labels
            if work.batch is not None:
                lines = jax.random.randint(key, (work.batch,), 0, work.num_rows)
                read, read_labels = (table[:, lines] if by_feature else table[lines]), labels[lines]
            gradient = jax.grad(lambda params: losses(work.model, params, read, read_labels, by_feature).mean())(params)
            update, momentum = optimizer.update(gradient, momentum)
            return (optax.apply_updates(params, update), momentum), None

        keys = jax.random.split(jax.random.key(0), work.steps)
        return jax.lax.scan(step, (params, optimizer.init(params)), keys)[0][0]

    return descend, (table, jnp.asarray(work.labels))


def plain_steps(work: Work, by_feature: bool = False) -> Run:
    """A plain run."""
    descend, data = plain_descent(work, by_feature)
    compiled, start = jax.jit(descend), work.start()
    return lambda: compiled(start, *data).block_until_ready()


def weights_of(work: Work) -> np.ndarray:
    """f32[d] or f32[d, k], the params that multiply the table."""
    columns = {"logistic": (), "svm": (), "softmax:10": (10,), "mlp": (20,)}[work.model]
    return np.random.default_rng(2).normal(size=(work.num_columns, *columns)).astype(np.float32)


def blas(work: Work, by_feature: bool) -> Contender:
    """The two matrix products of a step, by NumPy's BLAS on rows that lie together."""
    table, weights = work.table[: work.read_rows], weights_of(work)
    table = np.ascontiguousarray(table.T) if by_feature else table

    def run() -> None:
        for _ in range(work.steps):
            if by_feature:
                (weights.T @ table) @ table.T
            else:
                table.T @ (table @ weights)

    return Contender(run, work.steps)


def one_read(work: Work) -> Contender:
    """The table multiplied with itself, which reads it once."""
    flat = work.table[: work.read_rows].ravel()

    def run() -> None:
        for _ in range(work.steps):
            np.dot(flat, flat)

    return Contender(run, work.steps)


def parts(work: Work) -> dict[str, Prepare]:
    """The parts of a private step of logistic regression, each compiled alone, and the whole."""
    raw, start = rows_of(work), work.start()
    rows = raw.ready(full_passes=True)
    margins, squares = rows.x @ start[:-1], squared_lengths(rows.x)
    residuals, key = jax.nn.sigmoid(margins) - rows.y, jax.random.key(0)

    def clipped(residuals: jax.Array, squares: jax.Array) -> jax.Array:
        norms = jnp.abs(residuals) * jnp.sqrt(squares + INTERCEPT_COLUMN**2)
        return residuals * jnp.minimum(1.0, CLIP_NORM / jnp.maximum(norms, 1e-12))

    pieces: dict[str, tuple[Callable, tuple]] = {
        "margins": (lambda x, params: x @ params[:-1] + INTERCEPT_COLUMN * params[-1], (rows.x, start)),
        "residuals": (lambda margins, y: jax.nn.sigmoid(margins) - y, (margins, rows.y)),
        "norms and clipping": (clipped, (residuals, squares)),
        "sum of gradients": (FeatureMap.identity(work.num_columns - 1).weighted_sum, (rows.x, residuals)),
        "noise": (lambda key: jax.random.normal(key, (work.num_columns,)), (key,)),
        "call of a compiled function": (lambda key: key, (key,)),
    }
    ready = repeated(lambda rows: rows.ready(full_passes=True), (raw,), work.steps, calls=1)
    return {
        "whole step": timed(l2p_steps, work),
        **{name: lambda piece=piece: repeated(*piece, work.steps) for name, piece in pieces.items()},
        f"making rows ready, once for all runs, over {work.steps}": lambda: ready,
    }


def batch_parts(work: Work) -> dict[str, Prepare]:
    """The parts of a private step of logistic regression on a batch, each compiled alone, and the whole."""
    _, setup = protector_and_setup(work)
    prices, rows, start, key = setup.price_list, rows_of(work).ready(full_passes=False), work.start(), jax.random.key(0)
    cost = prices.budget / work.steps
    noise_multiplier = prices.noise_multiplier(cost, sampled=True)

    def draw(key: jax.Array) -> Batch:
        return KeyNoise(key).batch(prices.sampler, work.num_rows, jnp.zeros((), jnp.int32))

    def clipped_sum(params: jax.Array, rows: Rows, batch: Batch) -> jax.Array:
        features = FeatureMap.identity(work.num_columns - 1)
        return work.learner.clipped_gradient_sum(params, rows.take(batch.indices), features, jnp.float32(CLIP_NORM))

    pieces: dict[str, tuple[Callable, tuple]] = {
        "noise multiplier of the step's share": (
            lambda prices, cost: prices.noise_multiplier(cost, sampled=True),
            (prices, cost),
        ),
        "its price": (
            lambda prices, multiplier: prices.price(Event("gaussian", multiplier), sampled=True),
            (prices, noise_multiplier),
        ),
        "lines of the batch": (draw, (key,)),
        "fetching rows, and their clipped sum": (clipped_sum, (start, rows, draw(key))),
        "noise": (lambda key: jax.random.normal(key, (work.num_columns,)), (key,)),
        "call of a compiled function": (lambda key: key, (key,)),
    }
    return {
        "whole step": timed(l2p_steps, work),
        **{name: lambda piece=piece: repeated(*piece, work.steps) for name, piece in pieces.items()},
    }


def protectors(work: Work) -> dict[str, Prepare]:
    """Whole runs of protectors as they are shipped, per step."""

    def prepare(name: str) -> Contender:
        named = resolve(name, USUAL, work.model)
        setup = Setup.create(work.learner, USUAL.adjacency, named.filter(USUAL).price_list(), work.num_rows)
        arguments = named.protector, work.start(), rows_of(work), setup, jax.random.key(0)
        compiled = jax.jit(lambda *arguments: run(*arguments)[0])
        return Contender(lambda: compiled(*arguments).block_until_ready(), named.protector.num_steps)

    return {PLAIN: timed(plain_steps, work)} | {name: lambda name=name: prepare(name) for name in PROTECTORS}


def clipped_sums(work: Work) -> dict[str, Prepare]:
    """The sum of clipped gradients in closed form, and with every row's gradient formed."""
    params, features = work.start(), FeatureMap.identity(work.num_columns - 1)

    def prepare(add: Callable) -> Contender:
        def clipped_sum(params: jax.Array, rows: Rows) -> jax.Array:
            return add(params, rows, features, lambda norms: CLIP_NORM / jnp.maximum(norms, CLIP_NORM))

        compiled, rows = jax.jit(clipped_sum), rows_of(work)
        check = lambda: float(jnp.linalg.norm(compiled(params, rows)))  # noqa: E731
        return Contender(lambda: compiled(params, rows).block_until_ready(), check=check)

    return {
        "never formed": lambda: prepare(work.learner.scaled_gradient_sum),
        "formed": lambda: prepare(lambda *arguments: Model.scaled_gradient_sum(work.learner, *arguments)),
    }


def repeated(function: Callable, arguments: tuple, steps: int, calls: int | None = None) -> Contender:
    """A compiled function, called once for each step, or `calls` times for all of them."""
    compiled = jax.jit(function)

    def run() -> None:
        for _ in range(calls or steps):
            jax.block_until_ready(compiled(*arguments))

    return Contender(run, steps)
