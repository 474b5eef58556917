"""results.csv, one row per method, budget and seed, and its summary statistics."""

import csv
import dataclasses
import math
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from l2p.base.errors import InputError

COLUMNS = (
    *("data", "model", "method", "epsilon", "delta", "adjacency", "accountant", "seed"),
    *("test_accuracy", "test_mse", "train_loss", "test_loss", "steps", "epsilon_certified", "seconds", "note"),
    "test_auc",
)
#: `test_accuracy` and `test_auc` are empty for a regression, `test_mse` for anything else.
METRICS = ("test_accuracy", "test_mse", "train_loss", "test_loss", "test_auc")
#: The same run compiled for batches of different sizes may have float32 metrics that differ in the last digit; relative
#: differences up to this count as 0.
ROUNDING = 1e-6
_INTEGERS = ("seed", "steps")
_NUMBERS = ("epsilon", "delta", *METRICS, "epsilon_certified", "seconds")
#: Columns that older files may lack.
LATER = ("test_mse", "test_auc")

Row = dict[str, Any]
Cell = tuple[str, float, int]  # method, epsilon, seed
BySeed = dict[str, dict[float, dict[int, float]]]  # method, epsilon, seed


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric by which methods are compared.

    Attributes:
      column: of results.csv.
      label: in tables and figures.
      sign: 1 if higher is better, -1 if lower is.
    """

    column: str
    label: str
    sign: int


ACCURACY = Metric("test_accuracy", "test accuracy", 1)
ERROR = Metric("test_mse", "test mean squared error", -1)
LOSS = Metric("test_loss", "test loss", -1)
AUC = Metric("test_auc", "test AUC", 1)


def metric_of(rows: Iterable[Row]) -> Metric:
    """The metric of a comparison: the error of a regression, else accuracy."""
    return ERROR if any(row["test_mse"] is not None for row in rows) else ACCURACY


def cell(row: Row) -> Cell:
    """The cell of a row."""
    return row["method"], row["epsilon"], row["seed"]


def is_scored(row: Row) -> bool:
    """True if the row is from a run; otherwise its note says why there is none."""
    return row["train_loss"] is not None


def note(hold_out: object | None, text: str) -> str:
    """The note of a row: in brackets the checkpoint that stood for the protector of that name, and then a text.

    >>> note("universal-fold-2, made without adult", "Far out."), note(None, "Far out.")
    ('[universal-fold-2, made without adult] Far out.', 'Far out.')
    """
    return text if hold_out is None else f"[{hold_out}] {text}".strip()


def split_note(text: str) -> tuple[str, str]:
    """The two parts that `note` joined; the first is empty if no other checkpoint stood for the protector.

    >>> split_note("[universal-fold-2, made without adult] Far out."), split_note("Far out.")
    (('universal-fold-2, made without adult', 'Far out.'), ('', 'Far out.'))
    """
    match = re.fullmatch(r"(?:\[([^\]]*)\] ?)?(.*)", text, re.DOTALL)
    assert match is not None
    return match[1] or "", match[2]


def hold_outs(rows: Iterable[Row]) -> list[str]:
    """A sentence on each method that ran as a hold-out of its protector.

    >>> hold_outs([{"method": "universal", "data": "adult", "note": "[universal-fold-2, made without adult]"}] * 2)
    ['universal on adult: universal-fold-2, made without adult.']
    """
    stand_ins = {(row["method"], row["data"]): held for row in rows if (held := split_note(row["note"])[0])}
    return [f"{method} on {data}: {held}." for (method, data), held in stand_ins.items()]


def read(path: Path) -> list[Row]:
    """Rows of a results.csv.

    Raises:
      InputError: l2p did not write the file.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [typed(row) for row in csv.DictReader(file, strict=True)]
    except (OSError, ValueError, TypeError, csv.Error):
        raise InputError(
            f"{path} is not a comparison's results, so it cannot be resumed or shown; choose another folder."
        ) from None


def typed(row: Mapping[str, Any]) -> Row:
    """A row from texts, or from the values of a cell's file; `ValueError` if it has other columns."""
    full = dict.fromkeys(LATER, "") | dict(row)
    if set(full) != set(COLUMNS):
        raise ValueError("other columns")
    kinds = dict.fromkeys(_INTEGERS, int) | dict.fromkeys(_NUMBERS, float)
    if not all(isinstance(full[column], str) for column in COLUMNS if column not in kinds):
        raise ValueError("a line was cut short")
    for column, kind in kinds.items():
        full[column] = None if full[column] in ("", None) else kind(full[column])
    return {column: full[column] for column in COLUMNS}


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write results.csv, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(path)
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)


def part_of(path: Path) -> Path:
    """A temporary path for writing `path`, beside it, under a name that no other process uses."""
    return path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its standard error, NaN for a single seed.

    >>> print(Estimate.of([0.5, 0.7]))
    0.6000 ± 0.1000
    """

    mean: float
    error: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Estimate":
        """The estimate from one value per seed."""
        sample = np.array(list(values), np.float64)
        error = sample.std(ddof=1) / math.sqrt(len(sample)) if len(sample) > 1 else math.nan
        return cls(float(sample.mean()), float(error))

    def __str__(self) -> str:
        return f"{self.mean:.4f}" + ("" if math.isnan(self.error) else f" ± {self.error:.4f}")


def by_seed(rows: Iterable[Row], metric: str) -> BySeed:
    """A metric by method, epsilon and seed; an empty cell has an entry without seeds."""
    values: BySeed = {}
    for row in rows:
        by_number = values.setdefault(row["method"], {}).setdefault(row["epsilon"], {})
        if row[metric] is not None:
            by_number[row["seed"]] = row[metric]
    return values


def by_method(rows: Iterable[Row], metric: str) -> dict[str, dict[float, Estimate | None]]:
    """Mean of a metric over seeds, by method and epsilon; None for an empty cell."""
    return _estimates(by_seed(rows, metric))


def against_first(rows: list[Row], metric: str) -> dict[str, dict[float, Estimate | None]]:
    """Mean over seeds of each method's metric minus the first method's at the same seed, by method and epsilon."""
    values = by_seed(rows, metric)
    first, *rest = values
    return _estimates({method: _minus(values[method], values[first]) for method in rest})


def _minus(cells: dict[float, dict[int, float]], first: dict[float, dict[int, float]]) -> dict:
    return {epsilon: difference(seeds, first.get(epsilon, {})) for epsilon, seeds in cells.items()}


def difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> dict[int, float]:
    """One method's values minus another's, at the seeds that both have; 0 where they differ only by rounding.

    >>> difference({0: 0.967, 1: 0.75}, {0: 0.96700006, 1: 0.5, 2: 0.7})
    {0: 0.0, 1: 0.25}
    """
    both = {seed: (value, baseline[seed]) for seed, value in values.items() if seed in baseline}
    return {seed: 0.0 if abs(a - b) <= ROUNDING * abs(a) else a - b for seed, (a, b) in both.items()}


def _estimates(values: BySeed) -> dict[str, dict[float, Estimate | None]]:
    return {
        method: {epsilon: Estimate.of(seeds.values()) if seeds else None for epsilon, seeds in cells.items()}
        for method, cells in values.items()
    }
