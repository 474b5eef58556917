"""Bolt-on SGD against its rivals: accuracy, passes, batch sizes, tuning, and time over SGD without noise.

    python benchmarks/bolt_on.py [--data adult mnist] [--losses logistic svm] [--seeds 3] [--rows 60000] [--out FOLDER]

The four tests of Wu et al. (2017): convex and strongly convex, pure and (epsilon, delta) with delta 1 / m^2, replaced
rows. Budgets are theirs: 0.01 to 0.4 for two classes, 0.1 to 4 for ten; MNIST is ten classes, each against the rest, on
50 random projections. SGD without noise takes the same steps as bolt-on; `universal` is the fold that never saw the
data. There is none for ten classes, where `noisygd` stands in, by softmax regression on all features. Tuning chooses
among numbers of passes, by disjoint parts of the private rows or on a tenth of them that counts as public. Times are of
one pass, compiled, noise included, on random rows, in seconds of CPU, which other jobs on the machine do not lengthen;
all methods are interleaved, and a ratio is the median over turns of what one turn gives. All accuracies are of
simulations. Tables are printed, and written to FOLDER/bolt_on.md; --tables chooses among them.
"""

import dataclasses
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from l2p.api import private_train
from l2p.compare.summary import markdown
from l2p.data.catalog import load
from l2p.errors import InputError
from l2p.models import GeneralizedLinear, Logistic, find_model
from l2p.privacy.budget import Budget
from l2p.privacy.events import Adjacency
from l2p.privacy.noise import KeyNoise
from l2p.privacy.passes import Passes
from l2p.protectors import BoltOn, NoisySGD, SampledSGD
from l2p.protectors.bolt_on import PassProtector, num_problems, random_projection
from l2p.queries import NoisyPasses, PassDescent, SampledPasses
from l2p.queries.rows_in_order import orders
from l2p.simulate import split
from l2p.task import Rows, Task
from l2p.tuning.split_tuning import split_tuning, tuned_on_public

EPSILONS = {False: (0.01, 0.02, 0.05, 0.1, 0.2, 0.4), True: (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)}
PASSES, BATCHES, TIMED = (1, 10, 20), (1, 10, 50, 100, 200), (1, 10, 500)
RIDGE, PROJECTED, USUAL_PASSES, USUAL_BATCH = 1e-3, 50, 10, 50


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to run.

    Attributes:
      data: names of data sets.
      losses: of two classes, or of each class against the rest.
      seeds: splits and noise.
      rows: at most so many private rows.
      epsilons: how many of the budgets, from the largest down.
      tests: numbers of the paper's tests: 1 convex and pure, 2 convex, 3 strongly convex and pure, 4 strongly convex.
      timed_rows: rows of the timed runs.
      turns: how often each of them is timed.
      tables: "time", "epsilon", "passes", "batch size" and "tuning", or some of them.
      out: a folder for the tables.
    """

    data: tuple[str, ...] = ("adult", "mnist")
    losses: tuple[str, ...] = ("logistic", "svm")
    seeds: int = 3
    rows: int = 60_000
    epsilons: int = 6
    tests: tuple[int, ...] = (1, 2, 3, 4)
    timed_rows: int = 50_000
    turns: int = 9
    tables: tuple[str, ...] = ("time", "epsilon", "passes", "batch size", "tuning")
    out: Path | None = None


@dataclasses.dataclass(frozen=True)
class Problem:
    """One data set with one loss."""

    name: str
    loss: str
    tasks: tuple[Task, ...]

    @property
    def classes(self) -> int:
        """How many there are."""
        return int(max(task.test.y.max() for task in self.tasks)) + 1  # pyrefly: ignore[missing-attribute]

    @property
    def model(self) -> str:
        """The name of the model that is trained."""
        return self.loss if self.classes == 2 else f"softmax:{self.classes}"

    def budget(self, epsilon: float) -> Budget:
        """The paper's delta, for replaced rows."""
        return Budget(epsilon, len(self.tasks[0].private.y) ** -2.0, Adjacency.REPLACE_ONE)  # pyrefly: ignore


