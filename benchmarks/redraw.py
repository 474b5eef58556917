"""Summaries and figures of all committed comparisons again, from their results.

    python -m benchmarks.redraw [NAME ...]

NAME is a folder of benchmarks/results/; all comparisons by default. No method is run.
"""

import contextlib
import os
import sys
from pathlib import Path

from l2p.compare.config import CompareConfig
from l2p.compare.leaderboard import Comparison, read_all
from l2p.compare.summary import report

RESULTS = Path(__file__).resolve().parent / "results"


def config_of(comparison: Comparison, out: Path) -> CompareConfig:
    """The comparison's settings, as far as its summary shows them."""
    methods = tuple(dict.fromkeys(row["method"] for row in comparison.rows))
    inputs = {name: comparison.inputs[name] for name in ("data", "model", "delta", "adjacency")}
    seeds = 1 + max(row["seed"] for row in comparison.rows)
    return CompareConfig(**inputs, out=out, methods=methods, seeds=seeds)


def main(names: list[str]) -> None:
    for comparison in read_all(RESULTS):
        if not names or comparison.folder.name in names:
            with (
                Path(os.devnull).open("w") as nowhere,
                contextlib.redirect_stdout(nowhere),
            ):  # the tables on the terminal
                report(comparison.rows, config_of(comparison, comparison.folder))
            print(comparison.folder.name)


if __name__ == "__main__":
    main(sys.argv[1:])
