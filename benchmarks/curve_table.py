"""Where curves pay and where the default chooses them: a table of what `curves.py` printed.

    python -m benchmarks.curve_table

Reads the lines of benchmarks/results/curves.md, which `curves.py` printed for four knots at quantiles, and prints by
table and epsilon the change of mean test loss in percent of that with straight lines, its standard error in brackets;
bold where `l2p.tables.schema.curve_choice` chooses curves. Then it counts, where it chooses them and where not, the
cells that gain and lose by more than two standard errors, and the others.
"""

import re
from pathlib import Path
from typing import NamedTuple

from l2p.tables.schema.curve_choice import LEAST_SHARE, LEAST_SIGNAL, LEAST_SIGNAL_CROWDED

LINES = Path(__file__).parent / "results" / "curves.md"
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
#: Rows and columns of each table, how many of its numbers with more than 20 values crowd, and of how many.
TABLES = {
    "adult": (40_700, 14, 2, 5),
    "sick": (3_772, 29, 5, 6),
    "page.blocks": (5_473, 10, 6, 10),
    "diabetes": (768, 8, 1, 7),
    "hypothyroid": (3_772, 29, 5, 6),
    "vehicle": (846, 18, 2, 17),
    "segment": (2_310, 19, 4, 16),
    "waveform5000": (5_000, 40, 0, 40),
    "credit.a": (690, 15, 1, 6),
    "magic": (19_020, 10, 4, 10),
    "spambase": (4_597, 57, 49, 57),
    "bupa": (345, 6, 2, 5),
    "ring": (7_400, 20, 20, 20),
    "australian": (690, 14, 2, 6),
    "elevators": (16_599, 18, 1, 14),
    "abalone": (4_177, 8, 0, 7),
    "kin8nm": (8_192, 8, 0, 8),
    "puma8NH": (8_192, 8, 0, 8),
    "pol": (15_000, 48, 12, 26),
    "housing": (506, 13, 2, 11),
    "ailerons": (13_750, 40, 1, 25),
    "bank32nh": (8_192, 32, 0, 28),
    "mv": (40_768, 10, 0, 7),
}
NUMBERS = ("elevators", "abalone", "kin8nm", "puma8NH", "pol", "housing", "ailerons", "bank32nh", "mv")


class Cell(NamedTuple):
    """Curves against straight lines at one budget: mu N for each feature, and the change of loss with its error over
    the loss with lines."""

    signal: float
    change: float
    error: float

    @property
    def verdict(self) -> str:
        """Whether curves gain or lose by more than two standard errors."""
        return "level" if abs(self.change) <= 2.0 * self.error else "gain" if self.change < 0 else "lose"


def read() -> dict[tuple[str, float], Cell]:
    """The cells by table and epsilon."""
    lines = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in LINES.read_text().splitlines()]
    measured = [line for line in lines if len(line) == 8 and re.match(r"[\d.]+$", line[1])]
    straight = {(line[0], line[1]): float(line[5]) for line in measured if line[2] == "straight"}
    cells = {}
    for name, epsilon, knots, _, signal, _, _, change in measured:
        if knots == "4 at quantiles":
            mean, error = (float(part) / straight[name, epsilon] for part in change.strip(")").split(" ("))
            cells[name.removeprefix("openml:"), float(epsilon)] = Cell(float(signal), mean, error)
    return cells


def chosen(name: str, cell: Cell) -> bool:
    """Whether the default chooses curves."""
    _, _, crowded, count = TABLES[name]
    crowds = name not in NUMBERS and crowded >= LEAST_SHARE * count
    return cell.signal >= (LEAST_SIGNAL_CROWDED if crowds else LEAST_SIGNAL)


def text(name: str, cell: Cell | None) -> str:
    """A cell of the table."""
    if cell is None:
        return ""
    percent = f"{100 * cell.change:+.0f} ({100 * cell.error:.0f})".replace("+0", "0").replace("-0", "0")
    return f"**{percent}**" if chosen(name, cell) else percent


def main() -> None:
    """Print the table and the counts."""
    cells = read()
    print("| table | rows x columns | crowded | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |")
    print("|---" * (3 + len(EPSILONS)) + "|")
    for name, (rows, columns, crowded, count) in TABLES.items():
        texts = [text(name, cells.get((name, epsilon))) for epsilon in EPSILONS]
        print(f"| {name} | {rows:,} x {columns} | {crowded} of {count} | {' | '.join(texts)} |")
    for is_chosen, title in ((True, "chosen"), (False, "not chosen")):
        verdicts = [cell.verdict for (name, _), cell in cells.items() if chosen(name, cell) == is_chosen]
        counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("gain", "lose", "level"))
        print(f"{title}: {len(verdicts)} cells, {counts}")


if __name__ == "__main__":
    main()
