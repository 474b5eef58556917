"""Methods x budgets x seeds on one data set, scored outside any guarantee: the runs of `l2p compare`."""

import contextlib
import dataclasses
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from l2p.base.errors import InputError, withheld
from l2p.base.kept_programs import kept_programs
from l2p.base.versions import versions
from l2p.compare import cells, results
from l2p.compare.config import CompareConfig
from l2p.compare.default_methods import with_methods
from l2p.compare.inputs import is_file, kind_of, load_rows, model_of, public_part, resolve_methods
from l2p.compare.methods import ComparedMethod
from l2p.compare.public_part import PublicPart
from l2p.compare.runs import scored_runs
from l2p.models import plain_name
from l2p.privacy.accountants import run_names
from l2p.privacy.events import Adjacency
from l2p.run.simulate import mean_loss, simulate, splits_digest
from l2p.task.rows import Rows


def main(config: CompareConfig, shard: tuple[int, int] | None = None, folders: Sequence[Path] | None = None) -> None:
    """Compare, then print tables and write results.csv, summary.md and figure.svg into `config.out`.

    Args:
      config: what to compare.
      shard: (i, n) to run only the i-th of n shares of the cells, and write nothing else.
      folders: if given, nothing is run, and the cells of these folders and of `config.out` are merged.
    """
    from l2p.compare.summary import report

    # The rows of a file may be private.
    with withheld("comparing methods on a file") if is_file(config) else contextlib.nullcontext():
        config = _with_methods(config)
        if folders is not None:
            rows = gather(config, folders)
            report(rows, config, cells.missing_sentence(config, map(results.cell, rows)))
        elif shard is not None:
            rows = compare(config, shard)
            print(
                f"{len(rows)} of {len(cells.wanted(config))} cells are shard {shard[0]}/{shard[1]}, and lie in "
                f"{config.out}; once all shards have run, the same command with --merge makes tables of them."
            )
        else:
            report(compare(config), config)


def compare(config: CompareConfig, shard: tuple[int, int] | None = None) -> list[results.Row]:
    """Rows of results.csv, one per method, budget and seed; in an empty cell metrics are None and the note says why.

    Cells that `config.out` already holds stay, except empty ones. `seconds` is a method's time, compilation
    included, divided by its number of runs.

    Args:
      config: what to compare.
      shard: (i, n) for the i-th of n shares of the cells: only these are run and returned, and results.csv is left to
        `gather`.

    Raises:
      InputError: before anything runs, for input that cannot be compared or a folder with another comparison.

    >>> import tempfile
    >>> config = CompareConfig("breast_cancer", Path(tempfile.mkdtemp()), methods=("noisygd",), delta=1e-5, seeds=1)
    >>> rows = compare(config)
    >>> [(row["method"], row["epsilon"], row["accountant"], row["steps"]) for row in rows[:1]]
    [('noisygd', 0.05, 'gdp', 50)]
    """
    with kept_programs(config.adjacency != Adjacency.ADD_REMOVE):  # under which the number of rows is private
        return _compare(config, shard)


def _compare(config: CompareConfig, shard: tuple[int, int] | None) -> list[results.Row]:
    _check(config)
    config, rows = _with_methods(config), load_rows(config)
    methods = resolve_methods(config, rows)
    facts = _facts(config, rows, next((method.division.part for method in methods), None))
    stored = _resume(config, facts, methods)
    share = cells.share(config, shard)
    for method in methods:
        wanted = [
            (name, epsilon, seed) for name, epsilon in share for seed in range(config.seeds) if name == method.name
        ]
        missing = [cell for cell in wanted if cell not in stored or not results.is_scored(stored[cell].row)]
        if missing:
            budgets = [budget for budget in method.protectors if any(budget.epsilon == cell[1] for cell in missing)]
            seeds = sorted({seed for *_, seed in missing})
            fresh = {results.cell(row): row for row in scored_runs(method, budgets, seeds, rows, config)}
            # Every budget was run at every seed; cells from before stay unchanged.
            for cell in missing:
                stored[cell] = cells.StoredCell(fresh[cell], facts, method.sha256)
                cells.write(config.out, stored[cell])
    if shard is None:
        return cells.finish(config, cells.read(config.out))
    pairs = set(share)
    return [stored[cell].row for cell in cells.wanted(config) if cell[:2] in pairs]


