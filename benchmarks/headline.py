"""The picture in the README: test loss against epsilon on IPUMS-BR, from the committed results of all methods.

    python benchmarks/headline.py

The best hand-designed method is the one with the best mean rank by test loss over all budgets.
"""

from pathlib import Path

from l2p.compare import results
from l2p.compare.figures import against_epsilon
from l2p.compare.wins import headline

ROOT = Path(__file__).resolve().parent.parent
FOLDER, REFERENCE = ROOT / "docs/results/ipums_br", "nonprivate"


def main() -> None:
    """Draw docs/headline.png."""
    rows = results.read(FOLDER / "results.csv")
    losses = results.by_method(rows, "test_loss")
    few = [*headline(rows, "zero_out"), REFERENCE]
    figure = against_epsilon({"test loss": {method: losses[method] for method in few}}, few, dashed=(REFERENCE,))
    figure.set_size_inches(7.2, 4.0)
    figure.savefig(ROOT / "docs/headline.png", dpi=130)
    for method in few:
        print(f"{method}: {', '.join(f'{epsilon:g} {estimate}' for epsilon, estimate in losses[method].items())}")


if __name__ == "__main__":
    main()
