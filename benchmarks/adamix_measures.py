"""Measures of AdaMix's parts: the figures of Golatkar et al. (CVPR 2022) on sets that can be had.

    OMP_NUM_THREADS=1 python -m benchmarks.adamix_measures [--only ablation clip ...] [--set synthetic] [--epsilon 3]
        [--seeds 3] [--factors 0.01 0.03 0.1] [--out FOLDER]

Each measure is one function below, whose first line says what it shows. Simulations on public data, which read the rows
that they treat as private: none of these numbers could be released with a run.
"""

import csv
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from benchmarks.adamix_table import (
    DELTA,
    RATES,
    SETS,
    TUNING,
    Draw,
    best_rate,
    faster,
    private_score,
    public_score,
    split,
    tuning_draw,
)
from l2p.compare.audit.mixed import subspace_errors
from l2p.compare.audit.per_instance import instance_losses
from l2p.compare.summary import markdown
from l2p.oracle.setup import Setup
from l2p.privacy import Budget, Filter
from l2p.protectors import HAND_DESIGNED, PublicFit, PublicSubspace, PublicSum
from l2p.protectors.hand_designed import Problem, logit_constant
from l2p.protectors.stepwise.public_rows import PublicGradients
from l2p.protectors.with_public_rows.adamix import (
    CLIPPED_RATE,
    SIGMA,
    adamix,
    adamix_projected,
    descent,
    fully_private,
    ngd,
    steps_for,
)
from l2p.protectors.with_public_rows.adamix_theory import adamix_theory
from l2p.queries.solve import minimise
from l2p.run.protector import Protector
from l2p.run.run import run
from l2p.tables.vision.starts import from_names

Make = Callable[[Problem], Protector]
Start = Callable[[Draw, int], jax.Array]
Change = Callable[[Draw], Draw]
Table = tuple[list[str], list[list[str]]]
#: Budgets of the trade-off between public and private rows.
SAMPLE_BUDGETS = (1.0, 3.0, 10.0)


@dataclasses.dataclass(frozen=True)
class Config:
    """Draws of a set, a budget, and the factors that every variant's learning rate is chosen from."""

    source: str
    epsilon: float
    seeds: int
    factors: tuple[float, ...]

    @property
    def draws(self) -> list[Draw]:
        return [SETS[self.source](seed) for seed in range(self.seeds)]

    def best(self, make: Make, change: Change = lambda draw: draw, start: Start | None = None) -> float:
        """The factor with the least test error on the public data for tuning."""
        if len(self.factors) == 1:
            return self.factors[0]
        draw = change(tuning_draw(self.source))
        return best_rate(make, draw, [self.epsilon], self.factors, None if start is None else start(draw, TUNING))

    def error(self, make: Make, change: Change = lambda draw: draw, start: Start | None = None) -> str:
        """Mean test error in percent and its standard error over draws, at the best factor, which follows."""
        factor = self.best(make, change, start)
        errors = [self._error(make, change(draw), seed, factor, start) for seed, draw in enumerate(self.draws)]
        return f"{_percent(errors)} (x {factor:g})"

    def _error(self, make: Make, draw: Draw, seed: int, factor: float, start: Start | None) -> float:
        params = None if start is None else start(draw, seed)
        return private_score(draw, make, self.epsilon, factor, seed, params).error


def _percent(errors: list[float]) -> str:
    spread = np.std(errors, ddof=1) / math.sqrt(len(errors)) if len(errors) > 1 else math.nan
    return f"{100 * np.mean(errors):.2f} +- {100 * spread:.2f}"


def _along_rows(problem: Problem) -> Protector:
    return adamix(problem).replace(projector=PublicSubspace(PublicSum(descent(CLIPPED_RATE)), matrix="rows"))


def ablation(config: Config) -> Table:
    """Test error without each part, and with a projection."""
    variants: dict[str, Make] = {
        "adamix": adamix,
        "projection onto the total gradient, adamix_projected": adamix_projected,
        "projection onto the rows' gradients": _along_rows,
        "without adaptive clip, ngd": ngd,
        "projection without adaptive clip": lambda p: adamix_projected(p).replace(scheduler=ngd(p).scheduler),
        "without start": lambda p: adamix(p).without(PublicFit),
        "without the public gradient": lambda p: adamix(p).replace(projector=descent(CLIPPED_RATE)),
        "decay towards the start": lambda p: adamix(p).replace(
            projector=PublicSum(descent(CLIPPED_RATE, to_start=True))
        ),
    }
    lines = [[name, config.error(make)] for name, make in variants.items()]
    public = _percent([public_score(draw).error for draw in config.draws])
    return ["variant", "test error, %"], [["only public", public], *lines]


def clip(config: Config) -> Table:
    """Test error by the quantile of public norms that is clipped at."""

    def at(share: float) -> Make:
        def make(problem: Problem) -> Protector:
            plain = adamix(problem)
            return plain.replace(scheduler=plain.scheduler.replace(logit_share=logit_constant(share)))

        return make

    return ["quantile", "test error, %"], [[f"{s:g}", config.error(at(s))] for s in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)]


