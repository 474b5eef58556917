"""Mixed public and private rows: a table like Table 1 of Golatkar et al. (CVPR 2022), on sets that can be had.

    OMP_NUM_THREADS=1 python -m benchmarks.adamix_table [--sets digits synthetic] [--epsilons 1 3 10]
        [--seeds 5] [--methods ngd adamix] [--out table.csv]

`mnist`: ten classes, frozen random features, 2 public rows per class. `synthetic`: 20 classes in 200 dimensions, whose
rows lie near 30 shared directions of falling weight, as features of frozen networks do; 26 training rows per class, 2
of them public: so few that public ones should pay. `digits` is small and quick. Rows have length 1. A public row is
the same one for every method: `fully private` and the paragon have it among their rows.

Every method has one learning rate: the multiple of its own, from one grid, with the least mean test error over all
budgets on public data that no figure comes from: another draw of `synthetic`, with classes and directions of its own,
and for digits and MNIST the other one of the two. `universal:pretrained` runs as it ships.
`adamix_projected` projects onto the total public gradient, as Algorithm 2 has it; `adamix` does not. Simulations on
public data; the attack is by a threshold on the loss, of private training rows against test rows. `gain` is the test
error of public rows alone less the method's, paired by draw. One thread for the linear algebra: more of them than free
cores make a singular value decomposition eighty times slower.
"""

import csv
import dataclasses
import functools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from l2p.checkpoints.lookup import resolve
from l2p.compare.audit.membership import auc_ceiling, threshold_attack
from l2p.compare.audit.mixed import performance_boost
from l2p.compare.summary import markdown
from l2p.models import Softmax
from l2p.oracle.setup import Setup
from l2p.privacy import Budget, Filter
from l2p.privacy.cost.convert import gdp_mu
from l2p.protectors import Optax
from l2p.protectors.hand_designed import Problem
from l2p.protectors.stepwise.public_rows import fit
from l2p.protectors.with_public_rows.adamix import PUBLIC_RATE
from l2p.queries.solve import minimise
from l2p.run.protector import Protector
from l2p.run.run import run
from l2p.tables.public.catalog import load
from l2p.tables.public.random_features import random_features
from l2p.tables.vision.starts import unit_rows
from l2p.task.rows import Rows

DELTA, PER_CLASS = 1e-5, 2
#: Of `synthetic`: noise within a class, over that of its mean, and noise off the shared directions.
SPREAD, OFF_DIRECTIONS = 1.2, 0.3
#: Learning rates that every private method chooses from, as multiples of its own.
RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
#: The draw of `synthetic` for that choice, and the noise; figures come from draws 0, 1 and so on.
TUNING = 1000
Make = Callable[[Problem], Protector]
ONLY_PUBLIC, SHRUNK, PARAGON = "only public", "only public, heavier L2", "paragon"


@dataclasses.dataclass(frozen=True)
class Draw:
    """Private, public and test rows of one draw, and all training rows together."""

    private: Rows
    public: Rows
    test: Rows
    model: Softmax

    @property
    def merged(self) -> Rows:
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), self.private, self.public)


def _rows(x: np.ndarray, y: np.ndarray) -> Rows:
    return Rows(jnp.asarray(unit_rows(x), jnp.float32), jnp.asarray(y, jnp.float32), jnp.ones(len(y)))


def split(x: np.ndarray, y: np.ndarray, num_test: int, random: np.random.Generator) -> Draw:
    """Test rows, then `PER_CLASS` public ones of each class; the others are private. Rows are centred on the mean of
    public ones before they get length 1."""
    order = random.permutation(len(y))
    test, train = order[:num_test], order[num_test:]
    classes = np.unique(y)
    public = np.concatenate([train[y[train] == label][:PER_CLASS] for label in classes])
    private = np.setdiff1d(train, public)
    x = x - x[public].mean(0)
    return Draw(*(_rows(x[part], y[part]) for part in (private, public, test)), Softmax(len(classes)))


@functools.cache
def _images(name: str) -> tuple[np.ndarray, np.ndarray]:
    data = load(name)
    side = math.isqrt(data.x.shape[1])
    return random_features((data.x / data.x.max()).reshape(-1, side, side).astype(np.float32)), data.y.astype(int)