def problems(settings: Settings) -> Iterator[Problem]:
    """Every data set with every loss."""
    for name in settings.data:
        data = load(name)
        rows = Rows(data.x, data.y, np.ones(len(data.y), np.float32))  # pyrefly: ignore[bad-argument-type]
        tasks = tuple(_capped(split(rows, seed), settings.rows) for seed in range(settings.seeds))
        for loss in settings.losses:
            yield Problem(name, loss, tasks)


def _capped(task: Task, rows: int) -> Task:
    return dataclasses.replace(task, private=jax.tree.map(lambda leaf: leaf[:rows], task.private))


def settings_of(problem: Problem, strongly: bool, pure: bool, passes: int, batch: int) -> dict:
    """Fields of a protector of bolt-on SGD for this test."""
    lines = len(problem.tasks[0].private.y)  # pyrefly: ignore[missing-attribute]
    steps = {"rule": "strongly_convex", "ridge": RIDGE, "radius": 1 / RIDGE} if strongly else {"rule": "constant"}
    return steps | {
        "num_rows": lines,
        "num_passes": passes,
        "batch_size": batch,
        "noise": "gamma" if pure else "gaussian",
        "class_loss": problem.loss,
        "projected_features": PROJECTED if problem.tasks[0].private.x.shape[1] > 2 * PROJECTED else None,  # pyrefly: ignore
    }


def methods(problem: Problem, strongly: bool, pure: bool, passes: int, batch: int) -> dict[str, PassProtector]:
    """The protectors that are compared, by name."""
    common = settings_of(problem, strongly, pure, passes, batch)
    rooted = common | {"rule": "inverse_root", "step_size": 1.0}
    found: dict[str, PassProtector] = {"bolt_on": BoltOn(**common), "scs13": NoisySGD(**rooted)}
    if not pure:
        ball = rooted | {"radius": 10.0}
        found["bst14"] = SampledSGD(**(common if strongly else ball))
    return found


def right(problem: Problem, params: jax.Array, rows: Rows) -> float:
    """Share of rows predicted correctly."""
    guessed = find_model(problem.model).classify(jnp.asarray(params), jnp.asarray(rows.x))
    return float((np.asarray(guessed) == np.asarray(rows.y)).mean())


def accuracy(problem: Problem, protector: PassProtector | str, budget: Budget, pure: bool = False) -> str:
    """Mean test accuracy over seeds, and its standard error where there are several."""
    accountant = "basic" if pure and isinstance(protector, PassProtector) else None
    scores = []
    for seed, task in enumerate(problem.tasks):
        private, key = dataclasses.replace(task, test=None), jax.random.key(seed)
        try:
            found = private_train(
                private, protector, budget, model=problem.model, key=key, accountant=accountant, kind=kind(problem)
            )
        except InputError as error:
            return str(error).partition(",")[0]
        scores.append(right(problem, found.params, task.test))  # pyrefly: ignore[bad-argument-type]
    error = f" ± {statistics.stdev(scores) / math.sqrt(len(scores)):.3f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.3f}{error}"


def kind(problem: Problem) -> str:
    """Of its target."""
    return "binary" if problem.classes == 2 else "multiclass"


def noiseless(problem: Problem, protector: PassProtector) -> str:
    """The accuracy of the same steps without noise."""
    scores = []
    model = find_model(problem.model)
    loss = protector.loss(model)
    for seed, task in enumerate(problem.tasks):
        rows, test = (jax.tree.map(jnp.asarray, part) for part in (task.private, task.test))
        params = model.init(rows.x.shape[1])
        features = None
        if protector.projected_features:
            features = random_projection(rows.x.shape[1], protector.projected_features)
            params = model.params_for_mapped_rows(params, features)
            rows = rows.replace(x=features.apply(rows.x))
        plan = protector.plan(loss)
        query = PassDescent(loss, plan, params, jnp.ones(()), jnp.full((), -jnp.inf), num_problems(model))
        found = jax.jit(lambda query, *given: query.result(*given))(
            query, rows, orders(plan, KeyNoise(jax.random.key(seed)))
        )
        found = found if features is None else model.params_for_raw_rows(found, features)
        scores.append(right(problem, found, test))
    return f"{statistics.mean(scores):.3f}"


