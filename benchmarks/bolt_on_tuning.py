"""Private tuning of bolt-on SGD and its rivals over passes and ridge: Algorithm 3 and Fig. 6 of Wu et al. (2017).

    python -m benchmarks.bolt_on_tuning [--data adult mnist] [--splits 3] [--out FILE]

Each candidate is trained on a part of the private rows of its own, with steps and batches for so many, and the last
part chooses: 5 or 10 passes and, in the strongly convex tests, a ridge of .0001, .001 or .01, as in the paper. All else
is that of benchmarks/bolt_on.py: its four tests, batches of 50, logistic loss, replaced rows. FILE,
benchmarks/results/bolt_on/tuned.csv unless named, has a line for each tuning; what it lacks is added.
"""

import collections
import csv
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import tyro

from benchmarks import bolt_on
from l2p.compare.summary import markdown
from l2p.protectors import BoltOn, NoisySGD, SampledSGD
from l2p.protectors.by_hand.bolt_on import PassProtector
from l2p.release.tuning.split_tuning import rows_of_part, split_tuning

PASSES, RIDGES = (5, 10), (1e-4, 1e-3, 1e-2)
METHODS = ("bolt_on", "scs13", "bst14")
EPSILONS = {"adult": (0.02, 0.1, 0.4), "mnist": (0.2, 1.0, 4.0)}
RESULTS = bolt_on.RESULTS.with_name("tuned.csv")


class Tuning(NamedTuple):
    """A line of the file without what it gave; tests as in `bolt_on.Run`."""

    data: str
    test: int
    method: str
    epsilon: float
    split: int


class Setting(NamedTuple):
    """What is chosen."""

    passes: int
    ridge: float

    def __str__(self) -> str:
        return f"{self.passes}, {self.ridge:g}" if self.ridge else str(self.passes)


def tunings(data: str, splits: int) -> Iterator[Tuning]:
    """All of a data set."""
    for test, method in itertools.product((1, 2, 3, 4), METHODS):
        if method != "bst14" or test % 2 == 0:  # which has no pure form
            yield from (
                Tuning(data, test, method, epsilon, seed) for epsilon in EPSILONS[data] for seed in range(splits)
            )


def settings(test: int) -> list[Setting]:
    """Those among which a test chooses."""
    return [Setting(*setting) for setting in itertools.product(PASSES, RIDGES if test > 2 else (0.0,))]


def candidate(problem: bolt_on.Problem, tuning: Tuning, setting: Setting, rows: int) -> PassProtector:
    """A method with a setting, for so many rows."""
    strongly, pure = tuning.test > 2, tuning.test % 2 == 1
    common = bolt_on.settings_of(problem, strongly, pure, setting.passes, bolt_on.USUAL_BATCH) | {"num_rows": rows}
    if strongly:
        common |= {"ridge": setting.ridge, "radius": 1 / setting.ridge}
    if tuning.method == "bolt_on":
        return BoltOn(**common)
    rooted = common | {"rule": "inverse_power", "step_size": 1.0}
    if tuning.method == "scs13":
        return NoisySGD(**rooted)
    return SampledSGD(**(common if strongly else rooted | {"radius": 10.0}))


def measured(tuning: Tuning) -> tuple[float, Setting]:
    """Test accuracy, and what was chosen."""
    problem = bolt_on.problem_of(bolt_on.Run(tuning.data, "logistic", *[0] * 3, tuning.method, 0.0, tuning.split))
    choices = settings(tuning.test)
    rows = rows_of_part(problem.lines, len(choices))
    private = jax.tree.map(lambda leaf: leaf[: rows * (len(choices) + 1)], problem.task.private)
    candidates = [candidate(problem, tuning, setting, rows) for setting in choices]
    key, budget = jax.random.key(tuning.split), problem.budget(tuning.epsilon)
    result = split_tuning(private, candidates, budget, model=problem.model, key=key)
    assert problem.task.test is not None
    return bolt_on.right(problem, result.params, problem.task.test), choices[result.candidate]


def read(path: Path) -> dict[Tuning, tuple[float, str]]:
    """Accuracy and choice of what has been run."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            Tuning(line["data"], int(line["test"]), line["method"], float(line["epsilon"]), int(line["split"])): (
                float(line["accuracy"]),
                line["chosen"],
            )
            for line in csv.DictReader(file)
        }


def table(data: str, scores: dict[Tuning, tuple[float, str]]) -> str:
    """A line for each test and method: accuracies, and the settings in the order of how often they were chosen."""
    lines = []
    for test, method in itertools.product((1, 2, 3, 4), METHODS):
        mine = {tuning: values for tuning, values in scores.items() if tuning[:3] == (data, test, method)}
        if mine:
            name = ("convex" if test < 3 else "strongly convex") + (", pure" if test % 2 else "")
            per = [[values for tuning, values in mine.items() if tuning.epsilon == e] for e in EPSILONS[data]]
            chosen = collections.Counter(choice for _, choice in mine.values()).most_common()
            words = "; ".join(f"{choice} ({count})" for choice, count in chosen)
            lines.append([name, method, *(bolt_on.cell(values) if values else "" for values in per), words])
    return markdown(["test", "method", *map(str, EPSILONS[data]), "chosen (times)"], lines)


def main(data: tuple[str, ...] = ("adult", "mnist"), splits: int = 3, out: Path = RESULTS) -> None:
    """Private tuning over passes and ridge.

    Args:
      data: names of data sets.
      splits: of each; 0 only prints what the file has.
      out: the file.
    """
    scores, before = read(out), None
    with out.open("a", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        if not scores:
            lines.writerow((*Tuning._fields, "accuracy", "chosen"))
        for tuning in itertools.chain.from_iterable(tunings(name, splits) for name in data):
            if tuning in scores:
                continue
            if tuning[:3] != before:
                jax.clear_caches()  # nothing compiled is shared, and a process may map only so much memory
            before = tuning[:3]
            accuracy, chosen = measured(tuning)
            lines.writerow((*tuning, f"{accuracy:.5f}", chosen))
            file.flush()
    for name in data:
        print(f"**{name}**\n\n{table(name, read(out))}\n")


if __name__ == "__main__":
    tyro.cli(main)
