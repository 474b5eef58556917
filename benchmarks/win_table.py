"""Numbers of cells in which `universal` is better than a stored rival, level with it, or worse.

    python -m benchmarks.win_table

For every comparison in results/ that has it, a Markdown line with the verdicts at each budget: against the best
hand-designed method of the cell (of those that have no public rows beside the private ones, as it has none), the best
search on the private rows, and its own control, the latter where that leaves more than 2 % of the gap. The gap is that
between the best constant prediction and the non-private model. "better" and "worse" are differences in test loss,
paired by seed, of more than two standard errors and 2 % of the gap; against the control, of more than two standard
errors. The last two lines are totals: of all cells, and of those on tables of up to 288 features.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from l2p.compare import results, standings, wins
from l2p.compare.results import LOSS, Row

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks/results"
OURS, CONTROL, CONSTANT, NONPRIVATE = "universal", "control-universal", "no_features", "nonprivate"
OPPONENTS = ("best hand-designed", "best on the private rows", "its control")
#: Differences below this share of the gap are not told.
LEAST = 0.02
#: The one set of images as they are, 784 columns; all other tables have at most 288.
PIXELS = "mnist:3,5"

Scores = Mapping[str, Mapping[float, Mapping[int, float]]]


def opponents(rows: list[Row], values: Scores, epsilon: float) -> list[str | None]:
    """Names of the methods in `OPPONENTS` at a budget; None where there is none."""
    kinds = standings.kinds(rows, rows[0]["adjacency"])
    there = {name: estimates[epsilon] for name, estimates in values.items() if estimates.get(epsilon)}
    there = {name: estimates for name, estimates in there.items() if kinds[name] in ("private", "oracle")}
    groups = (
        wins.rivals(there, OURS),
        [name for name in there if standings.form(name) == "oracle"],
        [CONTROL] if CONTROL in there else [],
    )
    return [wins.best(group, there, LOSS) for group in groups]


def verdict(lead: results.Estimate, gap: float) -> str:
    """Verdict on a lead, given the gap between a constant and the non-private model.

    >>> [verdict(results.Estimate(lead, 0.001), 0.5) for lead in (0.02, 0.005, -0.02)]
    ['better', 'level', 'worse']
    """
    return wins.verdict(lead) if abs(lead.mean) > LEAST * gap else "level"


def verdicts(rows: list[Row]) -> dict[str, list[str]]:
    """Verdicts at each budget by opponent; "-" where there is none."""
    values = results.by_seed(rows, LOSS.column)
    words: dict[str, list[str]] = {name: [] for name in OPPONENTS}
    for epsilon, losses in sorted(values[OURS].items()):
        exact = values[NONPRIVATE][epsilon]
        gap = wins.lead_over(exact, values[CONSTANT][epsilon], LOSS).mean
        for name, rival in zip(OPPONENTS, opponents(rows, values, epsilon), strict=True):
            if rival is None or (
                rival == CONTROL and wins.lead_over(exact, values[rival][epsilon], LOSS).mean < LEAST * gap
            ):
                words[name].append("-")
            else:
                lead = wins.lead_over(losses, values[rival][epsilon], LOSS)
                words[name].append(wins.verdict(lead) if rival == CONTROL else verdict(lead, gap))
    return words


def counted(verdicts: Counter[str]) -> str:
    """Number of times of each verdict, in words.

    >>> counted(Counter(["level", "better", "level"]))
    'better 1, level 2, same 0, worse 0'
    """
    return ", ".join(f"{word} {verdicts[word]}" for word in ("better", "level", wins.SAME, "worse"))


def main() -> None:
    """Print the table and its totals."""
    print(f"| set and model | {' | '.join(OPPONENTS)} |\n|---|" + "---|" * len(OPPONENTS))
    everywhere, up_to_288 = ({name: Counter[str]() for name in OPPONENTS} for _ in range(2))
    for path in sorted(FOLDER.glob("*/results.csv")):
        rows = results.read(path)
        if not {OURS, CONSTANT, NONPRIVATE} <= {row["method"] for row in rows}:
            continue
        by_opponent = verdicts(rows)
        print(
            f"| {rows[0]['data']}, {rows[0]['model']} |",
            *(f" {', '.join(words)} |" for words in by_opponent.values()),
            sep="",
        )
        for totals in (everywhere, *([] if rows[0]["data"] == PIXELS else [up_to_288])):
            for name, words in by_opponent.items():
                totals[name].update(words)
    for name, totals in (("all", everywhere), ("up to 288 features", up_to_288)):
        print(f"| {name} |{''.join(f' {counted(counts)} |' for counts in totals.values())}")


if __name__ == "__main__":
    main()
