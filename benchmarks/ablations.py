"""The paper's pair of LSTMs, meta-trained in six ways and scored on the same held-out tasks.

    python -m benchmarks.ablations [--out runs/ablations] [--seeds 3] [--steps 200]

Tasks of 24 features and 512 rows drawn from Adult; a variant differs from `paper` as its name says. All get the same
number of outer steps. The score is the log of the excess loss on 256 held-out tasks, lower is better; its standard
error is over meta-seeds. A second call resumes where the first one stopped. Needs the Adult data set (`L2P_DATA_DIR`,
or a download).
"""

import csv
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from l2p.compare.results import Estimate
from l2p.compare.summary import markdown
from l2p.run.protector import Protector
from meta_train.config import Constrained, MetaConfig
from meta_train.evaluation.resolved import resolve
from meta_train.evaluation.scores import evaluate
from meta_train.training import gradients
from meta_train.training.untrained import plain

FIELDS = {"num_features": (24,), "rows": 512, "learning_rate": 5e-3, "eval_tasks": 256, "accountant": "ctcdp"}
#: By an augmented Lagrangian, of whole runs; and by the soft constraint.
LAGRANGIAN = Constrained.of("ablation", "paper", **FIELDS, clips="together", alternate=(1, 5))
SOFT = LAGRANGIAN.but(constraint="soft")
APART = LAGRANGIAN.but(clips="apart")
BANDS = 4
#: Steps of a segment.
SEGMENT = 10

#: A starting point for each variant, and its config.
VARIANTS: dict[str, tuple[Callable[[jax.Array], Protector], MetaConfig]] = {
    "paper: Lagrangian, whole run": (plain.paper, LAGRANGIAN),
    "paper, segments of 10 steps": (plain.paper, LAGRANGIAN.but(unroll=SEGMENT)),
    "paper, score and penalty clipped apart": (plain.paper, APART),
    "paper, segments of 10 steps, clipped apart": (plain.paper, APART.but(unroll=SEGMENT)),
    "paper, soft constraint": (plain.paper, SOFT),
    "paper, private norm query": (plain.paper_norm, LAGRANGIAN),
}


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
    build, config = VARIANTS[name]
    trainer = Trainer(config.but(steps=steps), build(jax.random.key(0)))
    for seed in seeds:
        yield trainer.score(trainer.train(build(jax.random.key(seed)), seed))


def table(rows: list[dict[str, str]]) -> str:
    """Mean and standard error over meta-seeds, by variant."""
    columns = ["score", *(f"band_{band + 1}" for band in range(BANDS))]
    lines = []
    for name in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == name]
        means = [Estimate.of(float(row[column]) for row in mine) for column in columns]
        lines.append([name, str(len(mine)), f"{means[0].mean:.3f} ± {means[0].error:.3f}"])
        lines[-1] += [f"{mean.mean:.2f}" for mean in means[1:]]
    low, high = LAGRANGIAN.tasks.log_signal
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
    for name in VARIANTS:
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
