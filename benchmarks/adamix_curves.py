"""The trade-offs of Golatkar et al. (CVPR 2022, Figures 1 and 2), from the committed tables.

    python -m benchmarks.adamix_curves

Test error against epsilon, the attack's AUC against test error over these budgets, and test error against rows per
class, public or private. The first two are from `adamix_table.py --sets synthetic`, the third from `adamix_measures.py
--only samples`; their commands are in pages/adamix.md.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from l2p.base import drawing
from l2p.base.drawing import COLOURS, MARKERS, End

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/adamix"
METHODS = ("fully_private", "ngd", "adamix", "adamix_projected", "pda_dpmd", "universal:pretrained")
Line = dict[str, str]


def main() -> None:
    """Draw pages/adamix_curves.svg."""
    lines, samples = (_read(name) for name in ("synthetic", "samples"))
    figure, (by_epsilon, robustness, trade_off) = drawing.panels(3)
    by_epsilon.set(xscale="log", xlabel="epsilon", ylabel="test error")
    robustness.set(xlabel="test error", ylabel="AUC of an attack by the loss")
    trade_off.set(xlabel="training rows per class", ylabel="test error")
    budgets, attacks, sizes = {}, {}, {}
    for place, method in enumerate(METHODS):
        mine = [line for line in lines if line["method"] == method]
        epsilons, errors, aucs = ([float(line[column]) for line in mine] for column in ("epsilon", "test_error", "auc"))
        budgets[method] = _draw(by_epsilon, epsilons, errors, place)
        attacks[method] = _draw(robustness, errors, aucs, place)
    for method in ("only public", "paragon"):
        (error,) = (float(line["test_error"]) for line in lines if line["method"] == method)
        by_epsilon.axhline(error, **drawing.REFERENCE)
        budgets[method] = End(budgets[METHODS[0]].x, error, drawing.TEXT)
    rows = [int(line["rows per class"]) for line in samples]
    for place, column in enumerate(list(samples[0])[1:]):
        errors = [float(line[column].split()[0]) / 100 for line in samples]
        sizes[column.removesuffix(", %")] = _draw(trade_off, rows, errors, place)
    trade_off.set_xticks(rows)
    for axis, ends in ((by_epsilon, budgets), (robustness, attacks), (trade_off, sizes)):
        drawing.name_lines(axis, ends)
    drawing.save(figure, ROOT / "benchmarks/pages/adamix_curves.svg")


def _read(name: str) -> list[Line]:
    with (RESULTS / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def _draw(axis: Axes, x: Sequence[float], y: Sequence[float], place: int) -> End:
    """Draw the line in this place of the colours; returns its right end."""
    axis.plot(x, y, color=COLOURS[place], marker=MARKERS[place], markersize=3.5)
    return End(*max(zip(x, y, strict=True)), COLOURS[place])


if __name__ == "__main__":
    main()
