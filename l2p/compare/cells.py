"""A comparison's cells, one file each: OUT/cells/METHOD/epsilon-E/seed-S.json, from which results.csv is made.

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
#: The facts of those with public rows, which all others lack.
PUBLIC_FACTS = ("public_share", "public_per_class", "public_shift", "public_sha256")
#: Allowed difference between two runs of one cell: sums in single precision depend on what is computed in the same
#: batch.
TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class Kept:
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

    >>> config = CompareConfig("adult", Path("cmp"), methods=("agd", "census"), epsilon=(0.1, 0.2))
    >>> share(config, (2, 3)), share(config, (3, 3))
    ([('agd', 0.2)], [('census', 0.1), ('census', 0.2)])
    """
    every = [(method, epsilon) for method in config.methods for epsilon in config.epsilon]
    index, count = shard or (1, 1)
    return every[(index - 1) * len(every) // count : index * len(every) // count]


def path_of(folder: Path, cell: Cell) -> Path:
    """The file of a cell.

    >>> path_of(Path("cmp"), ("census", 0.1, 3)).as_posix()
    'cmp/cells/census/epsilon-0.1/seed-3.json'
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
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or not {*FACTS, "protectors", "versions"} <= found.keys():
        raise InputError(
            f"{path} does not say what the results beside it depend on, so they cannot be added to or shown; choose "
            "another folder."
        )
    return found


def _refuse_others(where: Path, facts: Row, found: Row) -> None:
    if changed := [name for name in (*FACTS, *PUBLIC_FACTS) if found.get(name) != facts.get(name)]:
        said = ", ".join(f"{name} ({found.get(name)!r}, not {facts.get(name)!r})" for name in changed)
        raise InputError(
            f"{where} holds a comparison that differs in {said}, and one table must not mix the two; choose another "
            "folder."
        )


def write(folder: Path, kept: Kept) -> None:
    """Write a cell's file, completely or not at all."""
    path = path_of(folder, results.cell(kept.row))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = results.part_of(path)
    # JSON has neither infinity nor NaN.
    row = {name: str(x) if isinstance(x, float) and not math.isfinite(x) else x for name, x in kept.row.items()}
    part.write_text(_json({"row": row, "facts": kept.facts, "protector_sha256": kept.protector}), encoding="utf-8")
    part.replace(path)


def read(folder: Path) -> dict[Cell, Kept]:
    """Every cell of a folder, or the rows of results.csv if only that and inputs.json are left.

    Raises:
      InputError: a file was not written by l2p, or the folder mixes comparisons or protectors.
    """
    table = folder / "results.csv"
    if (folder / "cells").is_dir():
        found = [_read(path) for path in sorted((folder / "cells").glob("*/*/seed-*.json"))]
    elif table.is_file():
        rows, inputs = results.read(table), read_inputs(folder)
        facts = {name: inputs[name] for name in (*FACTS, *PUBLIC_FACTS) if name in inputs}
        found = [Kept(row, facts, inputs["protectors"].get(row["method"])) for row in rows]
    else:
        found = []
    if found:
        inputs = read_inputs(folder)
        for kept in found:
            _refuse_others(folder, kept.facts, inputs)
    _refuse_two_of_one_name(folder, found)
    return {results.cell(kept.row): kept for kept in found}


def _read(path: Path) -> Kept:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        kept = Kept(results.typed(found["row"]), found["facts"], found["protector_sha256"])
        fits = set(kept.facts) in (set(FACTS), {*FACTS, *PUBLIC_FACTS})
        if path_of(path.parents[3], results.cell(kept.row)) != path or not fits:
            raise ValueError("another cell's place")
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise InputError(
            f"{path} is not the cell that its place says, so its numbers cannot be used; delete it, and run it again."
        ) from None
    return kept


def _refuse_two_of_one_name(where: object, found: Iterable[Kept]) -> None:
    """A method has one protector, and one accountant, in all its runs."""
    known: dict[str, Kept] = {}
    for kept in found:
        first = known.setdefault(kept.row["method"], kept) if results.is_scored(kept.row) else kept
        check(where, kept, first.protector, first.row["accountant"])


def check(where: object, kept: Kept, protector: str | None, accountant: str) -> None:
    """Refuse a cell of a method by another checkpoint or accountant."""
    method = kept.row["method"]
    for name, found, wanted in (
        ("checkpoint", kept.protector, protector),
        ("accountant", kept.row["accountant"], accountant),
    ):
        if found != wanted:
            raise InputError(
                f"{where} holds a comparison in which the {name} of {method} differed ({found}, not {wanted}), and one "
                "table must not mix the two; choose another folder."
            )


def merge(folders: Sequence[Path], out: Path) -> dict[Cell, Kept]:
    """Merges the cells of several folders, and of `out` itself, into `out`.

    Raises:
      InputError: a folder has no cells, is for another comparison, or has different numbers in a cell that another
        folder has, too.
    """
    sources = list(dict.fromkeys([*folders, out]))
    found: dict[Cell, Kept] = {}
    origin: dict[Cell, Path] = {}
    for folder in sources:
        cells = read(folder)
        if not cells and (folder in folders or len(sources) == 1):
            raise InputError(f"{folder} holds no cells, so there is nothing to merge; name folders of `l2p compare`.")
        for cell, kept in cells.items():
            _refuse_others(folder, next(iter(found.values()), kept).facts, kept.facts)
            if cell in found and _scored_both(found[cell], kept):
                _refuse_difference(origin[cell], folder, found[cell].row, kept.row)
            if cell not in found or not results.is_scored(found[cell].row):
                found[cell], origin[cell] = kept, folder
    _refuse_two_of_one_name(" and ".join(map(str, sources)), found.values())
    some = next(iter(found.values()))
    claim(out, some.facts, read_inputs(origin[next(iter(found))])["versions"])
    for cell, folder in origin.items():
        if folder != out or not path_of(out, cell).is_file():
            write(out, found[cell])
    return found


def _scored_both(one: Kept, other: Kept) -> bool:
    return results.is_scored(one.row) and results.is_scored(other.row)


def _refuse_difference(here: Path, there: Path, one: Row, other: Row) -> None:
    for column in set(results.COLUMNS) - {"seconds", "note"}:
        unknown = column in results.LATER and None in (one[column], other[column])
        if not unknown and not _same(one[column], other[column]):
            method, epsilon, seed = results.cell(one)
            raise InputError(
                f"{here} and {there} differ in {column} of {method} at epsilon {epsilon:g}, seed {seed} "
                f"({one[column]} and {other[column]}), so one of them is not what its facts say; leave one out."
            )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        both = math.isnan(one) and math.isnan(other)
        return both or math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return one == other


def finish(config: CompareConfig, found: Mapping[Cell, Kept]) -> list[Row]:
    """Write results.csv and inputs.json from the folder's cells; returns the rows that `config` asks for, in its
    order."""
    known = list(dict.fromkeys([*config.methods, *sorted({method for method, *_ in found})]))
    order = sorted(found, key=lambda cell: (known.index(cell[0]), *cell[1:]))
    results.write(config.out / "results.csv", [found[cell].row for cell in order])
    if found:
        protectors = {found[cell].row["method"]: found[cell].protector for cell in order}
        path = config.out / "inputs.json"
        part = results.part_of(path)
        part.write_text(_json(read_inputs(config.out) | {"protectors": protectors}), encoding="utf-8")
        part.replace(path)
    return [found[cell].row for cell in wanted(config) if cell in found]


def wanted(config: CompareConfig) -> list[Cell]:
    """Every requested cell."""
    return [(m, epsilon, seed) for m in config.methods for epsilon in config.epsilon for seed in range(config.seeds)]


def missing_sentence(config: CompareConfig, found: Iterable[Cell]) -> str:
    """The requested cells that are missing, in one sentence; empty if none are.

    >>> config = CompareConfig("adult", Path("cmp"), methods=("agd",), epsilon=(0.1, 0.2), seeds=3)
    >>> missing_sentence(config, [("agd", 0.1, 0), ("agd", 0.1, 1), ("agd", 0.1, 2), ("agd", 0.2, 1)])
    'Missing are 2 of 6 cells: agd at epsilon 0.2 (seeds 0, 2).'
    """
    there, seeds = set(found), {}
    for method, epsilon, seed in wanted(config):
        if (method, epsilon, seed) not in there:
            seeds.setdefault((method, epsilon), []).append(seed)
    if not seeds:
        return ""
    said = [
        f"{method} at epsilon {epsilon:g}"
        + (f" (seeds {', '.join(map(str, some))})" if len(some) < config.seeds else "")
        for (method, epsilon), some in seeds.items()
    ]
    count = sum(map(len, seeds.values()))
    return f"Missing are {count} of {len(wanted(config))} cells: {'; '.join(said)}."


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