def gather(config: CompareConfig, folders: Sequence[Path] = ()) -> list[results.Row]:
    """The rows that `config` asks for, as far as their cells were run before.

    Merges the cells in `config.out`, and writes results.csv there.

    Args:
      config: the comparison.
      folders: with cells; `config.out` is always included.

    Raises:
      InputError: a folder has no cells, is for another comparison, or has different numbers in a cell that another
        folder has, too.
    """
    _check(config)
    config = _with_methods(config)
    stored = cells.merge(folders, config.out)
    facts = next(iter(stored.values())).facts
    for name, value in _stated(config, public_part(config)).items():
        if facts.get(name) != value:
            raise InputError(
                f"these cells are of a comparison with {name} {facts.get(name)!r}, not {value!r}; ask for theirs, or "
                "name other folders."
            )
    return cells.finish(config, stored)


def _with_methods(config: CompareConfig) -> CompareConfig:
    """The comparison with its default methods if it names none; those left out, and why, go to standard error."""
    if config.methods:
        return config
    _check(config)
    config, left_out = with_methods(config, load_rows(config))
    print(*left_out, sep="\n", end="\n" if left_out else "", file=sys.stderr)
    return config


def _resume(
    config: CompareConfig, facts: results.Row, methods: Sequence[ComparedMethod]
) -> dict[results.Cell, cells.StoredCell]:
    """The cells in the folder, checked to be of this comparison and these methods."""
    stored = cells.read(config.out)
    cells.claim(config.out, facts, versions())
    by_name = {method.name: method for method in methods}
    for cell, stored_cell in stored.items():
        if cell[0] in by_name and results.is_scored(stored_cell.row):
            cells.check_method(config.out, stored_cell, by_name[cell[0]].sha256, by_name[cell[0]].accountant)
        if not cells.path_of(config.out, cell).is_file():
            cells.write(config.out, stored_cell)
    return stored


def _stated(config: CompareConfig, part: PublicPart | None) -> results.Row:
    """The part of `cells.FACTS` and `cells.PUBLIC_FACTS` that the config, with its public part, states."""
    stated = {name: getattr(config, name) for name in ("data", "delta", "adjacency", "accountant", "aux")}
    public = dict.fromkeys(cells.PUBLIC_FACTS[:-1]) if part is None else part.stated()
    return {"model": str(model_of(config)), **stated, **public}


def _facts(config: CompareConfig, rows: Rows, part: PublicPart | None) -> results.Row:
    """`cells.FACTS`, and `cells.PUBLIC_FACTS` where rows are public: everything that determines a comparison's numbers,
    except the methods."""
    table = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in (rows.x, rows.y, rows.mask)))
    digests = {"table_sha256": table.hexdigest(), "splits_sha256": splits_digest(len(rows.y))}
    digests["l2p"] = cells.SAME_NUMBERS_SINCE
    stated = _stated(config, part)
    if part is None:
        return {name: stated[name] for name in stated if name in cells.FACTS} | digests
    return {**stated, **part.facts(rows), **digests}


def _check(config: CompareConfig) -> None:
    plain_name(config.model)
    if config.accountant is not None and config.accountant not in run_names():
        options = ", ".join(run_names())
        raise InputError(f"accountant {config.accountant!r} certifies none of these runs; choose one of {options}.")
    for name, values in {"methods": config.methods, "epsilon": config.epsilon}.items():
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise InputError(f"{name} names {twice} twice, but each has a row of its own; name each once.")
    if not config.epsilon:
        raise InputError("epsilon names no budget, so nothing can run; name at least one, such as 1.")
    if config.seeds < 1:
        raise InputError(f"seeds is {config.seeds}, but without a run there is nothing to compare; choose 10, say.")


def curves(config: CompareConfig, epsilon: float) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Train loss after each step and share of the budget spent in it, f32[seeds, T] for each private method.

    Simulated again with the comparison's seeds; `figures.against_step` draws both. METHOD:private is left out, since it
    is several runs.
    """
    rows, model = load_rows(config), model_of(config)
    losses, shares = {}, {}
    for method in resolve_methods(dataclasses.replace(config, epsilon=(epsilon,)), rows):
        if method.is_private and not method.by_choice:
            (budget,) = method.protectors
            prepared = method.prepare(budget, model, rows, kind_of(config))
            start = method.starting_point(model, rows.x.shape[1])
            seeds = range(config.seeds)
            options = {"observe": mean_loss, "start": start, "divide": method.division}
            outcome = simulate([prepared.protector], [prepared.setup], rows, seeds, **options)
            losses[method.name] = outcome.observations[:, 0]
            shares[method.name] = outcome.cost_per_step()[:, 0] / float(prepared.setup.cap)
    return losses, shares
