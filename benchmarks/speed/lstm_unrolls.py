"""Meta-gradients of an LSTM for every coordinate: l2p's outer step, a plain scan of JAX, and the same in PyTorch."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.speed.peers import imported
from benchmarks.speed.steps import protector_and_setup
from benchmarks.speed.timing import Contender, Prepare, Table, measure
from benchmarks.speed.work import CLIP_NORM, Work
from l2p.protectors import LSTMProjector
from l2p.protectors.learned.lstm import LOG_MAGNITUDE_SCALE, NUM_UNITS
from l2p.protectors.learned.tunable import combine, partition
from l2p.run.run import run
from l2p.run.simulate import mean_loss
from l2p.task.rows import Rows
from meta_train.training.on_devices import of_tasks

#: What its tables begin with.
TITLE = "meta-gradient by an LSTM"
NUM_TASKS, NUM_ROWS, NUM_STEPS = 16, 1_024, 50
#: Columns with the constant one.
WIDTHS = 64, 124
STEP, HEAD = 0.1, 0.1


def tables(quick: bool, rounds: int) -> Iterator[Table]:
    """One table for each number of columns."""
    steps = 5 if quick else NUM_STEPS
    contenders = {"l2p": l2p_unroll, "plain JAX": plain_unroll, "PyTorch": torch_unroll}
    for width in WIDTHS[:1] if quick else WIDTHS:
        title = f"{TITLE} of {NUM_TASKS} runs of {steps} steps, {NUM_ROWS:,} x {width}"
        work = Work("logistic", NUM_TASKS * NUM_ROWS, width, steps=steps)
        yield measure(title, "l2p", {name: timed(make, work) for name, make in contenders.items()}, rounds, 0.02)


def timed(make: Callable[[Work], Callable[[], float]], work: Work) -> Prepare:
    """A contender that gives the derivative of the mean final loss in the bias of the LSTM's output; this is compared
    with little noise, over few steps: an untrained LSTM makes long runs chaotic, where rounding decides."""
    quiet = Work("logistic", work.num_rows, work.num_columns, steps=2, private=False, clip_norm=CLIP_NORM)
    return lambda: Contender(make(work), check=make(quiet))


def network() -> dict:
    """Parameters of the LSTM, its head included."""
    like = LSTMProjector.create(jax.random.key(0)).network
    return like | {
        "head": {"kernel": HEAD * jax.random.normal(jax.random.key(1), (NUM_UNITS, 1)), "bias": jnp.zeros(1)}
    }


def tasks_of(work: Work) -> tuple[np.ndarray, np.ndarray]:
    """Features with the constant column f32[tasks, rows, d], and labels f32[tasks, rows]."""
    return work.table.reshape(NUM_TASKS, NUM_ROWS, -1), work.labels.reshape(NUM_TASKS, NUM_ROWS)


def noise_std_of(work: Work) -> tuple[float, float]:
    """The noise multiplier, and the noise on a mean gradient."""
    _, setup = protector_and_setup(work, num_rows=NUM_ROWS)
    multiplier = float(setup.price_list.noise_multiplier(setup.cap / work.steps))
    return multiplier, multiplier * work.clip_norm * setup.adjacency.sensitivity_factor / NUM_ROWS


def l2p_unroll(work: Work) -> Callable[[], float]:
    """The run that is deployed, and gradients of each task, which outer steps clip."""
    plain, setup = protector_and_setup(work, num_rows=NUM_ROWS)
    protector = dataclasses.replace(plain, projector=LSTMProjector(network(), jnp.log(STEP)))
    floats, others = partition(protector)
    table, labels = tasks_of(work)
    rows = Rows(jnp.asarray(table[..., :-1]), jnp.asarray(labels), jnp.ones(labels.shape))
    keys = jax.random.split(jax.random.key(0), NUM_TASKS)

    def loss(floats: Any, rows: Rows, key: jax.Array) -> jax.Array:
        params = run(combine(floats, others), work.start(), rows, setup, key)[0]
        return mean_loss(params, work.learner, rows)

    @jax.jit
    def gradient(floats: Any, rows: Rows, keys: jax.Array) -> Any:
        return jax.tree.map(lambda leaf: leaf.mean(0), of_tasks(jax.grad(loss), floats, (rows, keys)))

    return lambda: float(jax.block_until_ready(gradient(floats, rows, keys)).projector.network["head"]["bias"][0])


def plain_unroll(work: Work) -> Callable[[], float]:
    """One scan over all tasks side by side, without anything that a run has besides."""
    table, labels = map(jnp.asarray, tasks_of(work))
    _, noise_std = noise_std_of(work)
    lengths = jnp.sqrt(jnp.square(table).sum(-1))

    def layer(params: dict, carry: tuple, inputs: jax.Array) -> tuple:
        gates = inputs @ params["dense_i"]["kernel"] + carry[1] @ params["dense_h"]["kernel"]
        gates = jnp.split(gates + params["dense_h"]["bias"], 4, -1)
        cells = jax.nn.sigmoid(gates[1]) * carry[0] + jax.nn.sigmoid(gates[0]) * jnp.tanh(gates[2])
        return cells, jax.nn.sigmoid(gates[3]) * jnp.tanh(cells)

    def loss(params: dict, key: jax.Array) -> jax.Array:
        def step(carry: tuple, noise: jax.Array) -> tuple:
            weights, first, second = carry
            residuals = jax.nn.sigmoid(jnp.einsum("trd,td->tr", table, weights)) - labels
            scaled = residuals * jnp.minimum(work.clip_norm / jnp.maximum(jnp.abs(residuals) * lengths, 1e-12), 1.0)
            gradient = jnp.einsum("tr,trd->td", scaled, table) / NUM_ROWS + noise_std * noise
            first = layer(params["first"], first, inputs_of(jnp, gradient, noise_std))
            second = layer(params["second"], second, first[1])
            output = second[1] @ params["head"]["kernel"] + params["head"]["bias"]
            return (weights + STEP * output[..., 0], first, second), None

        zeros = jnp.zeros((NUM_TASKS, work.num_columns, NUM_UNITS))
        start = jnp.zeros((NUM_TASKS, work.num_columns)), (zeros, zeros), (zeros, zeros)
        noise = jax.random.normal(key, (work.steps, NUM_TASKS, work.num_columns))
        margins = jnp.einsum("trd,td->tr", table, jax.lax.scan(step, start, noise)[0][0])
        return (jax.nn.softplus(margins) - labels * margins).mean()

    gradient = jax.jit(jax.grad(loss))
    return lambda: float(jax.block_until_ready(gradient(network(), jax.random.key(0)))["head"]["bias"][0])


def inputs_of(library: Any, gradient: Any, noise_std: float) -> Any:
    """Inputs [..., 3] of the LSTM for gradients [...], by JAX or PyTorch."""
    magnitude = library.log(library.abs(gradient) + 1e-8) / LOG_MAGNITUDE_SCALE
    ratio = library.arcsinh(gradient / (noise_std + 1e-12))
    return library.stack([magnitude, library.clip(gradient * 100.0, -1.0, 1.0), ratio], -1)


def torch_unroll(work: Work) -> Callable[[], float]:
    """The same by PyTorch's autograd, with its own LSTM cell, the coordinates of all tasks in one batch."""
    torch = imported("torch")
    _, noise_std = noise_std_of(work)
    table, labels = map(torch.from_numpy, tasks_of(work))
    lengths, shape = table.square().sum(-1).sqrt(), (NUM_TASKS, work.num_columns)
    params = jax.tree.map(np.array, network())
    cells = [torch.nn.LSTMCell(3, NUM_UNITS), torch.nn.LSTMCell(NUM_UNITS, NUM_UNITS)]
    for cell, layer in zip(cells, (params["first"], params["second"]), strict=True):
        values = {
            "weight_ih": layer["dense_i"]["kernel"].T,
            "weight_hh": layer["dense_h"]["kernel"].T,
            "bias_ih": layer["dense_h"]["bias"],
            "bias_hh": np.zeros(4 * NUM_UNITS, np.float32),
        }
        cell.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in values.items()})
    head = torch.nn.Linear(NUM_UNITS, 1)
    head.load_state_dict({"weight": torch.from_numpy(params["head"]["kernel"].T.copy()), "bias": torch.zeros(1)})

    def gradient() -> float:
        for module in (*cells, head):
            module.zero_grad()
        weights, zeros = torch.zeros(shape), torch.zeros(shape[0] * shape[1], NUM_UNITS)
        states = [(zeros, zeros), (zeros, zeros)]
        for _ in range(work.steps):
            residuals = torch.sigmoid((table @ weights[:, :, None])[..., 0]) - labels
            scaled = residuals * (work.clip_norm / (residuals.abs() * lengths).clamp(min=1e-12)).clamp(max=1.0)
            noised = (scaled[:, None, :] @ table)[:, 0] / NUM_ROWS + noise_std * torch.randn(shape)
            states[0] = cells[0](inputs_of(torch, noised, noise_std).reshape(-1, 3), states[0])
            states[1] = cells[1](states[0][0], states[1])
            weights = weights + STEP * head(states[1][0]).reshape(shape)
        margins = (table @ weights[:, :, None])[..., 0]
        (torch.nn.functional.softplus(margins) - labels * margins).mean().backward()
        return float(head.bias.grad)

    return gradient
