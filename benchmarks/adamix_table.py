"""Mixed public and private rows: a table like Table 1 of Golatkar et al. (CVPR 2022), on sets that can be had.

    python benchmarks/adamix_table.py [--sets digits synthetic] [--epsilons 1 3] [--seeds 3] [--out table.csv]

`mnist`: ten classes, frozen random features, 2 public rows per class. `synthetic`: 50 classes in 500 dimensions, 24
training rows per class, 2 of them public: so few that public ones should pay. `digits` is small and quick.
Rows have length 1. A public row is the same one for every method: `fully private` and the paragon have it among their
rows. Every method's private learning rate is chosen from one grid by the test error on two draws that no figure comes
from. Simulations on public data; the attack is by a threshold on the loss, of private training rows against test rows.
"""

import csv
import dataclasses
import functools
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from l2p.audit.membership import auc_ceiling, threshold_attack
from l2p.audit.mixed import performance_boost
from l2p.compare.summary import markdown
from l2p.data import load
from l2p.data.random_features import random_features
from l2p.models import Softmax
from l2p.oracle import Setup
from l2p.privacy import Budget, Filter
from l2p.privacy.convert import gdp_mu
from l2p.protector import Protector
from l2p.protectors import HAND_DESIGNED, Optax, Stepwise
from l2p.protectors.adamix import PRIVATE_RATE, PUBLIC_RATE, descent, mixed
from l2p.protectors.hand_designed import Problem
from l2p.protectors.public_rows import fit
from l2p.run import run
from l2p.task import Rows
from l2p.vision.starts import unit_rows

DELTA, PER_CLASS = 1e-5, 2
#: Learning rates that every private method chooses from, as multiples of its own.
RATES = (0.3, 1.0, 3.0, 10.0, 30.0)
#: Draws for that choice; figures come from draws 0, 1 and so on.
TUNING = (1000, 1001)
ONLY_PUBLIC, PARAGON = "only public", "paragon"


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


def synthetic(seed: int, num_classes: int = 50, num_features: int = 500, per_class: int = 24) -> Draw:
    """Normal classes around means of their own, with noise of every feature and noise along 20 shared directions."""
    random = np.random.default_rng(seed)
    means = random.normal(size=(num_classes, num_features))
    shared = 0.3 * random.normal(size=(20, num_features))
    y = np.tile(np.arange(num_classes), 2 * per_class)
    x = means[y] + 3.0 * random.normal(size=(len(y), num_features)) + random.normal(size=(len(y), 20)) @ shared
    return split(x, y, num_classes * per_class, random)


SETS: dict[str, Callable[[int], Draw]] = {
    "digits": functools.partial(images, "digits"),
    "mnist": functools.partial(images, "mnist"),
    "synthetic": synthetic,
}


def warm_start(problem: Problem) -> Stepwise:
    """NoisyGD from the model of public rows, which have no further part in it."""
    return mixed(problem.budget, descent(PRIVATE_RATE))


#: Methods by the name in the table; `merged` ones treat public rows as private.
METHODS: dict[str, Callable[[Problem], Protector]] = {
    "fully private": HAND_DESIGNED["fully_private"].make,
    "warm start": warm_start,
    **{
        name: HAND_DESIGNED[name].make
        for name in ("ppgd", "ngd", "adamix", "pda_dpmd", "public_moments")
        if name in HAND_DESIGNED
    },
}


def faster(protector: Any, factor: float) -> Any:
    """The protector with every learning rate of its projector multiplied."""
    projector = protector.projector
    if isinstance(projector, Optax):
        rates = projector.hyperparameters
        moved = {**rates, "learning_rate": rates["learning_rate"] + math.log(factor)}
        return protector.replace(projector=projector.replace(hyperparameters=moved))
    inner = faster(projector, factor) if hasattr(projector, "projector") else None
    if inner is None:
        raise TypeError(f"{type(projector).__name__} has no learning rate that is known here.")
    return protector.replace(projector=inner)


_run, _fit = jax.jit(run), jax.jit(fit, static_argnames=("model", "num_steps"))


@dataclasses.dataclass(frozen=True)
class Score:
    """Test error and loss, and the attack's AUC with its standard error; nan where there is no attack."""

    error: float
    loss: float
    auc: float = math.nan
    auc_error: float = math.nan


