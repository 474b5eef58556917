"""Cells by case and in groups: how many have headroom, how much, and by which constants."""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.headroom.search import ALWAYS
from l2p.protectors.conditioning import KNOT_RANGE
from meta_train.config.bands import BANDS

Cell = dict[str, Any]

#: Cells whose control is so near to the model without privacy, as a share of the gap, have no headroom.
LEAST = 0.02
#: Groups by number of rows and of features: the least, and the first one that is too many.
SIZES = {
    "fewer than 1,000 rows": ("rows", 0, 1_000),
    "1,000 to 4,000 rows": ("rows", 1_000, 4_000),
    "4,000 rows and more": ("rows", 4_000, math.inf),
    "fewer than 16 features": ("features", 0, 16),
    "16 to 63 features": ("features", 16, 64),
    "64 features and more": ("features", 64, math.inf),
}
KINDS = {"binary": "two classes", "multiclass": "several classes", "regression": "numbers"}
HEADER = (
    *("cells", "number", "with headroom", "of the distance", "of the gap", "of loss"),
    *("sure", "control above", "searched above"),
)
#: Bands of log(mu N / d) for the choice of an eigenbasis, and what the search may choose.
RATIOS = (-math.inf, 0.0, 1.0, 2.0, 3.0, 4.0, math.inf)
CHOICES = ("as the control", "bought, too", "another share", "not bought")
#: What a cell has besides methods that were asked for.
OWN = {"start", "constant", "nonprivate", "control", "searched"}
#: Constants in the table of those that matter most.
MOST = 14


def has_headroom(cell: Cell) -> bool:
    """True if the control is far enough above the model without privacy."""
    return gap(cell) > 0.0 and distance(cell) > LEAST * gap(cell)


def gap(cell: Cell) -> float:
    """Loss at the start less that without privacy."""
    return cell["losses"]["start"] - cell["losses"]["nonprivate"]


def distance(cell: Cell) -> float:
    """The control's loss less that without privacy."""
    return cell["losses"]["control"] - cell["losses"]["nonprivate"]


def is_sure(difference: Sequence[float]) -> bool:
    """True if a mean is above zero by more than two of its standard errors."""
    mean, error = difference
    return mean > 2.0 * error


def is_above(cell: Cell) -> bool:
    """True if the control surely ends above the better of start and best constant."""
    losses = cell["losses"]
    return is_sure(cell["over"]["start" if losses["start"] < losses["constant"] else "constant"])


def bands() -> dict[str, Callable[[Cell], bool]]:
    """Tests for the bands of log(mu N) in which protectors are judged."""
    edges = itertools.pairwise(np.linspace(*KNOT_RANGE, BANDS + 1))
    return {f"{low:.1f} to {high:.1f}": functools.partial(is_within, "log_signal", low, high) for low, high in edges}


def is_within(field: str, low: float, high: float, cell: Cell) -> bool:
    """True if a number of the cell is at least `low` and below `high`."""
    return low <= cell[field] < high


def groups(cells: Sequence[Cell]) -> Mapping[str, list[Cell]]:
    """The cells by budget, target, size and model."""
    tests: dict[str, Callable[[Cell], bool]] = {"all": lambda cell: True}
    tests |= {f"log(mu N) {name}": test for name, test in bands().items()}
    tests |= {word: lambda cell, kind=kind: cell["kind"] == kind for kind, word in KINDS.items()}
    tests |= {name: functools.partial(is_within, *size) for name, size in SIZES.items()}
    models = sorted({cell["model"] for cell in cells})
    tests |= {model: lambda cell, model=model: cell["model"] == model for model in models}
    chosen = {name: [cell for cell in cells if test(cell)] for name, test in tests.items()}
    return {name: group for name, group in chosen.items() if group}