def images(name: str, seed: int) -> Draw:
    """Random features of images."""
    x, y = _images(name)
    return split(x, y, len(y) // 5, np.random.default_rng(seed))


def synthetic(
    seed: int, num_classes: int = 20, num_features: int = 200, per_class: int = 26, num_directions: int = 30
) -> Draw:
    """Normal classes around means of their own, along shared directions of falling weight; a little noise beside."""
    random = np.random.default_rng(seed)
    weights = np.arange(1, num_directions + 1) ** -0.5
    directions = weights[:, None] * random.normal(size=(num_directions, num_features)) / num_features**0.5
    means = random.normal(size=(num_classes, num_directions))
    y = np.tile(np.arange(num_classes), 2 * per_class)
    latent = means[y] + SPREAD * random.normal(size=(len(y), num_directions))
    x = latent @ directions + OFF_DIRECTIONS * random.normal(size=(len(y), num_features)) / num_features**0.5
    return split(x, y, num_classes * per_class, random)


SETS: dict[str, Callable[[int], Draw]] = {
    "digits": functools.partial(images, "digits"),
    "mnist": functools.partial(images, "mnist"),
    "synthetic": synthetic,
}


def tuning_draw(source: str) -> Draw:
    """Public data that learning rates are chosen on for a set; no figure comes from it."""
    return {"digits": SETS["mnist"], "mnist": SETS["digits"], "synthetic": synthetic}[source](TUNING)


def shipped(name: str, source: str) -> Make:
    """The protector that `resolve` returns; `InputError` if it was made from the set that it is to be scored on."""
    # `synthetic` is of this file alone; a shipped protector's source of that name holds other tasks.
    avoid = () if source == "synthetic" else (source,)

    def make(problem: Problem) -> Protector:
        return resolve(name, problem.budget, problem.model, "gdp", avoid=avoid).protector

    return make


#: Methods by the name in the table; what needs no public rows treats them as private.
NAMES = (
    "fully_private", "noisygd:pretrained", "noisygd:projected", "ppgd", "ngd", "adamix", "adamix_projected", "pda_dpmd",
    "public_moments", "universal:pretrained",
)  # fmt: skip
#: It runs at the rates that it learned; a set has the fold of it that never saw the set.
LEARNED = "universal:pretrained"


def faster(protector: Protector, factor: float) -> Protector:
    """The protector with every learning rate of its projectors multiplied."""
    count = 0

    def changed(part: Any) -> Any:
        nonlocal count
        if not isinstance(part, Optax):
            return part
        count += 1
        rates = part.hyperparameters
        moved = {**rates, "learning_rate": rates["learning_rate"] + math.log(factor)}
        return part.replace(hyperparameters=moved)

    scaled = jax.tree.map(changed, protector, is_leaf=lambda part: isinstance(part, Optax))
    if not count:
        raise TypeError(f"{type(protector).__name__} has no learning rate that is known here.")
    return scaled


_run, _fit = jax.jit(run), jax.jit(fit, static_argnames=("model", "num_steps"))
_minimise = jax.jit(minimise, static_argnames="model")


@dataclasses.dataclass(frozen=True)
class Score:
    """Test error and loss, and the attack's AUC with its standard error; nan where there is no attack."""

    error: float
    loss: float
    auc: float = math.nan
    auc_error: float = math.nan


def score(draw: Draw, params: jax.Array) -> Score:
    """Score of params for raw rows."""
    losses = draw.model.losses(params[None], draw.test.x, draw.test.y)[0]
    members = draw.model.losses(params[None], draw.private.x, draw.private.y)[0]
    attack = threshold_attack(np.asarray(members), np.asarray(losses))
    error = float((draw.model.predict(params, draw.test.x) != draw.test.y).mean())
    return Score(error, float(losses.mean()), attack.auc, attack.standard_error)


def private_score(
    draw: Draw,
    make: Make,
    epsilon: float,
    factor: float,
    seed: int,
    start: jax.Array | None = None,
) -> Score:
    """One simulated run, from `start` or from the model's own."""
    budget = Budget(epsilon, DELTA)
    plain = make(Problem(budget, draw.model))
    protector = plain if factor == 1.0 else faster(plain, factor)
    rows, public = (draw.private, draw.public) if protector.needs_public else (draw.merged, None)
    num_rows = rows.y.shape[0]
    price_list = Filter("gdp", budget).price_list()
    setup = Setup.create(draw.model, budget.adjacency, price_list, num_rows)
    start = draw.model.init(rows.x.shape[1]) if start is None else start
    return score(draw, _run(protector, start, rows, setup, jax.random.key(seed), public)[0])


def public_score(draw: Draw) -> Score:
    """The start of the mixed methods alone; members of a run that read no private row cannot be told."""
    zeros = draw.model.init(draw.public.x.shape[1])
    return score(draw, _fit(draw.model, zeros, draw.public, PUBLIC_RATE, 200, 1e-3))


def shrunk_score(draw: Draw) -> Score:
    """The start of METHOD:pretrained alone, whose L2 term is heavier."""
    zeros = draw.model.init(draw.public.x.shape[1])
    return score(draw, _minimise(draw.model, zeros, draw.public, 1.0 / len(draw.public.y)))


def paragon_score(draw: Draw) -> Score:
    """No privacy: the minimiser on all training rows. Its L2 term is so small that it does not underfit."""
    zeros = draw.model.init(draw.public.x.shape[1])
    return score(draw, _minimise(draw.model, zeros, draw.merged, 1e-5))


def best_rate(
    make: Make,
    draw: Draw,
    epsilons: Sequence[float],
    factors: Sequence[float] = RATES,
    start: jax.Array | None = None,
) -> float:
    """The factor with the least mean test error over the budgets on the draw for tuning; the smaller one of equals."""

    def error(factor: float) -> float:
        return sum(private_score(draw, make, epsilon, factor, TUNING, start).error for epsilon in epsilons)

    return min(factors, key=lambda factor: (error(factor), factor))


def table(source: str, epsilons: tuple[float, ...], seeds: int, only: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Lines of the table: one per method and epsilon."""
    tuning, draws = tuning_draw(source), [SETS[source](seed) for seed in range(seeds)]
    ends = {
        name: [call(draw) for draw in draws]
        for name, call in ((ONLY_PUBLIC, public_score), (SHRUNK, shrunk_score), (PARAGON, paragon_score))
    }
    first = draws[0]
    _say(
        f"{source}: {len(first.private.y)} private, {len(first.public.y)} public, {len(first.test.y)} test rows, "
        f"{first.public.x.shape[1]} features, {len(first.model.labels)} classes"
    )
    for name, scores in ends.items():
        yield _line(source, name, math.nan, math.nan, scores, ends)
    for name in only or NAMES:
        make, begun = shipped(name, source), time.perf_counter()
        factor = 1.0 if name == LEARNED else best_rate(make, tuning, epsilons)
        for epsilon in epsilons:
            scores = [private_score(draw, make, epsilon, factor, seed) for seed, draw in enumerate(draws)]
            line = _line(source, name, epsilon, factor, scores, ends)
            _say(f"{source} {name} {epsilon:g}: {line['test_error']:.4f} in {time.perf_counter() - begun:.0f} s")
            yield line


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def standard_error(values: np.ndarray) -> float:
    """Standard error of the mean."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def _line(source: str, name: str, epsilon: float, factor: float, scores: list[Score], ends: dict) -> dict[str, Any]:
    error, auc = np.array([s.error for s in scores]), np.mean([s.auc for s in scores])
    gain = np.array([s.error for s in ends[ONLY_PUBLIC]]) - error
    public, paragon = (np.mean([s.error for s in ends[end]]) for end in (ONLY_PUBLIC, PARAGON))
    ceiling = auc_ceiling(gdp_mu(epsilon, DELTA)) if epsilon == epsilon else math.nan
    # Seeds are independent, so the standard error of their mean falls with the root of their number.
    doubt = float(np.sqrt(np.mean([s.auc_error**2 for s in scores]) / len(scores)))
    boost = performance_boost(float(public), float(error.mean()), float(paragon)) if epsilon == epsilon else math.nan
    return {
        "set": source, "method": name, "epsilon": epsilon, "rate_factor": factor, "test_error": error.mean(),
        "standard_error": standard_error(error), "gain": gain.mean(), "gain_error": standard_error(gain),
        "test_loss": np.mean([s.loss for s in scores]), "boost": boost, "auc": auc, "auc_doubt": doubt,
        "auc_ceiling": ceiling, "below_ceiling": not auc > ceiling + 2 * doubt,
    }  # fmt: skip


def main(
    sets: tuple[str, ...] = ("synthetic",),
    epsilons: tuple[float, ...] = (1.0, 3.0, 10.0),
    seeds: int = 5,
    methods: tuple[str, ...] = (),
    out: Path | None = None,
) -> None:
    """Print the table, of all methods if none is named, and write it to a CSV file line by line if one is given."""
    lines = []
    for line in (line for source in sets for line in table(source, epsilons, seeds, methods)):
        lines.append(line)
        if out is not None:
            with out.open("w", newline="") as stream:
                writer = csv.DictWriter(stream, list(line))
                writer.writeheader()
                writer.writerows({key: _rounded(value) for key, value in line.items()} for line in lines)
    print(markdown(list(lines[0]), [[str(_rounded(value)) for value in line.values()] for line in lines]))


def _rounded(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else value


if __name__ == "__main__":
    tyro.cli(main)
