"""Cells of a comparison, one file each: OUT/cells/METHOD/epsilon-E/seed-S.json, from which results.csv is made.

A file is written completely or not at all, and holds the facts that its numbers depend on, so that processes may share
a folder and folders may be merged without mixing two comparisons in one table.
"""

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError
from l2p.compare import results
from l2p.compare.config import CompareConfig
from l2p.compare.results import Cell, Row

#: The facts that all cells of a comparison share: its settings and its data.
FACTS = ("data", "model", "delta", "adjacency", "accountant", "aux", "table_sha256", "splits_sha256", "l2p")
#: The first version of l2p whose comparisons give the same numbers as this one, so that a folder may hold results of
#: both. It is raised with every change of what a seed computes.
SAME_NUMBERS_SINCE = "0.1.0"
#: The facts of those with public rows, which all others lack.
PUBLIC_FACTS = ("public_share", "public_per_class", "public_shift", "public_sha256")
#: Allowed difference between two runs of one cell: sums in single precision depend on the other runs of the batch.
TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class StoredCell:
    """A cell as its file holds it.

    Attributes:
      row: of results.csv.
      facts: by name, `FACTS`, and `PUBLIC_FACTS` where rows are public.
      protector: SHA-256 of the checkpoint's file; None without one.
    """

    row: Row
    facts: Row
    protector: str | None


def share(config: CompareConfig, shard: tuple[int, int] | None) -> list[tuple[str, float]]:
    """The methods and budgets of one of n shares, with all seeds; everything without a shard.

    Shares differ in size by at most one and are consecutive parts of one list, method by method, so that few methods
    are compiled twice.

    >>> config = CompareConfig("adult", Path("cmp"), methods=("agd", "universal"), epsilon=(0.1, 0.2))
    >>> share(config, (2, 3)), share(config, (3, 3))
    ([('agd', 0.2)], [('universal', 0.1), ('universal', 0.2)])
    """
    every = [(method, epsilon) for method in config.methods for epsilon in config.epsilon]
    index, count = shard or (1, 1)
    return every[(index - 1) * len(every) // count : index * len(every) // count]


def path_of(folder: Path, cell: Cell) -> Path:
    """The file of a cell.

    >>> path_of(Path("cmp"), ("universal", 0.1, 3)).as_posix()
    'cmp/cells/universal/epsilon-0.1/seed-3.json'
    """
    method, epsilon, seed = cell
    return folder / "cells" / _readable(method) / f"epsilon-{epsilon!r}" / f"seed-{seed}.json"


def _readable(method: str) -> str:
    """A folder name for a method: its name, or the end of it and a hash if it has unusual characters."""
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,60}", method):
        return method
    end = re.sub(r"[^A-Za-z0-9]+", "-", re.split(r"[/\\]", method)[-1])[-40:].strip("-")
    return f"{end}-{hashlib.sha256(method.encode()).hexdigest()[:8]}"


def claim(folder: Path, facts: Row, versions: Mapping[str, str]) -> None:
    """Write in inputs.json which comparison a folder is for, or check that it is for this one.

    Raises:
      InputError: it is for another comparison.
    """
    path = folder / "inputs.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        part = results.part_of(path)
        part.write_text(_json({**facts, "versions": dict(versions), "protectors": {}}), encoding="utf-8")
        try:
            # If two processes do this at once, the file system refuses one, which then reads what the other wrote.
            os.link(part, path)
        except FileExistsError:
            pass
        finally:
            part.unlink()
    _refuse_others(folder, facts, read_inputs(folder))


def read_inputs(folder: Path) -> Row:
    """The content of inputs.json."""
    path = folder / "inputs.json"
    try:
        inputs = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        inputs = None
    if not isinstance(inputs, dict) or not {*FACTS, "protectors", "versions"} <= inputs.keys():
        raise InputError(
            f"{path} does not say what the results beside it depend on, so they cannot be added to or shown; choose "
            "another folder."
        )
    return inputs


