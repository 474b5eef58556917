"""One gradient step of a user's loss on 256 rows: without privacy, at both levels of exactness, and elsewhere.

    python -m benchmarks.network_steps > benchmarks/pages/network_steps.md

CPU milliseconds of the sum of clipped gradients (without privacy: of the mean gradient), of float32 numbers, as in
simulations and `l2p.optax`, and of whole ones, each without its noise, whose time is on the page on speed. The least of
several calls after compilation, that over the first line's, and MiB of temporary memory that XLA plans for it, on 256
rows and on 2,048. Dense networks by optax, jax-privacy and Opacus, too, where the extra `bench` is installed; sums have
to agree.
"""

import os
import platform
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from l2p.base.layout import Layout
from l2p.oracle.sums import add_quantized
from l2p.queries import ClippedGradient
from l2p.release.losses.custom import custom_model
from l2p.task.exact_sums import ExactSum, as_they_are
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows

BATCHES, ROUNDS, CALLS, CLIP_NORM = (256, 2048), 6, 5, 1.0


class Dense(nn.Module):
    """A hidden layer."""

    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(10)(nn.tanh(nn.Dense(self.hidden)(x.reshape(-1))))


class Convolutions(nn.Module):
    """Two small convolutions and a layer on top."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for channels in (8, 16):
            x = nn.avg_pool(nn.relu(nn.Conv(channels, (3, 3))(x)), (2, 2), (2, 2))
        return nn.Dense(10)(x.reshape(-1))


NETWORKS = {
    "8x8, 32 units": (Dense(32), (8, 8, 1)),
    "28x28, 128 units": (Dense(128), (28, 28, 1)),
    "16x16, 2 convolutions": (Convolutions(), (16, 16, 1)),
}


class Work(NamedTuple):
    """A network, its loss of one row, and rows."""

    network: nn.Module
    loss: Callable[[Any, Any], jax.Array]
    params: Any
    data: dict[str, np.ndarray]

    @classmethod
    def of(cls, network: nn.Module, shape: tuple[int, ...], num_rows: int) -> "Work":
        random = np.random.default_rng(0)
        data = {"x": random.random((num_rows, *shape), np.float32), "y": random.integers(0, 10, num_rows)}

        def loss(params: Any, row: Any) -> jax.Array:
            return optax.softmax_cross_entropy_with_integer_labels(network.apply(params, row["x"]), row["y"])

        return cls(network, loss, network.init(jax.random.key(0), data["x"][0]), data)


class Program(NamedTuple):
    """What is timed.

    Attributes:
      run: computes and waits.
      sum: of what it returned, the length of the sum of clipped gradients; None without privacy.
      mib: temporary memory, where XLA plans it.
    """

    run: Callable[[], Any]
    length: Callable[[Any], float] | None
    mib: float | None


def compiled(function: Callable[..., Any], *arguments: Any, length: Callable[[Any], Any] | None) -> Program:
    program = jax.jit(function).lower(*arguments).compile()
    mib = program.memory_analysis().temp_size_in_bytes / 2**20
    return Program(lambda: jax.block_until_ready(program(*arguments)), length, mib)


def norm(tree: Any) -> float:
    return float(optax.global_norm(tree))


def own(work: Work) -> dict[str, Program]:
    """Without privacy, and as they are here."""
    model, start = custom_model(work.loss, work.params, Layout.of(work.data, stacked=1))
    num_rows = len(work.data["y"])
    rows = Rows(jnp.asarray(model.rows.flat(work.data)), jnp.zeros(num_rows), jnp.ones(num_rows))
    identity = FeatureMap.identity(model.rows.size)
    query = ClippedGradient(model, start, identity, jnp.float32(CLIP_NORM), jnp.float32(1.0))

    def plain(params: Any, data: Any) -> Any:
        return jax.grad(lambda params: jax.vmap(work.loss, (None, 0))(params, data).mean())(params)

    def in_float32(query: ClippedGradient, rows: Rows) -> jax.Array:
        return query.add(query.empty(), rows)

    def exact(query: ClippedGradient, rows: Any) -> jax.Array:
        return add_quantized(query, rows, ExactSum.empty(start.size)).value

    programs = {
        "without privacy": compiled(plain, work.params, jax.tree.map(jnp.asarray, work.data), length=None),
        "float32": compiled(in_float32, query, rows, length=norm),
    }
    with jax.enable_x64(True):
        quantized = as_they_are(rows.x, rows.y, rows.mask)
        return programs | {"exact": compiled(exact, query, quantized, length=np.linalg.norm)}


def by_optax(work: Work) -> dict[str, Program]:
    aggregate = optax.contrib.differentially_private_aggregate(CLIP_NORM, 0.0, 0)

    def step(params: Any, data: Any, state: Any) -> Any:
        return aggregate.update(jax.vmap(jax.grad(work.loss), (None, 0))(params, data), state)[0]

    data = jax.tree.map(jnp.asarray, work.data)
    mean = compiled(step, work.params, data, aggregate.init(work.params), length=None)
    return {"optax.contrib, dpsgd": mean._replace(length=lambda mean: norm(mean) * len(work.data["y"]))}


def by_jax_privacy(work: Work) -> dict[str, Program]:
    from jax_privacy import clipping

    data = jax.tree.map(jnp.asarray, work.data)

    def step(microbatch: int | None) -> Program:
        gradient = clipping.clipped_grad(
            work.loss, l2_clip_norm=CLIP_NORM, keep_batch_dim=False, microbatch_size=microbatch
        )
        return compiled(gradient, work.params, data, length=norm)

    return {"jax-privacy": step(None), "jax-privacy, microbatches of 8": step(8)}


def by_torch(work: Work) -> dict[str, Program]:
    import opacus
    import torch

    assert isinstance(work.network, Dense)
    rows = torch.from_numpy(work.data["x"].reshape(len(work.data["y"]), -1))
    labels = torch.from_numpy(work.data["y"])

    def step(mode: str | None) -> Program:
        layers = [work.params["params"][name] for name in ("Dense_1", "Dense_0")]  # in the order of their creation
        linear = [torch.nn.Linear(*layer["kernel"].shape) for layer in layers]
        with torch.no_grad():
            for module, layer in zip(linear, layers, strict=True):
                module.weight.copy_(torch.tensor(np.array(layer["kernel"].T)))
                module.bias.copy_(torch.tensor(np.array(layer["bias"])))
        module, loss = torch.nn.Sequential(linear[0], torch.nn.Tanh(), linear[1]), torch.nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
        if mode:
            loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, labels), batch_size=len(rows))
            module, optimizer, *criterion, _ = opacus.PrivacyEngine().make_private(
                module=module,
                optimizer=optimizer,
                criterion=loss,
                data_loader=loader,
                noise_multiplier=0.0,
                max_grad_norm=CLIP_NORM,
                grad_sample_mode=mode,
                poisson_sampling=False,
            )
            loss = criterion[0] if criterion else loss

        def run() -> list[Any]:
            optimizer.zero_grad()
            loss(module(rows), labels).backward()
            optimizer.step()
            return [parameter.grad for parameter in module.parameters()]

        def length(gradients: list[Any]) -> float:
            return len(rows) * float(torch.cat([gradient.ravel() for gradient in gradients]).norm())

        return Program(run, length if mode else None, None)

    warnings.filterwarnings("ignore", category=UserWarning)  # of hooks, at every step
    return {"torch, without privacy": step(None), "Opacus": step("hooks"), "Opacus, ghost clipping": step("ghost")}


def programs(name: str, num_rows: int) -> dict[str, Program]:
    """By kind; those that are not installed are left out."""
    work = Work.of(*NETWORKS[name], num_rows)
    kinds = own(work)
    for others in (by_optax, by_jax_privacy, by_torch) if isinstance(work.network, Dense) else ():
        try:
            kinds |= others(work)
        except ImportError as error:
            print(f"{error.name} is not installed; pip install '.[bench]'", file=sys.stderr)
    return kinds


def milliseconds(kinds: dict[str, Program]) -> dict[str, float]:
    """CPU time of a call by kind, which take turns."""
    least = dict.fromkeys(kinds, np.inf)
    for _ in range(ROUNDS):
        for kind, program in kinds.items():
            for _ in range(CALLS):
                begun = time.process_time()
                program.run()
                least[kind] = min(least[kind], 1e3 * (time.process_time() - begun))
    return least


def main() -> None:
    title, command, *text = (__doc__ or "").split("\n\n")
    versions = f"jax {jax.__version__}, Python {platform.python_version()}"
    machine = f"{platform.machine()}, load {os.getloadavg()[0]:.0f}, {versions}"
    print(f"# Steps of networks\n\n{title}\n\n`{textwrap.dedent(command)}` ({machine})\n\n{text[0].strip()}")
    for name in NETWORKS:
        few, many = (programs(name, num_rows) for num_rows in BATCHES)
        size = sum(leaf.size for leaf in jax.tree.leaves(Work.of(*NETWORKS[name], 1).params))
        print(f"\n| {name}, {size:,} parameters | CPU ms | ratio | MiB, 256 rows | MiB, 2,048 rows |")
        print("|---|---|---|---|---|")
        lengths = {kind: float(program.length(program.run())) for kind, program in few.items() if program.length}
        np.testing.assert_allclose(list(lengths.values()), lengths["float32"], rtol=1e-3, err_msg=str(lengths))
        taken = milliseconds(few)
        for kind in few:
            ratio = taken[kind] / taken["without privacy"]
            memory = ["" if each[kind].mib is None else f"{each[kind].mib:.1f}" for each in (few, many)]
            print(f"| {kind} | {taken[kind]:.2f} | {ratio:.1f} | {memory[0]} | {memory[1]} |", flush=True)


if __name__ == "__main__":
    main()