def starts(config: Config) -> Table:
    """Test error from zero, from names, from few shots and from few shots that begin at names.

    A name's encoding is the mean of its class in all rows with as much noise again: a stand-in for a text encoder that
    knows the class but not the images."""
    lines = []
    for name, shots, names in (("zero", 0, 0), ("names", 0, 1), ("few shots", 1, 0), ("names, then few shots", 1, 1)):
        make = adamix if shots else lambda p: adamix(p).without(PublicFit)
        lines.append([name, config.error(make, start=_at_names if names else None)])
    return ["start", "test error, %"], lines


def _at_names(draw: Draw, seed: int) -> jax.Array:
    return from_names(_encodings(draw, seed), draw.model, scale=10.0)


def _encodings(draw: Draw, seed: int) -> np.ndarray:
    x, y = np.asarray(draw.merged.x), np.asarray(draw.merged.y)
    means = np.stack([x[y == label].mean(0) for label in draw.model.labels])
    noise = np.random.default_rng(seed).normal(size=means.shape)
    return means + noise * np.linalg.norm(means) / np.linalg.norm(noise)


def sigma(config: Config) -> Table:
    """Test error by the noise of a step, and so by the length of the run, with the learning rate times T kept."""

    def at(noise: float) -> Make:
        def make(problem: Problem) -> Protector:
            steps = steps_for(problem.budget, noise)
            slower = PublicSum(descent(CLIPPED_RATE * (SIGMA / noise) ** 2))
            return adamix(problem).replace(num_steps=steps, projector=slower)

        return make

    lines = []
    for noise in (5.0, 10.0, 20.0, 40.0):
        steps = steps_for(Budget(config.epsilon, DELTA), noise)
        lines.append([f"{noise:g}", str(steps), config.error(at(noise))])
    return ["sigma", "T", "test error, %"], lines


def subspace(config: Config) -> Table:
    """Share of the private gradient outside P directions, at the model of public rows: of public ones and of random."""
    lines, classes = [], len(config.draws[0].model.labels)
    for matrix, count in (("total", 2), ("total", classes - 1), ("rows", classes - 1), ("rows", 2 * classes - 1)):
        errors = []
        for seed, draw in enumerate(config.draws):
            start = HAND_DESIGNED["ngd"](Budget(config.epsilon, DELTA)).replace(num_steps=1)
            params = _start_of(start, draw)
            sides = (PublicGradients.at(draw.model, params, rows) for rows in (draw.public, draw.private))
            errors.append(subspace_errors(*sides, count, jax.random.key(seed), matrix))  # type: ignore[arg-type]
        public, random = np.mean(errors, 0)
        lines.append([matrix, str(count), f"{public:.3f}", f"{random:.3f}"])
    return ["matrix", "P", "outside public directions", "outside random ones"], lines


def _start_of(protector: Protector, draw: Draw) -> jax.Array:
    setup = _setup(draw, 1.0).replace(cap=jnp.float32(0.0))
    zeros = draw.model.init(draw.public.x.shape[1])
    return jax.jit(run)(protector, zeros, draw.private, setup, jax.random.key(0), draw.public)[0]


def _setup(draw: Draw, epsilon: float) -> Setup:
    budget = Budget(epsilon, DELTA)
    return Setup.create(draw.model, budget.adjacency, Filter("gdp", budget).price_list(), draw.private.y.shape[0])


def pdp(config: Config) -> Table:
    """Histogram of the rows' privacy loss, mu_i over that of the run, on one draw."""
    draw, lines = config.draws[0], []
    for name in ("fully_private", "ngd", "adamix"):
        make = HAND_DESIGNED[name].make
        protector = faster(make(Problem(Budget(config.epsilon, DELTA), draw.model)), config.best(make))
        public = draw.public if protector.needs_public else None
        zeros = draw.model.init(draw.public.x.shape[1])
        audit = instance_losses(
            protector,  # type: ignore[arg-type]
            zeros,
            draw.private,
            _setup(draw, config.epsilon),
            jax.random.key(0),
            public,
        )
        counts, edges = audit.histogram(5)
        lines.append(
            [name, *(f"{count / counts.sum():.3f}" for count in counts), f"{np.median(audit.epsilon(DELTA)):.2f}"]
        )
    header = [f"{low:.1f} to {high:.1f}" for low, high in itertools.pairwise(edges)]
    return ["method", *header, "median epsilon"], lines


def shots(config: Config) -> Table:
    """Test error by public rows per class, of public rows alone and of AdaMix, for which the others are private."""
    lines = []
    for count in (1, 2, 4, 8):
        change = functools.partial(_with_public, per_class=count)
        alone = _percent([public_score(change(draw)).error for draw in config.draws])
        lines.append([str(count), alone, config.error(adamix, change)])
    return ["public rows per class", "only public, %", "mixed, %"], lines