def _refuse_others(where: Path, facts: Row, stored: Row) -> None:
    if changed := [name for name in (*FACTS, *PUBLIC_FACTS) if stored.get(name) != facts.get(name)]:
        differences = ", ".join(f"{name} ({stored.get(name)!r}, not {facts.get(name)!r})" for name in changed)
        raise InputError(
            f"{where} holds a comparison that differs in {differences}, and one table must not mix the two; choose "
            "another folder."
        )


def write(folder: Path, stored: StoredCell) -> None:
    """Write a cell's file, completely or not at all."""
    path = path_of(folder, results.cell(stored.row))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = results.part_of(path)
    # JSON has neither infinity nor NaN.
    row = {name: str(x) if isinstance(x, float) and not math.isfinite(x) else x for name, x in stored.row.items()}
    part.write_text(_json({"row": row, "facts": stored.facts, "protector_sha256": stored.protector}), encoding="utf-8")
    part.replace(path)


def read(folder: Path) -> dict[Cell, StoredCell]:
    """Every cell of a folder, or the rows of results.csv if only that and inputs.json are left.

    Raises:
      InputError: a file was not written by l2p, or the folder mixes comparisons or protectors.
    """
    table = folder / "results.csv"
    if (folder / "cells").is_dir():
        cells = [_read(path) for path in sorted((folder / "cells").glob("*/*/seed-*.json"))]
    elif table.is_file():
        rows, inputs = results.read(table), read_inputs(folder)
        facts = {name: inputs[name] for name in (*FACTS, *PUBLIC_FACTS) if name in inputs}
        cells = [StoredCell(row, facts, inputs["protectors"].get(row["method"])) for row in rows]
    else:
        cells = []
    if cells:
        inputs = read_inputs(folder)
        for cell in cells:
            _refuse_others(folder, cell.facts, inputs)
    _refuse_two_of_one_name(folder, cells)
    return {results.cell(cell.row): cell for cell in cells}


def _read(path: Path) -> StoredCell:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        stored = StoredCell(results.typed(content["row"]), content["facts"], content["protector_sha256"])
        fits = set(stored.facts) in (set(FACTS), {*FACTS, *PUBLIC_FACTS})
        if path_of(path.parents[3], results.cell(stored.row)) != path or not fits:
            raise ValueError("another cell's place")
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise InputError(
            f"{path} is not the cell that its place says, so its numbers cannot be used; delete it, and run it again."
        ) from None
    return stored


def _refuse_two_of_one_name(where: object, cells: Iterable[StoredCell]) -> None:
    """A method has one protector, and one accountant, in all its runs."""
    scored: dict[str, StoredCell] = {}
    for cell in cells:
        first = scored.setdefault(cell.row["method"], cell) if results.is_scored(cell.row) else cell
        check_method(where, cell, first.protector, first.row["accountant"])


def check_method(where: object, cell: StoredCell, protector: str | None, accountant: str) -> None:
    """Refuse a cell of a method by another checkpoint or accountant; `InputError`."""
    method = cell.row["method"]
    for name, actual, wanted in (
        ("checkpoint", cell.protector, protector),
        ("accountant", cell.row["accountant"], accountant),
    ):
        if actual != wanted:
            raise InputError(
                f"{where} holds a comparison in which the {name} of {method} differed ({actual}, not {wanted}), and "
                "one table must not mix the two; choose another folder."
            )


