"""The gain from each part of a learned protector: variants are meta-trained alike and scored on the same held-out
tasks.

    python benchmarks/ablations.py [--out runs/ablations] [--seeds 3] [--steps 200]

Tasks of 24 features and 512 rows drawn from Adult; a variant differs from `census` or `paper` as its name says. All get
the same number of outer steps from their starting points; variants with networks first use half of the steps for their
constants. The score is the log of the excess loss on 256 held-out tasks, lower is better; its standard error is over
meta-seeds. A second call resumes where the first one stopped. Needs the Adult data set (`L2P_DATA_DIR`, or a download).
"""

import csv
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from l2p.base import struct
from l2p.compare.results import Estimate
from l2p.compare.summary import markdown
from l2p.oracle.setup import Setup
from l2p.protectors import Centering, Decaying, MixProjector, Optax, ShareScheduler
from l2p.protectors.learned.lstm import NUM_UNITS
from l2p.protectors.stepwise.networks import apply_lstm, init_lstm, init_mlp, lstm_carry
from l2p.protectors.stepwise.projectors import MEMORY, Averages, Projector
from l2p.protectors.stepwise.schedulers import Scheduler
from l2p.run.protector import Protector
from meta_train.config import Constrained, MetaConfig, Perturbed, Plain
from meta_train.evaluation.resolved import resolve
from meta_train.evaluation.scores import evaluate
from meta_train.training import gradients, untrained
from meta_train.training.starting_points import warm_start
from meta_train.training.untrained import PLAIN_INPUTS

FIELDS = {"num_features": (24,), "rows": 512, "learning_rate": 0.01, "eval_tasks": 256}
CONFIG = Plain.of("ablation", "census", **FIELDS)
PERTURBED = Perturbed.of("ablation", "census", **FIELDS)
#: Of schedulers that may overspend, by an augmented Lagrangian and by the soft constraint.
LAGRANGIAN = Constrained.of(
    "ablation", "paper", **FIELDS | {"learning_rate": 5e-3}, clips="together", alternate=(1, 5), accountant="ctcdp"
)
SOFT = LAGRANGIAN.but(constraint="soft")
APART = LAGRANGIAN.but(clips="apart")
BANDS = 4
#: Steps of a segment.
SEGMENT = 10


@struct.dataclass
class FixedScheduler(Decaying):
    """Uniform noise and an untuned clipping norm."""

    fixed: ClassVar[tuple[str, ...]] = ("log_clip_norm", "rate")


@struct.dataclass
class FixedSGD(Optax):
    """An untuned learning rate."""

    fixed: ClassVar[tuple[str, ...]] = ("hyperparameters",)


@struct.dataclass
class Blinded(MixProjector):
    """A coordinate network without some of its inputs.

    Attributes:
      hidden: their positions (static).
    """

    hidden: tuple[int, ...] = struct.field(pytree_node=False, default=())

    def _coordinates(self, *run: Any) -> jax.Array:
        return super()._coordinates(*run).at[:, jnp.array(self.hidden)].set(0.0)


@struct.dataclass
class Remembering(Averages):
    """Averages, and the LSTM state of every coordinate."""

    carry: Any


@struct.dataclass
class Recurrent(MixProjector):
    """The paper's LSTM in place of the coordinate network, with the same inputs and also with zero output at first."""

    def init(self, params: jax.Array, setup: Setup) -> Remembering:
        plain = super().init(params, setup)
        return Remembering(plain.mean, plain.variance, plain.count, lstm_carry(params.shape[0], NUM_UNITS))

    def _corrections(self, state: Any, inputs: jax.Array) -> tuple[jax.Array, Remembering]:
        network = cast(dict, self.coordinate_network)["lstm"]
        carry, output = apply_lstm(network, state.carry, inputs[:, :PLAIN_INPUTS])
        return output.T, dataclasses.replace(state, carry=carry)


def constant(number: float) -> jax.Array:
    """A quadratic in log(mu N) that starts as a number."""
    return jnp.array([number, 0.0, 0.0])


def schedulers(key: jax.Array) -> dict[str, Scheduler]:
    """Alternatives for the scheduler."""
    line = untrained.control(key).scheduler
    return {
        "fixed": FixedScheduler(constant(0.5), constant(0.0)),
        "meta-tuned": Decaying(constant(0.5), constant(0.0)),
        "learned": dataclasses.replace(cast(ShareScheduler, line), network=init_mlp(key, (2, 16, 2))),
    }


def projectors(key: jax.Array) -> dict[str, Projector]:
    """Alternatives for the projector."""
    return {
        "fixed SGD": FixedSGD("sgd", {"learning_rate": constant(0.0)}),
        "meta-tuned momentum": Optax("sgd", {"learning_rate": constant(0.5), "momentum": constant(1.0)}),
        "learned": untrained.census(key).projector,
    }


