"""Are a protector's stored losses lower than those that were stored at an earlier commit?

    python benchmarks/since_commit.py COMMIT [--method universal]

Reads results.csv of every comparison in docs/results, now and at that commit, pairs seeds, and prints each cell (set,
model and budget) whose mean test loss has moved by more than two standard errors, and how many have.
"""

import collections
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import tyro

from l2p.compare import results

ROOT = Path(__file__).resolve().parent.parent
#: Test losses by budget and seed.
Losses = dict[float, dict[int, float]]


def losses(path: Path, method: str) -> Losses:
    """Those of the scored runs of one comparison."""
    found: Losses = collections.defaultdict(dict)
    for row in results.read(path):
        if row["method"] == method and results.is_scored(row):
            found[row["epsilon"]][row["seed"]] = row["test_loss"]
    return found


def losses_at(commit: str, path: Path, method: str) -> Losses:
    """The same at a commit; empty where there was no such comparison."""
    asked = ["git", "-C", str(ROOT), "show", f"{commit}:{path.relative_to(ROOT)}"]
    shown = subprocess.run(asked, capture_output=True, check=False)
    if shown.returncode:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        (copy := Path(folder) / path.name).write_bytes(shown.stdout)
        return losses(copy, method)


def main(commit: tyro.conf.Positional[str], method: str = "universal") -> None:
    """Compare with a commit and print."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for path in sorted(ROOT.glob("docs/results/*/results.csv")):
        now, then = losses(path, method), losses_at(commit, path, method)
        for epsilon in sorted(now.keys() & then.keys()):
            seeds = sorted(now[epsilon].keys() & then[epsilon].keys())
            before, after = (np.array([one[epsilon][seed] for seed in seeds]) for one in (then, now))
            error = (after - before).std(ddof=1) / len(seeds) ** 0.5
            verdict = "level"
            if abs(moved := (after - before).mean()) > 2.0 * error:
                verdict = "lower" if moved < 0.0 else "higher"
                print(f"{path.parent.name} {epsilon:g}: {before.mean():.4f} to {after.mean():.4f} ({error:.4f})")
            counts["epsilon below .1" if epsilon < 0.1 else "epsilon from .1 on", verdict] += 1
    for (budgets, verdict), count in sorted(counts.items()):
        print(f"{budgets}: {verdict} in {count}")


if __name__ == "__main__":
    tyro.cli(main)