def samples(config: Config) -> Table:
    """Test error by training rows per class: all of them public, or all of them private at budgets."""
    lines = []
    for count in (2, 4, 8, 16, 26):
        public = _percent([public_score(_with_public(draw, count)).error for draw in config.draws])
        change = functools.partial(_only_private, per_class=count)
        private = [
            dataclasses.replace(config, epsilon=epsilon).error(fully_private, change) for epsilon in SAMPLE_BUDGETS
        ]
        lines.append([str(count), public, *private])
    return ["rows per class", "public, %", *(f"private, epsilon {epsilon:g}, %" for epsilon in SAMPLE_BUDGETS)], lines


def _only_private(draw: Draw, per_class: int) -> Draw:
    """So many training rows of each class, all private."""
    rows = _with_public(draw, per_class).public
    return dataclasses.replace(draw, private=rows, public=jax.tree.map(lambda leaf: leaf[:0], rows))


def _with_public(draw: Draw, per_class: int) -> Draw:
    """The same training rows with so many public ones of each class."""
    rows, y = draw.merged, np.asarray(draw.merged.y)
    # Public rows of the draw come last, so that they are taken first here.
    public = np.concatenate([np.flatnonzero(y == label)[::-1][:per_class] for label in draw.model.labels])
    private = np.setdiff1d(np.arange(len(y)), public)
    pick = [jax.tree.map(lambda leaf: leaf[part], rows) for part in (private, public)]  # noqa: B023
    return dataclasses.replace(draw, private=pick[0], public=pick[1])


def shift(config: Config) -> Table:
    """Test error with public rows of a shifted domain: moved by a share of the way to one common direction."""
    lines = []
    for share in (0.0, 0.3, 0.6, 0.9):
        change = functools.partial(_shifted, share=share)
        alone = _percent([public_score(change(draw)).error for draw in config.draws])
        lines.append([f"{share:g}", alone, config.error(adamix, change)])
    return ["shift", "only public, %", "mixed, %"], lines


def _shifted(draw: Draw, share: float) -> Draw:
    """Public rows moved towards one common direction, which test and private rows do not have."""
    direction = np.random.default_rng(5).normal(size=draw.public.x.shape[1])
    direction /= np.linalg.norm(direction)
    x = (1.0 - share) * np.asarray(draw.public.x, np.float64) + share * direction
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return dataclasses.replace(draw, public=draw.public.replace(x=jnp.asarray(x, jnp.float32)))


def rates(config: Config) -> Table:
    """Theorems 3 and 4 on a synthetic problem: excess training loss by T at one budget, and by the number of public
    rows at one T. The first term of the bound falls as 1 / T, and with many steps the excess as public rows^(-1/2)."""
    lines = []
    for steps, per_class in ((30, 16), (100, 16), (300, 16), (1000, 16), (1000, 1), (1000, 4), (1000, 64)):
        excess = [_excess(seed, steps, per_class, config.epsilon) for seed in range(config.seeds)]
        lines.append([str(steps), str(3 * per_class), f"{np.mean(excess):.4f}", f"{np.std(excess):.4f}"])
    return ["T", "public rows", "excess loss", "standard deviation"], lines


def _excess(seed: int, steps: int, per_class: int, epsilon: float) -> float:
    """Mean training loss above the least one, of `adamix_theory` on three normal classes."""
    random = np.random.default_rng(seed)
    y = np.arange(2400) % 3
    x = np.eye(3, 10)[y] + 0.6 * random.normal(size=(2400, 10))
    draw = _with_public(split(x, y, 300, random), per_class)
    protector = adamix_theory(Problem(Budget(epsilon, DELTA))).replace(num_steps=steps)
    zeros = draw.model.init(10)
    setup = _setup(draw, epsilon)
    params = jax.jit(run)(protector, zeros, draw.private, setup, jax.random.key(seed), draw.public)[0]
    rows = draw.merged
    best = minimise(draw.model, zeros, rows)
    losses = draw.model.losses(jnp.stack([params, best]), rows.x, rows.y).mean(1)
    return float(losses[0] - losses[1])


MEASURES: dict[str, Callable[[Config], Table]] = {
    measure.__name__: measure
    for measure in (ablation, clip, starts, sigma, subspace, pdp, shots, samples, shift, rates)
}


def main(
    only: tuple[str, ...] = tuple(MEASURES),
    set: str = "synthetic",
    epsilon: float = 3.0,
    seeds: int = 3,
    factors: tuple[float, ...] = RATES,
    out: Path | None = None,
) -> None:
    """Print the tables of the measures named, on draws of one set, and write each to a CSV file in the folder `out`;
    with one of `factors` no rate is tuned."""
    config = Config(set, epsilon, seeds, factors)
    for name in only:
        header, lines = MEASURES[name](config)
        print(f"\n{name}: {(MEASURES[name].__doc__ or '').splitlines()[0]}\n\n{markdown(header, lines)}", flush=True)
        if out is not None:
            with (out / f"{name}.csv").open("w", newline="") as stream:
                csv.writer(stream).writerows([header, *lines])


if __name__ == "__main__":
    tyro.cli(main)