def summary(cells: Sequence[Cell]) -> str:
    """Tables of groups, of rivals, of rises, of constants, of eigenbases and of cases, in Markdown."""
    lines = [HEADER, ("---",) * len(HEADER), *((name, *figures(group)) for name, group in groups(cells).items())]
    tables = (lines, of_rivals(cells), of_rises(cells), of_constants(cells), of_bases(cells), of_cases(cells))
    return "\n\n".join("\n".join(f"| {' | '.join(line)} |" for line in table) for table in tables)


def figures(cells: Sequence[Cell]) -> list[str]:
    """Number of cells, and of those with headroom; there the mean gain of the search over the mean distance of the
    control, both in units of the gap; the former; the gain in test loss; and the share of cells where it is sure; then
    the shares of all cells where the control, and the searched one, surely end above the better of start and best
    constant."""
    able = [cell for cell in cells if has_headroom(cell)]
    gains = [cell["over"]["searched"][0] for cell in able]
    gain = np.mean([gain / gap(cell) for gain, cell in zip(gains, able, strict=True)]) if able else math.nan
    left = np.mean([distance(cell) / gap(cell) for cell in able]) if able else math.nan
    loss = f"{np.mean(gains):.4f}" if able else "-"
    shares = (
        np.mean([is_sure(cell["over"]["searched"]) for cell in able]) if able else math.nan,
        np.mean([is_above(cell) for cell in cells]),
        np.mean([is_sure(cell["searched_over_floor"]) for cell in cells]),
    )
    return [str(len(cells)), str(len(able)), percent(gain / left), percent(gain), loss, *map(percent, shares)]


def percent(share: float) -> str:
    """A share in percent, "-" for none.

    >>> percent(0.123), percent(math.nan)
    ('12 %', '-')
    """
    return "-" if math.isnan(share) else f"{100.0 * share:.0f} %"


def of_rises(cells: Sequence[Cell]) -> list[Sequence[str]]:
    """Lines on steps from one budget of a case to the next over which the control's loss rises by more than `LEAST`."""
    lines: list[Sequence[str]] = [("more budget", "epsilon", "loss", "of the gap"), ("---",) * 4]
    ordered = sorted(cells, key=lambda cell: (cell["data"], cell["model"], cell["epsilon"]))
    for before, after in itertools.pairwise(ordered):
        low, high = (cell["losses"]["control"] for cell in (before, after))
        if (before["data"], before["model"]) == (after["data"], after["model"]) and high > (1.0 + LEAST) * low:
            case, epsilons = f"{after['data']}, {after['model']}", f"{before['epsilon']:g} to {after['epsilon']:g}"
            share = percent((high - low) / gap(after)) if gap(after) > 0.0 else "-"
            lines.append((case, epsilons, f"{low:.4f} to {high:.4f}", share))
    return lines


def of_rivals(cells: Sequence[Cell]) -> list[Sequence[str]]:
    """Lines on methods that ran beside the control, in cells with headroom: in how many the loss surely is lower than
    the control's, level, the same, and surely higher; and the mean gain over the search's, in units of the gap."""
    header = ("beside the control", "cells", "better", "level", "same", "worse", "of the search's gain")
    lines: list[Sequence[str]] = [header, ("---",) * len(header)]
    for rival in sorted({name for cell in cells for name in cell["over"]} - OWN):
        able = [cell for cell in cells if has_headroom(cell) and rival in cell["over"]]
        leads = [cell["over"][rival] for cell in able]
        better, worse = (sum(is_sure((sign * mean, error)) for mean, error in leads) for sign in (1.0, -1.0))
        same = leads.count([0.0, 0.0])
        gained = sum(cell["over"][rival][0] / gap(cell) for cell in able)
        share = gained / sum(cell["over"]["searched"][0] / gap(cell) for cell in able)
        counts = (len(able), better, len(able) - better - same - worse, same, worse)
        lines.append((rival, *map(str, counts), percent(share)))
    return lines