def by_epsilon(problem: Problem, test: int, settings: Settings) -> tuple[list[str], list[list[str]]]:
    """Accuracy against epsilon in one of the four tests."""
    strongly, pure = test > 2, test % 2 == 1
    epsilons = EPSILONS[problem.classes > 2][-settings.epsilons :]
    compared = methods(problem, strongly, pure, USUAL_PASSES, USUAL_BATCH)
    lines = [["noiseless", *[noiseless(problem, compared["bolt_on"])] * len(epsilons)]]
    for name, protector in compared.items():
        lines.append([name, *(accuracy(problem, protector, problem.budget(epsilon), pure) for epsilon in epsilons)])
    if not pure and (problem.loss == "logistic" or problem.classes == 2):
        name = f"universal-{'' if problem.loss == 'logistic' else 'svm-'}no-{problem.name}"
        name = name if problem.classes == 2 else "noisygd"
        lines.append([name, *(accuracy(problem, name, problem.budget(epsilon)) for epsilon in epsilons)])
    return ["method", *map(str, epsilons)], lines


def sweep(problem: Problem, over: str, values: tuple[int, ...], strongly: bool) -> tuple[list[str], list[list[str]]]:
    """Accuracy against the number of passes or the batch size, pure, at the second largest epsilon."""
    budget = problem.budget(EPSILONS[problem.classes > 2][-2])
    lines: dict[str, list[str]] = {}
    for value in values:
        passes, batch = (value, USUAL_BATCH) if over == "passes" else (USUAL_PASSES, value)
        compared = methods(problem, strongly, True, passes, batch)
        lines.setdefault("noiseless", []).append(noiseless(problem, compared["bolt_on"]))
        for name, protector in compared.items():
            lines.setdefault(name, []).append(accuracy(problem, protector, budget, True))
    return [over, *map(str, values)], [[name, *cells] for name, cells in lines.items()]


