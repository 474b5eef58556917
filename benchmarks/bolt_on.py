"""Bolt-on SGD against its rivals: accuracy, passes, batch sizes (the paper's Fig. 10, too) and tuning.

    python -m benchmarks.bolt_on [--data adult mnist] [--losses logistic svm] [--splits 3] [--out FILE]

The four tests of Wu et al. (2017): convex and strongly convex, pure and (epsilon, delta) with delta 1 / m^2, replaced
rows. Budgets are theirs: 0.01 to 0.4 for two classes, 0.1 to 4 for ten; MNIST is ten classes, each against the rest, on
50 random projections. SGD without noise takes the same steps as bolt-on; `universal-fold-1` never saw Adult. On ten
classes `noisygd` stands in, by softmax regression on all features. Tuning chooses among numbers of passes, by disjoint
parts of the private rows or on a tenth of them that counts as public. All are simulations. FILE,
benchmarks/results/bolt_on/accuracy.csv unless named, has a line for each training; what it lacks is added, so that a
run may be interrupted and asked for more splits later. The tables are drawn from it and printed.
"""

import collections
import csv
import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from l2p.compare.summary import markdown
from l2p.models import find_model
from l2p.privacy.budget import Budget
from l2p.privacy.events import Adjacency
from l2p.protectors import BoltOn, NoisySGD, SampledSGD
from l2p.protectors.by_hand.bolt_on import PassProtector, num_problems, random_projection
from l2p.queries import PassDescent
from l2p.queries.rows_in_order import orders
from l2p.release.api import private_train
from l2p.release.tuning.split_tuning import split_tuning, tuned_on_public
from l2p.run.simulate import split
from l2p.tables.public.catalog import load
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows
from l2p.task.task import Task

EPSILONS = {False: (0.01, 0.02, 0.05, 0.1, 0.2, 0.4), True: (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)}
PASSES, BATCHES = (1, 10, 20), (1, 10, 50, 100, 200)
#: Of the paper's Fig. 10.
LARGER_BATCHES = (50, 100, 150, 200)
RIDGE, PROJECTED, USUAL_PASSES, USUAL_BATCH = 1e-3, 50, 10, 50
NOISELESS, PRIVATELY, PUBLICLY = "noiseless", "tuned on parts of the private rows", "tuned on public rows"
ORDER = (NOISELESS, "bolt_on", "scs13", "bst14")
#: The fold of `universal` that never saw Adult.
FOLD = "universal-fold-1"
RESULTS = Path(__file__).parent.parent / "benchmarks/results/bolt_on/accuracy.csv"


@dataclasses.dataclass(frozen=True)
class Problem:
    """One split of a data set into private and test rows, with one loss."""

    loss: str
    task: Task

    @property
    def lines(self) -> int:
        """Number of private rows."""
        return len(self.task.private.y)  # pyrefly: ignore[missing-attribute]

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.task.test.y.max()) + 1  # pyrefly: ignore[missing-attribute]

    @property
    def model(self) -> str:
        """The name of the model that is trained."""
        return self.loss if self.classes == 2 else f"softmax:{self.classes}"

    @property
    def kind(self) -> str:
        """Kind of the target."""
        return "binary" if self.classes == 2 else "multiclass"

    def budget(self, epsilon: float) -> Budget:
        """The paper's delta, for replaced rows."""
        return Budget(epsilon, self.lines**-2.0, Adjacency.REPLACE_ONE)


@dataclasses.dataclass(frozen=True)
class Run:
    """One training: a line of the file without what it gave.

    Attributes:
      data, loss, split: the problem.
      test: the paper's: 1 convex and pure, 2 convex, 3 strongly convex and pure, 4 strongly convex.
      passes, batch: of the methods that take passes.
      method: its name.
      epsilon: its budget.
    """

    data: str
    loss: str
    test: int
    passes: int
    batch: int
    method: str
    epsilon: float
    split: int

    @property
    def strongly(self) -> bool:
        """True if the problem has a ridge."""
        return self.test > 2

    @property
    def pure(self) -> bool:
        """True if delta is 0."""
        return self.test % 2 == 1


