"""The tables of pages/public_rows.md, and how far `universal` with a warm start is ahead, from the committed rows.

    python -m benchmarks.public_rows [digits_odd|breast_cancer|adult] [METHOD]

The rows were made by the `l2p compare` commands of that page, with --public-shift 0, and 2 for a set's second file.
The first table has means. The second has what METHOD gains over each other one, paired by seed; by default it is
`universal` with a warm start.
"""

import collections
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from l2p.compare import results

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks/results/public_rows"
FILES = {"": "{}.csv", ", shifted": "{}_shifted.csv"}
Column = tuple[float, str]
#: Test loss and accuracy by method and column, f64[seeds, 2], in the order of the seeds.
Scores = dict[tuple[str, Column], np.ndarray]


def main(data: str, ours: str | None = None) -> None:
    """Print both tables of a data set; gains are those of `ours`."""
    scores = read(data)
    columns = sorted({column for _, column in scores}, key=lambda column: (column[1], column[0]))
    methods = list(dict.fromkeys(method for method, _ in scores))
    alone = next(method for method in methods if method.startswith("universal") and ":" not in method)
    ours = ours or f"{alone}:pretrained"
    show("method", methods, columns, lambda *cell: means(scores.get(cell)))
    print()
    rivals = [method for method in methods if method != ours]
    show("gain over", rivals, columns, lambda method, column: gains(scores.get((method, column)), scores[ours, column]))


def read(data: str) -> Scores:
    """Losses and accuracies of runs that could be scored; a method that refuses a data set has none."""
    by_method: dict[tuple[str, Column], dict[int, tuple[float, float]]] = collections.defaultdict(dict)
    for shift, file in FILES.items():
        path = FOLDER / file.format(data)
        for row in results.read(path) if path.exists() else ():
            if results.is_scored(row):
                by_method[row["method"], (row["epsilon"], shift)][row["seed"]] = row["test_loss"], row["test_accuracy"]
    return {key: np.array([by_seed[seed] for seed in sorted(by_seed)]) for key, by_seed in by_method.items()}


def show(title: str, methods: list[str], columns: list[Column], text: Callable[[str, Column], str]) -> None:
    """A Markdown table of methods by budgets."""
    print(f"| {title} | " + " | ".join(f"{epsilon:g}{shift}" for epsilon, shift in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for method in methods:
        print(f"| `{method}` | " + " | ".join(text(method, column) for column in columns) + " |")


def means(scores: np.ndarray | None) -> str:
    """Loss, and accuracy in percent."""
    if scores is None:
        return ""
    loss, right = scores.mean(0)
    return f"{loss:.3f} ({100 * right:.1f})"


def gains(theirs: np.ndarray | None, ours: np.ndarray) -> str:
    """Loss and accuracy in percent that are gained, each with its standard error."""
    if theirs is None:
        return ""
    gained = (theirs - ours) * (1.0, -100.0)
    (loss, right), (loss_error, right_error) = gained.mean(0), gained.std(0, ddof=1) / len(gained) ** 0.5
    return f"{loss:+.3f} ({loss_error:.3f}), {right:+.1f} ({right_error:.1f})"


if __name__ == "__main__":
    main(*sys.argv[1:] or ["digits_odd"])