def census_with(**changes: Callable[[jax.Array], Any] | None) -> Callable[[jax.Array], Protector]:
    """`census` with some parts replaced, each made from a key."""

    def build(key: jax.Array) -> Protector:
        parts = {name: None if make is None else make(key) for name, make in changes.items()}
        return dataclasses.replace(cast(Any, untrained.census(key)), **parts)

    return build


def blinded(*hidden: int) -> Callable[[jax.Array], Protector]:
    """`census` whose coordinate network lacks some inputs."""

    def projector(key: jax.Array) -> Blinded:
        projector = cast(MixProjector, untrained.census(key).projector)
        fields = {field.name: getattr(projector, field.name) for field in dataclasses.fields(projector)}
        return Blinded(**fields, hidden=hidden)

    return census_with(projector=projector)


def adam(key: jax.Array) -> Optax:
    """Adam from optax, meta-tuned."""
    del key
    return Optax("adam", {"learning_rate": constant(-2.0)})


def without_tensors(key: jax.Array) -> MixProjector:
    """The learned projector with only its coordinate network."""
    return dataclasses.replace(cast(MixProjector, untrained.census(key).projector), tensor_network=None)


def recurrent(key: jax.Array) -> Recurrent:
    """The learned projector with an LSTM for every coordinate."""
    projector = cast(MixProjector, untrained.census(key).projector)
    fields = {field.name: getattr(projector, field.name) for field in dataclasses.fields(projector)}
    return Recurrent(**fields | {"coordinate_network": {"lstm": init_lstm(key, PLAIN_INPUTS, NUM_UNITS, 6)}})


RATIOS, PARAMS, LEVELS = tuple(range(len(MEMORY))), len(MEMORY), tuple(range(len(MEMORY) + 3, len(MEMORY) + 6))


def variants() -> dict[str, tuple[Callable[[jax.Array], Protector], MetaConfig]]:
    """A starting point for each variant, and its config."""
    some = jax.random.key(0)
    grid = {
        f"scheduler {scheduler}, projector {projector}": (
            census_with(
                scheduler=lambda key, name=scheduler: schedulers(key)[name],
                projector=lambda key, name=projector: projectors(key)[name],
            ),
            CONFIG,
        )
        for scheduler in schedulers(some)
        for projector in projectors(some)
    }
    return grid | {
        "scheduler learned, projector meta-tuned Adam": (census_with(projector=adam), CONFIG),
        "control: constants only": (untrained.control, CONFIG),
        "census, no network for learning rates": (census_with(projector=without_tensors), CONFIG),
        "census, signal-to-noise unseen": (blinded(*RATIOS), CONFIG),
        "census, params unseen": (blinded(PARAMS), CONFIG),
        "census, noise level and energy unseen": (blinded(*LEVELS), CONFIG),
        "census, no private mean": (lambda key: untrained.census(key).without(Centering), CONFIG),
        "census, no averaging": (census_with(averaging=None), CONFIG),
        "control, private row length and eigenbasis": (untrained.control_eigen, CONFIG),
        "census, private row length and eigenbasis": (untrained.census_eigen, CONFIG),
        "universal: networks that know the spectrum and how much is signal": (untrained.universal, CONFIG),
        "census, LSTM in place of the coordinate network": (census_with(projector=recurrent), CONFIG),
        "census, evolution strategies": (untrained.census, PERTURBED),
        "census, curriculum from large budgets to all": (untrained.census, CONFIG.but(curriculum=0.5)),
        "census, segments of 10 steps": (untrained.census, CONFIG.but(unroll=SEGMENT)),
        "census, gradients constant": (untrained.census, CONFIG.but(inner_gradient=False)),
        "census, segments, gradients constant": (
            untrained.census,
            CONFIG.but(unroll=SEGMENT, inner_gradient=False),
        ),
        "paper: Lagrangian, whole run": (untrained.paper, LAGRANGIAN),
        "paper, segments of 10 steps": (untrained.paper, LAGRANGIAN.but(unroll=SEGMENT)),
        "paper, score and penalty clipped apart": (untrained.paper, APART),
        "paper, segments of 10 steps, clipped apart": (untrained.paper, APART.but(unroll=SEGMENT)),
        "paper, soft constraint": (untrained.paper, SOFT),
        "paper, private norm query": (untrained.paper_norm, LAGRANGIAN),
    }


def has_networks(name: str) -> bool:
    """True if a variant has networks; its constants are then trained first."""
    return not name.startswith("paper") and ("learned" in name or name.startswith(("census", "universal")))