FIELDS = [field.name for field in dataclasses.fields(Run)] + ["accuracy", "chosen_passes"]


def runs(data: str, loss: str, splits: int) -> Iterator[Run]:
    """All that belongs to a data set and a loss; those that share compiled functions follow one another."""
    ten = data == "mnist"
    epsilons, usual = EPSILONS[ten], (USUAL_PASSES, USUAL_BATCH)

    def each(test: int, passes: int, batch: int, method: str, *epsilons: float) -> Iterator[Run]:
        for epsilon in epsilons:
            yield from (Run(data, loss, test, passes, batch, method, epsilon, seed) for seed in range(splits))

    for test in (1, 2, 3, 4):
        yield from each(test, *usual, NOISELESS, math.inf)
        for method in ("bolt_on", "scs13"):
            yield from each(test, *usual, method, *epsilons)
    if not ten or loss == "logistic":  # `noisygd` on ten classes is the same for every loss of one against the rest
        yield from each(2, *usual, "noisygd" if ten else FOLD, *epsilons)
    yield from each(4, *usual, PRIVATELY, epsilons[-2])
    yield from each(4, *usual, PUBLICLY, epsilons[-2])
    for passes, batch in [(count, USUAL_BATCH) for count in PASSES] + [(USUAL_PASSES, size) for size in BATCHES]:
        if (passes, batch) != usual:
            yield from each(1, passes, batch, NOISELESS, math.inf)
            for method in ("bolt_on", "scs13"):
                yield from each(1, passes, batch, method, epsilons[-2])
    for batch in LARGER_BATCHES[1:] if ten and loss == "logistic" else ():
        yield from each(4, USUAL_PASSES, batch, NOISELESS, math.inf)
        for method in ORDER[1:]:
            yield from each(4, USUAL_PASSES, batch, method, *epsilons)
    for test in (2, 4):  # last, for it takes longest
        yield from each(test, *usual, "bst14", *epsilons)


@functools.cache
def rows_of(data: str) -> Rows:
    """All rows of a data set."""
    table = load(data)
    return Rows(table.x, table.y, np.ones(len(table.y), np.float32))  # pyrefly: ignore[bad-argument-type]


def problem_of(run: Run) -> Problem:
    """The rows of a run."""
    return Problem(run.loss, split(rows_of(run.data), run.split))


def settings_of(problem: Problem, strongly: bool, pure: bool, passes: int, batch: int) -> dict:
    """Fields of a protector of bolt-on SGD for this test."""
    steps = {"rule": "strongly_convex", "ridge": RIDGE, "radius": 1 / RIDGE} if strongly else {"rule": "constant"}
    return steps | {
        "num_rows": problem.lines,
        "num_passes": passes,
        "batch_size": batch,
        "noise": "gamma" if pure else "gaussian",
        "class_loss": problem.loss,
        "projected_features": PROJECTED if problem.task.private.x.shape[1] > 2 * PROJECTED else None,  # pyrefly: ignore
    }


def protector_of(problem: Problem, run: Run) -> PassProtector | str:
    """The method of a run."""
    common = settings_of(problem, run.strongly, run.pure, run.passes, run.batch)
    rooted = common | {"rule": "inverse_power", "step_size": 1.0}
    if run.method in ("bolt_on", NOISELESS):
        return BoltOn(**common)
    if run.method == "scs13":
        return NoisySGD(**rooted)
    if run.method == "bst14":
        return SampledSGD(**(common if run.strongly else rooted | {"radius": 10.0}))
    return run.method


def right(problem: Problem, params: jax.Array, rows: Rows) -> float:
    """Share of rows predicted correctly."""
    guessed = find_model(problem.model).classify(jnp.asarray(params), jnp.asarray(rows.x))
    return float((np.asarray(guessed) == np.asarray(rows.y)).mean())


def trained(problem: Problem, run: Run) -> jax.Array:
    """Parameters by one private method."""
    protector = protector_of(problem, run)
    return private_train(
        dataclasses.replace(problem.task, test=None),
        protector,
        problem.budget(run.epsilon),
        model=problem.model,
        key=jax.random.key(run.split),
        accountant="basic" if run.pure and isinstance(protector, PassProtector) else None,
        kind=problem.kind,
    ).params


