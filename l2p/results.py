"""results.csv: one row per method, budget and seed, and what they come to."""

import csv
import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from l2p.errors import InputError

COLUMNS = (
    *("data", "model", "method", "epsilon", "delta", "adjacency", "accountant", "seed"),
    *("test_accuracy", "test_mse", "train_loss", "test_loss", "steps", "epsilon_certified", "seconds", "note"),
)
#: `test_accuracy` is empty for a regression, `test_mse` for anything else.
METRICS = ("test_accuracy", "test_mse", "train_loss", "test_loss")
_INTEGERS = ("seed", "steps")
_NUMBERS = ("epsilon", "delta", *METRICS, "epsilon_certified", "seconds")

Row = dict[str, Any]
Cell = tuple[str, float, int]  # method, epsilon, seed


def cell(row: Row) -> Cell:
    """Where a row belongs."""
    return row["method"], row["epsilon"], row["seed"]


def is_scored(row: Row) -> bool:
    """Whether a run stands behind the row; otherwise its note says why not."""
    return row["test_loss"] is not None


def read(path: Path, common: Row, accountants: Mapping[str, str]) -> dict[Cell, Row]:
    """Scored rows of an earlier comparison; none if there is no such file.

    Args:
      path: of results.csv.
      common: columns and values that every row must share, such as {"data": "adult"}.
      accountants: of each method now compared.

    Raises:
      InputError: the file is not ours, or holds another comparison.
    """
    if not path.is_file():
        return {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [_typed(row) for row in csv.DictReader(file, strict=True)]
    except (OSError, ValueError, csv.Error):
        raise InputError(
            f"{path} is not a comparison's results, so it cannot be resumed; choose another folder."
        ) from None
    for row in rows:
        expected = common | {"accountant": accountants.get(row["method"], row["accountant"])}
        for column, value in expected.items():
            if row[column] != value:
                raise InputError(
                    f"{path} holds a comparison with {column} {row[column]!r}, not {value!r}, and one table must not "
                    "mix the two; choose another folder."
                )
    return {cell(row): row for row in rows if is_scored(row)}


def claim(path: Path, inputs: Row, protectors: Mapping[str, str | None]) -> None:
    """Write down what a comparison's numbers depend on, or check that it is what they depended on before.

    Args:
      path: of inputs.json, beside results.csv.
      inputs: facts that must not change between two calls.
      protectors: SHA-256 of each method's checkpoint, None without one; methods may be added, not changed.

    Raises:
      InputError: the folder holds numbers from other inputs.
    """
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"protectors": {}} | inputs
    known = found["protectors"]
    changed = [name for name, value in inputs.items() if found.get(name) != value]
    changed += [name for name, sha256 in protectors.items() if known.get(name, sha256) != sha256]
    if changed:
        raise InputError(
            f"{path.parent} holds a comparison in which {', '.join(changed)} differed, and one table must not mix the "
            "two; choose another folder."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(inputs | {"protectors": known | dict(protectors)}, indent=1) + "\n", encoding="utf-8")


def _typed(row: Row) -> Row:
    row = {"test_mse": ""} | row  # comparisons made before there were regressions lack the column
    if set(row) != set(COLUMNS):
        raise ValueError("other columns")
    kinds = dict.fromkeys(_INTEGERS, int) | dict.fromkeys(_NUMBERS, float)
    typed = {
        column: (kinds[column](text) if text else None) if column in kinds else text for column, text in row.items()
    }
    return {column: typed[column] for column in COLUMNS}


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write results.csv, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)


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


def by_method(rows: Iterable[Row], metric: str) -> dict[str, dict[float, Estimate | None]]:
    """Mean of a metric over seeds, by method and epsilon; None for an empty cell."""
    values: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        found = values.setdefault(row["method"], {}).setdefault(row["epsilon"], [])
        if row[metric] is not None:
            found.append(row[metric])
    return {
        method: {epsilon: Estimate.of(sample) if sample else None for epsilon, sample in cells.items()}
        for method, cells in values.items()
    }


def against_first(rows: list[Row], metric: str) -> dict[str, dict[float, Estimate | None]]:
    """Mean over seeds of each method's metric minus the first method's at the same seed, by method and epsilon."""
    first = {(row["epsilon"], row["seed"]): row[metric] for row in rows if row["method"] == rows[0]["method"]}
    differences = []
    for row in rows:
        base = first.get((row["epsilon"], row["seed"]))
        if row["method"] != rows[0]["method"]:
            known = row[metric] is not None and base is not None
            differences.append(row | {metric: row[metric] - base if known else None})
    return by_method(differences, metric)
