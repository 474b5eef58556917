"""The picture in the README: excess test loss against epsilon on six tables, from committed results.

    python -m benchmarks.headline

Draws docs/headline.svg and prints what it shows, and for each table whether `universal` is better than the best
hand-designed method at each budget, level with it or worse, by two standard errors of differences paired by seed. 0 is
the non-private model and 1 the best constant prediction. Lines are the methods that `wins.headline` names: `universal`,
by the fold that never saw the table; the pair of LSTMs of the L2P paper, where it was compared; and, by mean rank of
the test loss over a table's budgets, the best hand-designed method and the best form of AGD.
"""

from pathlib import Path

from l2p.base import drawing
from l2p.compare import results, standings, wins
from l2p.compare.figures import Table, draw_lines
from l2p.compare.relative import CONSTANT, excess_loss
from l2p.compare.results import LOSS, Row

ROOT = Path(__file__).resolve().parent.parent
#: Folders of results, with the titles of their panels.
TABLES = {
    "adult": "Adult, logistic",
    "ipums_br": "IPUMS-BR, logistic",
    "ipums_br_svm": "IPUMS-BR, SVM",
    "california": "California housing, least squares",
    "kr_vs_kp": "Chess endings, logistic",
    "mnist_35_mlp": "MNIST 3 or 5, network",
}
OURS, PAIR, BEST, AGD = "universal", "LSTM pair of the paper", "best hand-designed", "best AGD"
LIMITS = (0.002, 2.0)


def lines(rows: list[Row]) -> tuple[Table, dict[str, str]]:
    """What a panel shows, by the name of its line, and the method behind each."""
    excess = excess_loss(rows)
    protector, *others = wins.headline(rows, rows[0]["adjacency"])
    pair = next((name for name in others if name.startswith(standings.PAIR)), None)
    designed = [name for name in others if name in wins.rivals(others, protector)]
    agd = next((name for name in designed if name.startswith(wins.AGD)), None)
    methods = {OURS: protector, PAIR: pair, BEST: designed[0], AGD: agd, "best constant": CONSTANT}
    methods = {name: method for name, method in methods.items() if method is not None}
    return {name: excess[method] for name, method in methods.items()}, methods


def verdicts(rows: list[Row], methods: dict[str, str]) -> list[str]:
    """`universal` against the best hand-designed method, in a word for each budget."""
    losses = results.by_seed(rows, LOSS.column)
    ours, theirs = (losses[methods[name]] for name in (OURS, BEST))
    leads = {epsilon: wins.lead_over(ours[epsilon], theirs[epsilon], LOSS) for epsilon in sorted(ours)}
    return [f"{wins.verdict(lead)} at {epsilon:g}" for epsilon, lead in leads.items()]


def main() -> None:
    figure, axes = drawing.panels(3, 2, width=3.1, height=2.6)
    for place, (axis, (folder, title)) in enumerate(zip(axes, TABLES.items(), strict=True)):
        rows = results.read(ROOT / "benchmarks/results" / folder / "results.csv")
        table, methods = lines(rows)
        axis.set(xscale="log")
        ends = draw_lines(axis, table, (OURS, BEST, PAIR, AGD), ("best constant",))
        axis.set(yscale="log", ylim=LIMITS)
        epsilons = sorted(table[OURS])
        few = epsilons[:: 2 if len(epsilons) > 4 else 1]
        axis.set_xticks(few, [f"{epsilon:g}" for epsilon in few])
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set_title(title, fontsize="medium", loc="left")
        axis.set(xlabel="epsilon" if place >= 3 else "", ylabel="excess test loss" if place % 3 == 0 else "")
        if place % 3 == 2:
            drawing.name_lines(axis, ends)
        print(f"{title}: {', '.join(f'{name} is {method}' for name, method in methods.items() if name != method)}")
        print(f"  {OURS} is {', '.join(verdicts(rows, methods))}")
        for name, estimates in table.items():
            print(f"  {name}: {', '.join(f'{epsilon:g} {estimate}' for epsilon, estimate in estimates.items())}")
    drawing.save(figure, ROOT / "docs/headline.svg")


if __name__ == "__main__":
    main()
