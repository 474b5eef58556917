"""The trade-offs of Golatkar et al. (CVPR 2022, Figures 1 and 2), from the committed tables.

    python benchmarks/adamix_curves.py

Test error against epsilon, the attack's AUC against test error over these budgets, and test error against rows per
class, public or private. The first two are from `adamix_table.py --sets synthetic`, the third from `adamix_measures.py
--only samples`; their commands are in pages/adamix.md.
"""

import csv
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/adamix"
METHODS = ("fully_private", "ngd", "adamix", "adamix_projected", "pda_dpmd", "universal:pretrained")
Line = dict[str, str]


def main() -> None:
    """Draw pages/adamix_curves.png."""
    lines, samples = (_read(name) for name in ("synthetic", "samples"))
    figure = Figure(figsize=(13.0, 3.8), layout="constrained")
    against_epsilon, robustness, trade_off = figure.subplots(1, 3)
    for method in METHODS:
        mine = [line for line in lines if line["method"] == method]
        epsilons, errors, aucs = ([float(line[column]) for line in mine] for column in ("epsilon", "test_error", "auc"))
        against_epsilon.plot(epsilons, errors, "o-", label=method)
        robustness.plot(errors, aucs, "o-", label=method)
    for method, style in (("only public", "--"), ("paragon", ":")):
        (error,) = (float(line["test_error"]) for line in lines if line["method"] == method)
        against_epsilon.axhline(error, color="black", linestyle=style, label=method)
    rows = [int(line["rows per class"]) for line in samples]
    for column in list(samples[0])[1:]:
        errors = [float(line[column].split()[0]) / 100 for line in samples]
        trade_off.plot(rows, errors, "o-", label=column.removesuffix(", %"))
    against_epsilon.set_xscale("log")
    trade_off.set_xticks(rows)
    _label(against_epsilon, "epsilon", "test error")
    _label(robustness, "test error", "AUC of an attack by the loss")
    _label(trade_off, "training rows per class", "test error")
    figure.savefig(ROOT / "benchmarks/pages/adamix_curves.png", dpi=110)


def _read(name: str) -> list[Line]:
    with (RESULTS / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(fontsize=7)


if __name__ == "__main__":
    main()
