"""Stored losses of a protector beside those that were stored at an earlier commit.

    python benchmarks/since_commit.py COMMIT [--method universal]

Reads results.csv of every comparison in results/, now and at that commit, pairs seeds, and prints each cell (set,
model and budget) whose mean test loss has moved by more than two standard errors, and how many have. The commit must be
in this checkout's history.
"""

import collections
import subprocess
import tempfile
from pathlib import Path

import tyro

from l2p.base.errors import InputError
from l2p.compare import results, wins

ROOT = Path(__file__).resolve().parent.parent
#: Where results lie, and where they lay at earlier commits.
FOLDERS = ("benchmarks/results", "docs/results")
RESULTS = ROOT / FOLDERS[0]
LOSS = "test_loss"
#: Budgets below and from here on are counted apart.
SMALL = 0.1

#: Test losses by budget and seed.
Losses = dict[float, dict[int, float]]


def git(*words: str) -> bytes | None:
    """Output of a git command; None if it fails."""
    process = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    return None if process.returncode else process.stdout


def losses(path: Path, method: str) -> Losses:
    """Test losses of one comparison."""
    return results.by_seed(results.read(path), LOSS).get(method, {})


def losses_at(commit: str, path: Path, method: str) -> Losses:
    """The same at a commit; empty where there was no such comparison."""
    places = (f"{commit}:{folder}/{path.relative_to(RESULTS)}" for folder in FOLDERS)
    text = next((shown for place in places if (shown := git("show", place)) is not None), None)
    if text is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        (copy := Path(folder) / path.name).write_bytes(text)
        return losses(copy, method)


def main(commit: tyro.conf.Positional[str], method: str = "universal") -> None:
    """Compare with a commit and print."""
    if git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") is None:
        raise InputError(f"this checkout knows no commit {commit}; fetch the whole history, or name another one.")
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for path in sorted(RESULTS.glob("*/results.csv")):
        now, then = losses(path, method), losses_at(commit, path, method)
        for epsilon in sorted(now.keys() & then.keys()):
            lead = results.Estimate.of(results.difference(then[epsilon], now[epsilon]).values())
            verdict = wins.verdict(lead)
            if verdict in ("better", "worse"):
                before, after = (results.Estimate.of(by_epsilon[epsilon].values()).mean for by_epsilon in (then, now))
                print(f"{path.parent.name} {epsilon:g}: {before:.4f} to {after:.4f} ({lead.error:.4f}), {verdict}")
            counts[f"epsilon {'below' if epsilon < SMALL else 'from'} {SMALL:g}", verdict] += 1
    for (budgets, verdict), count in sorted(counts.items()):
        print(f"{budgets}: {verdict} in {count}")


if __name__ == "__main__":
    tyro.cli(main)