def score(draw: Draw, params: jax.Array) -> Score:
    """Of params for raw rows."""
    losses = draw.model.losses(params[None], draw.test.x, draw.test.y)[0]
    members = draw.model.losses(params[None], draw.private.x, draw.private.y)[0]
    attack = threshold_attack(np.asarray(members), np.asarray(losses))
    error = float((draw.model.predict(params, draw.test.x) != draw.test.y).mean())
    return Score(error, float(losses.mean()), attack.auc, attack.standard_error)


def private_score(
    draw: Draw,
    make: Callable[[Problem], Protector],
    epsilon: float,
    factor: float,
    seed: int,
    start: jax.Array | None = None,
) -> Score:
    """One simulated run, from `start` or from the model's own."""
    budget = Budget(epsilon, DELTA)
    protector = faster(make(Problem(budget, str(draw.model))), factor)
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


def paragon_score(draw: Draw) -> Score:
    """No privacy: many more steps on all training rows."""
    zeros = draw.model.init(draw.public.x.shape[1])
    return score(draw, _fit(draw.model, zeros, draw.merged, 3.0, 500, 1e-4))


def best_rate(name: str, draws: list[Draw], epsilon: float) -> float:
    """The factor with the least test error, averaged over the draws for tuning; the smaller one of equals."""
    errors = {
        factor: np.mean([private_score(draw, METHODS[name], epsilon, factor, 7).error for draw in draws])
        for factor in RATES
    }
    return min(errors, key=lambda factor: (errors[factor], factor))


def table(source: str, epsilons: tuple[float, ...], seeds: int) -> Iterator[dict[str, Any]]:
    """Lines of the table: one per method and epsilon."""
    tuning, draws = ([SETS[source](seed) for seed in which] for which in (TUNING, range(seeds)))
    ends = {
        name: [call(draw) for draw in draws] for name, call in ((ONLY_PUBLIC, public_score), (PARAGON, paragon_score))
    }
    first = draws[0]
    print(
        f"{source}: {len(first.private.y)} private, {len(first.public.y)} public, {len(first.test.y)} test rows, "
        f"{first.public.x.shape[1]} features, {len(first.model.labels)} classes",
        file=sys.stderr,
    )
    for name, scores in ends.items():
        yield _line(source, name, math.nan, math.nan, scores, ends)
    for epsilon in epsilons:
        for name in METHODS:
            begun = time.perf_counter()
            factor = best_rate(name, tuning, epsilon)
            scores = [private_score(draw, METHODS[name], epsilon, factor, seed) for seed, draw in enumerate(draws)]
            yield _line(source, name, epsilon, factor, scores, ends)
            print(f"{source} {name} {epsilon:g}: {time.perf_counter() - begun:.0f} s", file=sys.stderr)


def _line(source: str, name: str, epsilon: float, factor: float, scores: list[Score], ends: dict) -> dict[str, Any]:
    error, auc = np.array([s.error for s in scores]), np.mean([s.auc for s in scores])
    spread = error.std(ddof=1) / math.sqrt(len(error)) if len(error) > 1 else math.nan
    public, paragon = (np.mean([s.error for s in ends[end]]) for end in (ONLY_PUBLIC, PARAGON))
    ceiling = auc_ceiling(gdp_mu(epsilon, DELTA)) if epsilon == epsilon else math.nan
    # Seeds are independent, so the standard error of their mean falls with the root of their number.
    doubt = float(np.sqrt(np.mean([s.auc_error**2 for s in scores]) / len(scores)))
    boost = performance_boost(float(public), float(error.mean()), float(paragon)) if epsilon == epsilon else math.nan
    return {
        "set": source, "method": name, "epsilon": epsilon, "rate_factor": factor, "test_error": error.mean(),
        "standard_error": spread, "test_loss": np.mean([s.loss for s in scores]), "boost": boost, "auc": auc,
        "auc_doubt": doubt, "auc_ceiling": ceiling, "below_ceiling": not auc > ceiling + 2 * doubt,
    }  # fmt: skip


def main(
    sets: tuple[str, ...] = ("mnist", "synthetic"),
    epsilons: tuple[float, ...] = (1.0, 3.0),
    seeds: int = 3,
    out: Path | None = None,
) -> None:
    """Print the table, and write it to a CSV file if one is named."""
    lines = [line for source in sets for line in table(source, epsilons, seeds)]
    header = list(lines[0])
    shown = [[f"{v:.4g}" if isinstance(v, (float, np.floating)) else str(v) for v in line.values()] for line in lines]
    print(markdown(header, shown))
    if out is not None:
        with out.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, header)
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    tyro.cli(main)