def merge(folders: Sequence[Path], out: Path) -> dict[Cell, StoredCell]:
    """Merges the cells of several folders, and of `out` itself, into `out`.

    Raises:
      InputError: a folder has no cells, is for another comparison, or has different numbers in a cell that another
        folder has, too.
    """
    sources = list(dict.fromkeys([*folders, out]))
    merged: dict[Cell, StoredCell] = {}
    origin: dict[Cell, Path] = {}
    for folder in sources:
        cells = read(folder)
        if not cells and (folder in folders or len(sources) == 1):
            raise InputError(f"{folder} holds no cells, so there is nothing to merge; name folders of `l2p compare`.")
        for cell, stored in cells.items():
            _refuse_others(folder, next(iter(merged.values()), stored).facts, stored.facts)
            if cell in merged and _scored_both(merged[cell], stored):
                _refuse_difference(origin[cell], folder, merged[cell].row, stored.row)
            if cell not in merged or not results.is_scored(merged[cell].row):
                merged[cell], origin[cell] = stored, folder
    _refuse_two_of_one_name(" and ".join(map(str, sources)), merged.values())
    first = next(iter(merged.values()))
    claim(out, first.facts, read_inputs(origin[next(iter(merged))])["versions"])
    for cell, folder in origin.items():
        if folder != out or not path_of(out, cell).is_file():
            write(out, merged[cell])
    return merged


def _scored_both(first: StoredCell, second: StoredCell) -> bool:
    return results.is_scored(first.row) and results.is_scored(second.row)


def _refuse_difference(here: Path, there: Path, first: Row, second: Row) -> None:
    for column in set(results.COLUMNS) - {"seconds", "note"}:
        unknown = column in results.LATER and None in (first[column], second[column])
        if not unknown and not _same(first[column], second[column]):
            method, epsilon, seed = results.cell(first)
            raise InputError(
                f"{here} and {there} differ in {column} of {method} at epsilon {epsilon:g}, seed {seed} "
                f"({first[column]} and {second[column]}), so one of them is not what its facts say; leave one out."
            )


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        both = math.isnan(first) and math.isnan(second)
        return both or math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return first == second


def finish(config: CompareConfig, stored: Mapping[Cell, StoredCell]) -> list[Row]:
    """Write results.csv and inputs.json from the folder's cells; returns the rows that `config` asks for, in its
    order."""
    methods = list(dict.fromkeys([*config.methods, *sorted({method for method, *_ in stored})]))
    order = sorted(stored, key=lambda cell: (methods.index(cell[0]), *cell[1:]))
    results.write(config.out / "results.csv", [stored[cell].row for cell in order])
    if stored:
        protectors = {stored[cell].row["method"]: stored[cell].protector for cell in order}
        path = config.out / "inputs.json"
        part = results.part_of(path)
        part.write_text(_json(read_inputs(config.out) | {"protectors": protectors}), encoding="utf-8")
        part.replace(path)
    return [stored[cell].row for cell in wanted(config) if cell in stored]


def wanted(config: CompareConfig) -> list[Cell]:
    """Every requested cell."""
    return [(m, epsilon, seed) for m in config.methods for epsilon in config.epsilon for seed in range(config.seeds)]


def missing_sentence(config: CompareConfig, finished: Iterable[Cell]) -> str:
    """The requested cells that are missing, in one sentence; empty if none are.

    >>> config = CompareConfig("adult", Path("cmp"), methods=("agd",), epsilon=(0.1, 0.2), seeds=3)
    >>> missing_sentence(config, [("agd", 0.1, 0), ("agd", 0.1, 1), ("agd", 0.1, 2), ("agd", 0.2, 1)])
    'Missing are 2 of 6 cells: agd at epsilon 0.2 (seeds 0, 2).'
    """
    present, seeds = set(finished), {}
    for method, epsilon, seed in wanted(config):
        if (method, epsilon, seed) not in present:
            seeds.setdefault((method, epsilon), []).append(seed)
    if not seeds:
        return ""
    parts = [
        f"{method} at epsilon {epsilon:g}"
        + (f" (seeds {', '.join(map(str, numbers))})" if len(numbers) < config.seeds else "")
        for (method, epsilon), numbers in seeds.items()
    ]
    count = sum(map(len, seeds.values()))
    return f"Missing are {count} of {len(wanted(config))} cells: {'; '.join(parts)}."


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