def without_networks(protector: Any) -> Any:
    """The protector with only its constants."""
    scheduler, projector = protector.scheduler, protector.projector
    if isinstance(scheduler, ShareScheduler):
        scheduler = dataclasses.replace(scheduler, network=None)
    if isinstance(projector, MixProjector):
        projector = dataclasses.replace(projector, tensor_network=None, coordinate_network=None)
    return dataclasses.replace(protector, scheduler=scheduler, projector=projector)


class Trainer:
    """Outer steps and held-out scores of protectors of one structure, compiled once for all meta-seeds."""

    def __init__(self, config: MetaConfig, like: Protector):
        (resolved,) = resolve(config.tasks, config.simulated, like).values()
        self.config, self.resolved, tasks = config, resolved, config.tasks
        fixed = {"scoring": config.scoring, "budgets": resolved.budgets, "model": resolved.model}

        def update(state: gradients.GradientState, step: jax.Array, seed: jax.Array) -> gradients.GradientState:
            learned = {
                "learner": config.learner,
                "outer": dataclasses.replace(config.outer, seed=cast(int, seed)),
            }
            batch = gradients.draw_tasks(step, tasks, resolved, **learned)
            return gradients.update(state, step, batch, **learned, **fixed)[0]

        self.update = jax.jit(update)
        self.evaluate = jax.jit(functools.partial(evaluate, model=resolved.model, budgets=resolved.budgets))

    def train(self, start: Protector, seed: int) -> Protector:
        """The protector after all outer steps."""
        state = gradients.init(start, self.config.learner.unroll)
        for step in range(self.config.outer.steps):
            state = self.update(state, jnp.array(step), jnp.array(seed))
        return state.protector

    def score(self, protector: Protector) -> np.ndarray:
        """f64[BANDS], held out, by bands of log(mu N), lowest first."""
        arguments = self.config.tasks.arguments(self.resolved.shape)
        arguments |= {"num_tasks": self.config.judging.eval_tasks}
        key = jax.random.key(1)
        batch = self.resolved.held_out.sample(key, self.resolved.model, **arguments)
        evaluation = self.evaluate(protector, key, batch)
        return np.asarray(evaluation["score"], np.float64).reshape(BANDS, -1).mean(1)


def measure(name: str, seeds: range, steps: int) -> Iterator[np.ndarray]:
    """Meta-train one variant with each seed and score it."""
    build, base = variants()[name]
    config = base.but(steps=steps)
    first = None
    if has_networks(name):
        config = config.but(steps=steps // 2)
        first = Trainer(config, without_networks(build(jax.random.key(0))))
        config = config.but(learning_rate=3e-3)
    last = Trainer(config, build(jax.random.key(0)))
    for seed in seeds:
        start = build(jax.random.key(seed))
        if first is not None:
            start = warm_start(start, first.train(without_networks(start), seed))
        yield last.score(last.train(start, seed))


def table(rows: list[dict[str, str]]) -> str:
    """Mean and standard error over meta-seeds, by variant."""
    columns = ["score", *(f"band_{band + 1}" for band in range(BANDS))]
    lines = []
    for name in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == name]
        means = [Estimate.of(float(row[column]) for row in mine) for column in columns]
        lines.append([name, str(len(mine)), f"{means[0].mean:.3f} ± {means[0].error:.3f}"])
        lines[-1] += [f"{mean.mean:.2f}" for mean in means[1:]]
    low, high = CONFIG.tasks.log_signal
    edges = np.exp(np.linspace(low, high, BANDS + 1))
    bands = [f"mu N {low:.0f}-{high:.0f}" for low, high in itertools.pairwise(edges)]
    return markdown(["variant", "meta-seeds", "score", *bands], lines)


def main(out: Path = Path("runs/ablations"), seeds: int = 3, steps: int = 200) -> None:
    """Train and score the variants that are not in OUT yet.

    Args:
      out: folder for ablations.csv and summary.md.
      seeds: meta-seeds.
      steps: outer steps of each training.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / "ablations.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    for name in variants():
        if any(row["variant"] == name for row in rows):
            continue
        began = time.monotonic()
        for seed, score in enumerate(measure(name, range(seeds), steps)):
            parts = {f"band_{band + 1}": f"{part:.4f}" for band, part in enumerate(score)}
            rows.append({"variant": name, "seed": str(seed), "score": f"{score.mean():.4f}", **parts})
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    print(text := table(rows))
    heading = f"{(__doc__ or '').strip()}\n\nHere: {steps} outer steps."
    (out / "summary.md").write_text(f"# Ablations\n\n{heading}\n\n{text}\n")


if __name__ == "__main__":
    tyro.cli(main)
