"""Stored losses of a protector beside those that were stored at an earlier commit.

    python -m benchmarks.since_commit COMMIT [--method universal]
    python -m benchmarks.since_commit COMMIT --over plain probe regression directions universal-logistic ...

Reads results.csv of every comparison in results/, now and at that commit, and pairs seeds. The first form prints each
cell (set, model and budget) whose mean test loss has moved by more than two standard errors, and how many have. The
second compares with protectors that were stored then, by what their names begin with: how many cells are better, level
and worse for each, their controls counted apart, and where the protector is worse, by how much. Comparisons whose table
was another then, being encoded in another way, are left out, and named at the end. The commit must be in this
checkout's history.
"""

import collections
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tyro

from l2p.base.errors import InputError
from l2p.checkpoints.control import CONTROL as CONSTANTS
from l2p.compare import results, wins

ROOT = Path(__file__).resolve().parent.parent
#: Where results lie, and where they lay at earlier commits.
FOLDERS = ("benchmarks/results", "docs/results")
RESULTS = ROOT / FOLDERS[0]
LOSS = "test_loss"
#: Field of inputs.json with the digest of the table.
TABLE = "table_sha256"
#: Budgets below and from here on are counted apart.
SMALL = 0.1
VERDICTS = ("better", "level", "worse")
#: Begins the names of controls.
CONTROL = f"{CONSTANTS}-"


def git(*words: str) -> bytes | None:
    """Output of a git command; None if it fails."""
    process = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    return None if process.returncode else process.stdout


def losses(path: Path) -> results.BySeed:
    """Test losses of one comparison."""
    return results.by_seed(results.read(path), LOSS)


def stored_at(commit: str, path: Path) -> bytes | None:
    """A file of the results at a commit; None where there was none."""
    places = (f"{commit}:{folder}/{path.relative_to(RESULTS)}" for folder in FOLDERS)
    return next((shown for place in places if (shown := git("show", place)) is not None), None)


def on_same_table(commit: str) -> tuple[list[Path], list[str]]:
    """Files results.csv of all comparisons whose table was that of today at a commit; and names of the others."""
    same, others = [], []
    for path in sorted(RESULTS.glob("*/results.csv")):
        inputs = path.with_name("inputs.json")
        then = stored_at(commit, inputs)
        if then is None or json.loads(then).get(TABLE) == json.loads(inputs.read_bytes()).get(TABLE):
            same.append(path)
        else:
            others.append(path.parent.name)
    return same, others


def losses_at(commit: str, path: Path) -> results.BySeed:
    """Test losses of one comparison at a commit; empty where there was no such comparison."""
    text = stored_at(commit, path)
    if text is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        (copy := Path(folder) / path.name).write_bytes(text)
        return losses(copy)


def moved(commit: str, paths: Sequence[Path], method: str) -> None:
    """Print how the method's losses have moved."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for path in paths:
        now, then = (values.get(method, {}) for values in (losses(path), losses_at(commit, path)))
        for epsilon in sorted(now.keys() & then.keys()):
            lead = results.Estimate.of(results.difference(then[epsilon], now[epsilon]).values())
            verdict = wins.verdict(lead)
            if verdict in ("better", "worse"):
                before, after = (results.Estimate.of(by_epsilon[epsilon].values()).mean for by_epsilon in (then, now))
                print(f"{path.parent.name} {epsilon:g}: {before:.4f} to {after:.4f} ({lead.error:.4f}), {verdict}")
            counts[f"epsilon {'below' if epsilon < SMALL else 'from'} {SMALL:g}", verdict] += 1
    for (budgets, verdict), count in sorted(counts.items()):
        print(f"{budgets}: {verdict} in {count}")


def generation(method: str, prefixes: Sequence[str]) -> str | None:
    """The prefix that a protector belongs to, after "control-" if it is a control; None if to none of these.

    >>> [generation(name, ["probe"]) for name in ("probe-no-digits", "control-probe", "probes")]
    ['probe', 'control-probe', None]
    """
    kind = CONTROL if method.startswith(CONTROL) else ""
    name = method.removeprefix(CONTROL)
    return next((kind + prefix for prefix in prefixes if f"{name}-".startswith(f"{prefix}-")), None)


def led(commit: str, paths: Sequence[Path], method: str, prefixes: Sequence[str]) -> None:
    """Print how the method compares with protectors of the commit, in Markdown."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    behind = []
    for path in paths:
        ours = losses(path).get(method, {})
        for rival, theirs in losses_at(commit, path).items():
            if (of := generation(rival, prefixes)) is None:
                continue
            leads = {e: wins.lead_over(ours[e], theirs[e], results.LOSS) for e in sorted(ours.keys() & theirs.keys())}
            verdicts = {epsilon: wins.verdict(lead) for epsilon, lead in leads.items()}
            counts[of].update("level" if verdict == wins.SAME else verdict for verdict in verdicts.values())
            worse = [f"{e:g}: {-leads[e].mean:.4f} ({leads[e].error:.4f})" for e in leads if verdicts[e] == "worse"]
            if worse and not of.startswith(CONTROL):
                behind.append(f"| {path.parent.name} | `{rival}` | {', '.join(worse)} |")
    if not counts:
        raise InputError(f"no protector at {commit} has a name that begins with {', '.join(prefixes)}; correct these.")
    print(f"| generation | {' | '.join(VERDICTS)} | better or level |\n|---|{'---|' * (len(VERDICTS) + 1)}")
    counts["all but controls"] = sum(
        (row for of, row in counts.items() if not of.startswith(CONTROL)), collections.Counter()
    )
    for of, verdicts in sorted(counts.items(), key=lambda item: (item[0].startswith(CONTROL), item[0])):
        share = 1 - verdicts["worse"] / verdicts.total()
        print(f"| `{of}` | {' | '.join(str(verdicts[word]) for word in VERDICTS)} | {share:.0%} |")
    print("\n| comparison | protector | worse by, at epsilon |\n|---|---|---|", *behind, sep="\n")


def main(commit: tyro.conf.Positional[str], method: str = "universal", over: tuple[str, ...] = ()) -> None:
    """Compare with a commit and print."""
    if git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") is None:
        raise InputError(f"this checkout knows no commit {commit}; fetch the whole history, or name another one.")
    paths, others = on_same_table(commit)
    if over:
        led(commit, paths, method, over)
    else:
        moved(commit, paths, method)
    if others:
        print(f"\nLeft out, because the table was another: {', '.join(others)}.")


if __name__ == "__main__":
    tyro.cli(main)