_passes = jax.jit(lambda query, *args: query.result(*args))


def noiseless(problem: Problem, run: Run) -> jax.Array:
    """Parameters by the steps of bolt-on SGD without noise."""
    protector = protector_of(problem, run)
    assert isinstance(protector, PassProtector)
    model, rows = find_model(problem.model), jax.tree.map(jnp.asarray, problem.task.private)
    loss, features = protector.loss(model), None
    params = model.init(rows.x.shape[1])
    if protector.projected_features:
        features = random_projection(rows.x.shape[1], protector.projected_features)
        params = model.params_for_mapped_rows(params, features)
        rows = rows.replace(x=features.apply(rows.x))
    plan = protector.plan(loss)
    query = PassDescent(loss, plan, params, jnp.ones(()), jnp.full((), -jnp.inf), num_problems(model))
    raw_params = _passes(query, rows, orders(plan, KeyNoise(jax.random.key(run.split))))
    return raw_params if features is None else model.params_for_raw_rows(raw_params, features)


def tuned(problem: Problem, run: Run) -> tuple[jax.Array, int]:
    """Parameters and number of passes, chosen on parts of the private rows or on public ones."""
    budget, private, lines = problem.budget(run.epsilon), problem.task.private, problem.lines
    key, again = jax.random.split(jax.random.key(run.split))

    def candidates(rows: int) -> list[BoltOn]:
        plain = settings_of(problem, run.strongly, run.pure, USUAL_PASSES, USUAL_BATCH)
        return [BoltOn(**plain | {"num_rows": rows, "num_passes": passes}) for passes in PASSES]

    if run.method == PRIVATELY:
        part = lines // (len(PASSES) + 1)
        same = jax.tree.map(lambda leaf: leaf[: part * (len(PASSES) + 1)], private)
        result = split_tuning(same, candidates(part), budget, model=problem.model, key=key)
        return result.params, PASSES[result.candidate]
    public, rest = (
        jax.tree.map(lambda leaf, at=at: leaf[at], private) for at in np.split(np.arange(lines), [lines // 10])
    )
    looser = dataclasses.replace(budget, delta=min(budget.delta, (lines // 20) ** -2.0))
    index = tuned_on_public(public, candidates(len(public.y) // 2), looser, model=problem.model, key=key)
    chosen = candidates(len(rest.y))[index]
    result = private_train(rest, chosen, budget, model=problem.model, key=again, kind=problem.kind)
    return result.params, PASSES[index]


def measured(run: Run) -> list[object]:
    """Test accuracy of a run, and its number of passes if that was chosen."""
    problem, chosen = problem_of(run), ""
    if run.method in (PRIVATELY, PUBLICLY):
        params, chosen = tuned(problem, run)
    else:
        params = (noiseless if run.method == NOISELESS else trained)(problem, run)
    return [f"{right(problem, params, problem.task.test):.5f}", chosen]  # pyrefly: ignore[bad-argument-type]


def read_scores(path: Path) -> dict[Run, tuple[float, str]]:
    """Accuracy and chosen passes of what has been run."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            Run(
                **{
                    field.name: field.type(line[field.name])  # pyrefly: ignore[not-callable]
                    for field in dataclasses.fields(Run)
                }
            ): (float(line["accuracy"]), line["chosen_passes"])
            for line in csv.DictReader(file)
        }


def grouped(scores: dict[Run, tuple[float, str]]) -> dict[Run, list[tuple[float, str]]]:
    """All splits of the same training together, under its first."""
    groups = collections.defaultdict(list)
    for run, values in scores.items():
        groups[dataclasses.replace(run, split=0)].append(values)
    return groups


def cell(values: list[tuple[float, str]]) -> str:
    """Mean accuracy and its standard error."""
    scores = [score for score, _ in values]
    error = f" ± {statistics.stdev(scores) / math.sqrt(len(scores)):.3f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.3f}{error}".replace("0.", ".")


def drawn(data: str, loss: str, groups: dict[Run, list[tuple[float, str]]]) -> Iterator[str]:
    """The tables of a data set and a loss."""
    mine = {run: values for run, values in groups.items() if (run.data, run.loss) == (data, loss)}
    splits = sorted({len(values) for values in mine.values()})
    yield f"**{data}, {loss}**, splits: {', '.join(map(str, splits))}"
    epsilons, usual = EPSILONS[data == "mnist"], (USUAL_PASSES, USUAL_BATCH)
    lines = []
    for test in (1, 2, 3, 4):
        name = ("convex" if test < 3 else "strongly convex") + (", pure" if test % 2 else "")
        common = {run: values for run, values in mine.items() if run.test == test and (run.passes, run.batch) == usual}
        there = {run.method for run in common} - {PRIVATELY, PUBLICLY}
        for method in sorted(there, key=lambda method: ORDER.index(method) if method in ORDER else len(ORDER)):
            per = {run.epsilon: cell(values) for run, values in common.items() if run.method == method}
            lines.append([name, method, *(per.get(epsilon, per.get(math.inf, "")) for epsilon in epsilons)])
    yield markdown(["test", "method", *map(str, epsilons)], lines)
    yield larger_batches(mine, epsilons)
    chosen = [(count, USUAL_BATCH) for count in PASSES], [(USUAL_PASSES, size) for size in BATCHES]
    for title, settings in zip(("passes", "batch size"), chosen, strict=True):
        lines = [
            [method]
            + [
                cell(mine.get(Run(data, loss, 1, *setting, method, epsilon, 0), [(math.nan, "")]))
                for setting in settings
            ]
            for method, epsilon in ((NOISELESS, math.inf), ("bolt_on", epsilons[-2]), ("scs13", epsilons[-2]))
        ]
        yield markdown([title, *(str(setting[title != "passes"]) for setting in settings)], lines)
    lines = []
    for method in (PRIVATELY, PUBLICLY):
        if values := mine.get(Run(data, loss, 4, *usual, method, epsilons[-2], 0)):
            counts = collections.Counter(passes for _, passes in values)
            lines.append([method, cell(values), *(str(counts[str(passes)]) for passes in PASSES)])
    yield markdown(["", "accuracy", *(f"chose {passes}" for passes in PASSES)], lines)


def larger_batches(mine: dict[Run, list[tuple[float, str]]], epsilons: tuple[float, ...]) -> str:
    """The paper's Fig. 10: strongly convex, each method in batches of each size."""
    lines = []
    for method, batch in itertools.product(ORDER, LARGER_BATCHES):
        here = {run: values for run, values in mine.items() if run.test == 4 and run.passes == USUAL_PASSES}
        per = {run.epsilon: cell(values) for run, values in here.items() if (run.method, run.batch) == (method, batch)}
        lines.append([method, str(batch), *(per.get(epsilon, per.get(math.inf, "")) for epsilon in epsilons)])
    return markdown(["method", "b", *map(str, epsilons)], lines)


def add(path: Path, wanted: Iterable[Run]) -> None:
    """Run what the file lacks, and write each line as soon as it is known."""
    scores = read_scores(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    before = None
    with path.open("a", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        if not scores:
            lines.writerow(FIELDS)
        for run in wanted:
            if run in scores:
                continue
            if (compiled := dataclasses.replace(run, epsilon=0.0, split=0)) != before:
                jax.clear_caches()  # nothing compiled is shared, and a process may map only so much memory
            before = compiled
            lines.writerow([*dataclasses.astuple(run), *measured(run)])
            file.flush()


def main(
    data: tuple[str, ...] = ("adult", "mnist"),
    losses: tuple[str, ...] = ("logistic", "svm"),
    splits: int = 3,
    out: Path = RESULTS,
) -> None:
    """Accuracy of bolt-on SGD and its rivals.

    Args:
      data: names of data sets.
      losses: of two classes, or of each class against the rest.
      splits: of each data set; 0 only prints what the file has.
      out: the file.
    """
    pairs = list(itertools.product(data, losses))
    add(out, (run for pair in pairs for run in runs(*pair, splits)))
    groups = grouped(read_scores(out))
    for pair in pairs:
        print("\n\n".join(drawn(*pair, groups)), end="\n\n")


if __name__ == "__main__":
    tyro.cli(main)
