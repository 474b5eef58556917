"""The picture in the README: test loss against epsilon on IPUMS-BR, from the committed results of all methods.

    python benchmarks/headline.py

The best hand-designed method is the one with the best mean rank by test loss over all budgets.
"""

from pathlib import Path

from l2p.compare import results
from l2p.compare.figures import against_epsilon
from l2p.compare.wins import headline

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks/results/ipums_br"
#: AGD starts at 1.6, far above.
LIMITS = (0.455, 0.625)


def main() -> None:
    """Draw docs/headline.png."""
    rows = results.read(FOLDER / "results.csv")
    losses = results.by_method(rows, "test_loss")
    protector, _, best, agd = headline(rows, "zero_out")
    lines = {
        f"{protector.split('-')[0]}, which never saw this table": losses[protector],
        f"{best}, the best hand-designed": losses[best],
        agd: losses[agd],
        "without privacy": losses["nonprivate"],
    }
    figure = against_epsilon({"test loss": lines}, dashed=("without privacy",), limits=LIMITS)
    figure.set_size_inches(8.0, 3.8)
    figure.savefig(ROOT / "docs/headline.png", dpi=130)
    for method, estimates in lines.items():
        print(f"{method}: {', '.join(f'{epsilon:g} {estimate}' for epsilon, estimate in estimates.items())}")


if __name__ == "__main__":
    main()