def tuned(problem: Problem) -> tuple[list[str], list[list[str]]]:
    """Passes chosen by parts of the private rows, or on public ones; strongly convex, the second largest epsilon."""
    budget, (task, *_) = problem.budget(EPSILONS[problem.classes > 2][-2]), problem.tasks
    private, test = task.private, task.test
    lines = len(private.y)  # pyrefly: ignore[missing-attribute]
    public = jax.tree.map(lambda leaf: leaf[: lines // 10], private)
    rest = jax.tree.map(lambda leaf: leaf[lines // 10 :], private)

    def made(rows: int) -> list[BoltOn]:
        plain = settings_of(problem, True, False, USUAL_PASSES, USUAL_BATCH)
        return [BoltOn(**plain | {"num_rows": rows, "num_passes": passes}) for passes in PASSES]

    parts = lines // (len(PASSES) + 1)
    same = jax.tree.map(lambda leaf: leaf[: parts * (len(PASSES) + 1)], private)
    by_parts = split_tuning(same, made(parts), budget, model=problem.model, key=jax.random.key(0))
    looser = dataclasses.replace(budget, delta=min(budget.delta, (lines // 20) ** -2.0))
    index = tuned_on_public(public, made(len(public.y) // 2), looser, model=problem.model, key=jax.random.key(0))
    protector = made(len(rest.y))[index]
    on_public = private_train(rest, protector, budget, model=problem.model, key=jax.random.key(1), kind=kind(problem))
    scores = [(by_parts.params, PASSES[by_parts.candidate]), (on_public.params, PASSES[index])]
    cells = [[f"{right(problem, params, test):.3f}", str(passes)] for params, passes in scores]  # pyrefly: ignore
    return ["tuned", "accuracy", "passes"], [["on parts of private rows", *cells[0]], ["on public rows", *cells[1]]]


def seconds(settings: Settings) -> tuple[list[str], list[list[str]]]:
    """CPU time of one pass relative to SGD without noise, and that of the latter in seconds."""
    generator, loss = np.random.default_rng(0), Logistic()
    x = generator.random((settings.timed_rows, 54), np.float32)
    rows = Rows(jnp.asarray(x), jnp.asarray(x[:, 0] > 0.5, jnp.float32), jnp.ones(len(x)))
    lines: dict[str, list[str]] = {}
    for batch in TIMED:
        # Rows are arguments: those of a closure would be folded into the program as it is compiled.
        timed = {name: jax.jit(call) for name, call in runs(loss, len(x), x.shape[1], batch)}
        for call in timed.values():
            jax.block_until_ready(call(rows, jax.random.key(0)))
        spans: dict[str, list[float]] = {name: [] for name in timed}
        for turn in range(settings.turns):
            for name, call in timed.items():
                began = time.process_time()
                jax.block_until_ready(call(rows, jax.random.key(turn)))
                spans[name].append(time.process_time() - began)
        for name, span in spans.items():
            over = statistics.median(one / plain for one, plain in zip(span, spans["noiseless"], strict=True))
            cell = f"{statistics.median(span):.3f} s" if name == "noiseless" else f"{over:.3f}"
            lines.setdefault(name, []).append(cell)
    return ["b", *map(str, TIMED)], [[name, *cells] for name, cells in lines.items()]


def runs(
    loss: GeneralizedLinear, lines: int, num_features: int, batch: int
) -> Iterator[tuple[str, Callable[[Rows, jax.Array], jax.Array]]]:
    """One pass of each method, noise included, as a function of rows and a key."""
    start, one = jnp.zeros(num_features + 1), jnp.ones(())
    plan, rooted = Passes(lines, 0.25, 1, batch), Passes(lines, 0.25, 1, batch, "inverse_root", step_size=1.0)
    bolt_on = PassDescent(loss, plan, start, one, jnp.full((), -jnp.inf))
    yield "noiseless", lambda rows, key: bolt_on.result(rows, orders(plan, KeyNoise(key)))
    log_delta = jnp.log(jnp.float32(1e-9))
    for name, query in {
        "bolt_on": bolt_on,
        "scs13": NoisyPasses(loss, rooted, start, one),
        "bst14": SampledPasses(loss, rooted, start, log_delta, one, in_ball=False),
    }.items():
        yield name, lambda rows, key, query=query: query.answer(rows, KeyNoise(key), Adjacency.REPLACE_ONE)


def tables(settings: Settings) -> Iterator[tuple[str, tuple[list[str], list[list[str]]]]]:
    """Every table with its title, as soon as it is made."""
    if "time" in settings.tables:
        yield f"CPU time over SGD without noise, one pass over {settings.timed_rows:,} x 54", seconds(settings)
    if set(settings.tables) <= {"time"}:
        return
    for problem in problems(settings):
        rows = len(problem.tasks[0].private.y)  # pyrefly: ignore[missing-attribute]
        what = f"{problem.name}, {problem.loss}, {rows:,} rows"
        for test in settings.tests if "epsilon" in settings.tables else ():
            yield f"{what}, test {test}: accuracy against epsilon", by_epsilon(problem, test, settings)
        for over, values in (("passes", PASSES), ("batch size", BATCHES)):
            if over in settings.tables:
                yield f"{what}, test 1, by {over}", sweep(problem, over, values, False)
        if "tuning" in settings.tables:
            yield f"{what}, tuning", tuned(problem)


def main(settings: Settings) -> None:
    """Print every table, and write them."""
    kept = [f"{platform.processor() or platform.machine()}, jax {jax.__version__}, {jax.default_backend()}"]
    print(kept[0])
    for title, (header, lines) in tables(settings):
        kept.append(f"**{title}**\n\n{markdown(header, lines)}")
        print(f"\n{kept[-1]}", flush=True)
    if settings.out is not None:
        settings.out.mkdir(parents=True, exist_ok=True)
        (settings.out / "bolt_on.md").write_text("\n\n".join(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Settings))