def of_constants(cells: Sequence[Cell]) -> list[Sequence[str]]:
    """Lines on the constants that matter most where the search surely gains: by band, the mean share of the gain that
    is lost where one is put back to the control's, between none and all of it, and how far the search moved it, mean
    and standard deviation: a mean away from zero asks for other constants, a deviation for what tells tables apart."""
    surely = [cell for cell in cells if cell.get("worth") and is_sure(cell["over"]["searched"])]
    by_band = {name: [cell for cell in surely if test(cell)] for name, test in bands().items()}
    by_band = {name: group for name, group in {"all": surely, **by_band}.items() if group}

    def worth(name: str, group: Sequence[Cell]) -> float:
        return float(np.mean([np.clip(cell["worth"].get(name, 0.0), 0.0, 1.0) for cell in group]))

    def move(name: str, group: Sequence[Cell]) -> str:
        values = [cell["moved"].get(name, 0.0) for cell in group]
        return f"{np.mean(values):+.2f} ({np.std(values):.2f})"

    names = sorted({name for cell in surely for name in cell["worth"]}, key=lambda name: -worth(name, surely))
    lines: list[Sequence[str]] = [("constant", *(f"{name} ({len(group)})" for name, group in by_band.items()))]
    lines.append(("---",) * len(lines[0]))
    for name in names[:MOST]:
        entries = (f"{percent(worth(name, group))}, {move(name, group)}" for group in by_band.values())
        lines.append((name, *entries))
    return lines


def basis(cell: Cell) -> str:
    """Choice of the search about the eigenbasis, one of `CHOICES`."""
    moved = cell["moved"].get("eigenbasis.log_least_ratio", 0.0)
    if moved >= 0.0:
        return CHOICES[3] if moved else CHOICES[0]
    return CHOICES[2] if log_ratio(cell) >= ALWAYS - moved else CHOICES[1]


def log_ratio(cell: Cell) -> float:
    """log(mu N / d), on which the control's purchase of an eigenbasis depends."""
    return cell["log_signal"] - math.log(cell["features"])


def of_bases(cells: Sequence[Cell]) -> list[Sequence[str]]:
    """Lines on eigenbases: by band of log(mu N / d) how often the search made each choice, with its mean gain over the
    gap."""
    moved = [cell for cell in cells if cell.get("moved")]
    lines: list[Sequence[str]] = [("log(mu N / d)", *CHOICES), ("---",) * (1 + len(CHOICES))]
    for low, high in itertools.pairwise(RATIOS):
        entries = []
        for choice in CHOICES:
            chosen = [cell for cell in moved if low <= log_ratio(cell) < high and basis(cell) == choice]
            gains = [cell["over"]["searched"][0] / gap(cell) for cell in chosen]
            entries.append(f"{len(chosen)}: {percent(float(np.mean(gains)))}" if chosen else "0")
        lines.append((f"{low:g} to {high:g}", *entries))
    return lines


def of_cases(cells: Sequence[Cell]) -> list[Sequence[str]]:
    """A line for each table and model: at each budget the gain over the control's distance, with a star where it is
    sure, "none" where there is no headroom."""
    budgets = sorted({cell["epsilon"] for cell in cells})
    by_case: dict[str, dict[float, str]] = {}
    for cell in sorted(cells, key=lambda cell: (cell["kind"], cell["data"], cell["model"])):
        name = f"{cell['data'].removeprefix('openml:')}, {cell['model']}, {cell['rows']:,} x {cell['features']}"
        gain = cell["over"]["searched"]
        word = f"{percent(gain[0] / distance(cell))}{'*' * is_sure(gain)}" if has_headroom(cell) else "none"
        by_case.setdefault(name, {})[cell["epsilon"]] = word
    header = ("epsilon", *(f"{budget:g}" for budget in budgets))
    rows = ((name, *(words.get(budget, "") for budget in budgets)) for name, words in by_case.items())
    return [header, ("---",) * len(header), *rows]
