"""`control-filter` beside every stored rival: in how many cells is it better, level or worse?

    python benchmarks/win_table.py

For every folder docs/results/NAME_filter, which `l2p compare --methods control-filter no_features` made with the
settings of NAME, a Markdown line with the verdicts at each budget: against the best hand-designed method of the cell,
the learned protector that NAME lists first, and the best search on the private rows. "better" and "worse" are
differences in test loss, paired by seed, of more than two standard errors and 2 % of the gap between the best constant
prediction and the non-private model.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from l2p.compare import results, standings, wins
from l2p.compare.results import LOSS, Row

FOLDER, SUFFIX = Path(__file__).resolve().parent.parent / "docs/results", "_filter"
OURS, CONSTANT, NONPRIVATE = "control-filter", "no_features", "nonprivate"
OPPONENTS = ("best hand-designed", "learned for the model", "best on the private rows")
#: Differences below this share of the gap are not told.
LEAST = 0.02

Scores = Mapping[str, Mapping[float, Mapping[int, float]]]


def opponents(rows: list[Row], values: Scores, epsilon: float) -> list[str | None]:
    """Names of the methods in `OPPONENTS` at a budget; None where there is none."""
    kinds = standings.kinds(rows, rows[0]["adjacency"])
    there = {name: found[epsilon] for name, found in values.items() if found.get(epsilon)}
    there = {name: found for name, found in there.items() if kinds[name] in ("private", "oracle")}
    forms = {name: standings.form(name) for name in there}
    first = rows[0]["method"]
    groups = (
        [name for name in there if forms[name] in wins.HAND_DESIGNED_FORMS],
        [first] if first in there else [],
        [name for name in there if forms[name] == "oracle"],
    )
    return [wins.best(group, there, LOSS) for group in groups]


def verdict(lead: results.Estimate, gap: float) -> str:
    """Of a lead, and of the gap that there is between a constant and the non-private model.

    >>> [verdict(results.Estimate(lead, 0.001), 0.5) for lead in (0.02, 0.005, -0.02)]
    ['better', 'level', 'worse']
    """
    return wins.verdict(lead) if abs(lead.mean) > LEAST * gap else "level"


def verdicts(ours: list[Row], theirs: list[Row]) -> dict[str, list[str]]:
    """By opponent, a verdict at each budget."""
    mine, values = results.by_seed(ours, LOSS.column), results.by_seed(theirs, LOSS.column)
    found: dict[str, list[str]] = {name: [] for name in OPPONENTS}
    for epsilon, losses in sorted(mine[OURS].items()):
        gap = wins.lead_over(values[NONPRIVATE][epsilon], mine[CONSTANT][epsilon], LOSS).mean
        for name, rival in zip(OPPONENTS, opponents(theirs, values, epsilon), strict=True):
            if rival is not None:
                found[name].append(verdict(wins.lead_over(losses, values[rival][epsilon], LOSS), gap))
    return found


def main() -> None:
    """Print the table and its totals."""
    print(f"| set and model | {' | '.join(OPPONENTS)} |\n|---|---|---|---|")
    totals = {name: Counter[str]() for name in OPPONENTS}
    for folder in sorted(FOLDER.glob(f"*{SUFFIX}")):
        ours = results.read(folder / "results.csv")
        theirs = results.read(FOLDER / folder.name.removesuffix(SUFFIX) / "results.csv")
        found = verdicts(ours, theirs)
        print(f"| {ours[0]['data']}, {ours[0]['model']} |", *(f" {', '.join(one)} |" for one in found.values()), sep="")
        for name, one in found.items():
            totals[name].update(one)
    counted = (", ".join(f"{word} {totals[name][word]}" for word in ("better", "level", "worse")) for name in OPPONENTS)
    print(f"| all |{''.join(f' {one} |' for one in counted)}")


if __name__ == "__main__":
    main()
