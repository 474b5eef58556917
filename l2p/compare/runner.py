"""Methods x budgets x seeds on one data set, scored outside any guarantee: what `l2p compare` runs."""

import contextlib
import dataclasses
import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p import data
from l2p.checkpoints.method_name import PRETRAINED, PROJECTED, MethodName
from l2p.checkpoints.overlaps import overlaps
from l2p.compare import cells, private_choice, results
from l2p.compare.auxiliary import Auxiliary, public_geometry, public_solution
from l2p.compare.config import CompareConfig
from l2p.compare.methods import ComparedMethod, PreparedMethod, find_method, reads_public
from l2p.compare.public_part import Division, PublicPart
from l2p.compare.scores import area_under_curve
from l2p.data.own import source_of_file
from l2p.data.public_data import checked, refuse_same
from l2p.data.reading import open_table
from l2p.errors import InputError, withheld
from l2p.models import Model, find_model, plain_name
from l2p.privacy.accountants import run_names
from l2p.privacy.budget import Budget
from l2p.privacy.card import versions
from l2p.privacy.events import Adjacency
from l2p.simulate import Outcome, mean_loss, score, simulate, split, splits_digest, train_size
from l2p.task import Rows


def main(config: CompareConfig, shard: tuple[int, int] | None = None, folders: Sequence[Path] | None = None) -> None:
    """Compare, then print tables and write results.csv, summary.md and figure.png into `config.out`.

    Args:
      config: what to compare.
      shard: (i, n) to run only the i-th of n shares of the cells, and write nothing else.
      folders: if given, nothing is run, and the cells of these folders and of `config.out` are merged.
    """
    from l2p.compare.summary import report

    # The rows of a file may be private.
    with withheld("comparing methods on a file") if _is_file(config) else contextlib.nullcontext():
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

    Cells that `config.out` already holds are kept, except empty ones. `seconds` is a method's time, compilation
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
    _check(config)
    rows = load_rows(config)
    methods = resolve_methods(config, rows)
    facts = _facts(config, rows)
    found = _resume(config, facts, methods)
    mine = cells.share(config, shard)
    for method in methods:
        asked = [(name, epsilon, seed) for name, epsilon in mine for seed in range(config.seeds) if name == method.name]
        missing = [cell for cell in asked if cell not in found or not results.is_scored(found[cell].row)]
        if missing:
            budgets = [budget for budget in method.protectors if any(budget.epsilon == cell[1] for cell in missing)]
            seeds = sorted({seed for *_, seed in missing})
            fresh = {results.cell(row): row for row in _run(method, budgets, seeds, rows, config)}
            # Every budget was run at every seed; cells found before are kept unchanged.
            for cell in missing:
                found[cell] = cells.Kept(fresh[cell], facts, method.sha256)
                cells.write(config.out, found[cell])
    if shard is None:
        return cells.finish(config, cells.read(config.out))
    pairs = set(mine)
    return [found[cell].row for cell in cells.wanted(config) if cell[:2] in pairs]


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
    found = cells.merge(folders, config.out)
    facts = next(iter(found.values())).facts
    for name, value in _asked(config).items():
        if facts.get(name) != value:
            raise InputError(
                f"these cells are of a comparison with {name} {facts.get(name)!r}, not {value!r}; ask for theirs, or "
                "name other folders."
            )
    return cells.finish(config, found)


def _resume(
    config: CompareConfig, facts: results.Row, methods: Sequence[ComparedMethod]
) -> dict[results.Cell, cells.Kept]:
    """The cells in the folder, checked to be of this comparison and these methods."""
    found = cells.read(config.out)
    cells.claim(config.out, facts, versions())
    known = {method.name: method for method in methods}
    for cell, kept in found.items():
        if cell[0] in known and results.is_scored(kept.row):
            cells.check(config.out, kept, known[cell[0]].sha256, known[cell[0]].accountant)
        if not cells.path_of(config.out, cell).is_file():
            cells.write(config.out, kept)
    return found


def _asked(config: CompareConfig) -> results.Row:
    """The part of `cells.FACTS` and `cells.PUBLIC_FACTS` that the config states."""
    asked = {name: getattr(config, name) for name in ("data", "delta", "adjacency", "accountant", "aux")}
    part = _public_part(config)
    public = dict.fromkeys(cells.PUBLIC_FACTS[:-1]) if part is None else part.asked()
    return {"model": str(_model(config)), **asked, **public}


def _facts(config: CompareConfig, rows: Rows) -> results.Row:
    """`cells.FACTS`, and `cells.PUBLIC_FACTS` where rows are public: everything that determines a comparison's numbers,
    except the methods."""
    table = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in (rows.x, rows.y, rows.mask)))
    digests = {"table_sha256": table.hexdigest(), "splits_sha256": splits_digest(len(rows.y))}
    asked, part = _asked(config), _public_part(config)
    if part is None:
        return {name: asked[name] for name in asked if name in cells.FACTS} | digests | {"l2p": versions()["l2p"]}
    return {**asked, **part.facts(rows), **digests, "l2p": versions()["l2p"]}


def _check(config: CompareConfig) -> None:
    plain_name(config.model)
    if config.accountant is not None and config.accountant not in run_names():
        known = ", ".join(run_names())
        raise InputError(f"accountant {config.accountant!r} certifies none of these runs; choose one of {known}.")
    for name, values in {"methods": config.methods, "epsilon": config.epsilon}.items():
        twice = next((value for value in values if values.count(value) > 1), None)
        if not values or twice is not None:
            said = "names nothing" if twice is None else f"names {twice} twice"
            raise InputError(f"{name} {said}, but each has a row of its own; name at least one, and each once.")
    if config.seeds < 1:
        raise InputError(f"seeds is {config.seeds}, but without a run there is nothing to compare; choose 10, say.")


def load_rows(config: CompareConfig) -> Rows:
    """The whole table."""
    if _is_file(config):
        return _rows_of_file(config, [config.data])[0]
    dataset, kinds = data.load(config.data), _model(config).kinds
    if dataset.kind not in kinds:
        raise InputError(
            f"model {config.model!r} needs a {' or '.join(kinds)} target, but that of {config.data!r} is "
            f"{dataset.kind}; choose another model or data set."
        )
    return Rows(jnp.asarray(dataset.x), jnp.asarray(dataset.y), jnp.ones(len(dataset.y)))


def _rows_of_file(config: CompareConfig, files: Sequence[str | Path]) -> tuple[Rows, list[str]]:
    """The rows of a file, and its features."""
    if config.target is None or config.bounds is None:
        raise InputError(f"{files[0]} is a file, so its target column and the file of its bounds must be named.")
    bounds = data.read_bounds(config.bounds)
    kind = cast(data.Kind, _model(config).kind(config.classes))
    table = data.read_table(list(files), {config.target, *bounds})
    rows = data.prepare(table, config.target, bounds, config.classes, kind=kind)
    return rows, [column for column in table.columns if column != config.target]


def _public_file(config: CompareConfig) -> Rows | None:
    """The rows of the file that a comparison on a file names as public, its features in the order of the other's."""
    if not config.public:
        return None
    if not _is_file(config):
        raise InputError(
            f"--public names rows beside those of a file, but {config.data} is a public set, of which a part is drawn; "
            "choose its size by --public-share or --public-per-class."
        )
    refuse_same(config.data, list(config.public))
    rows, own = _rows_of_file(config, config.public)
    order = [own.index(name) for name in open_table(config.data).names if name != config.target and name in own]
    rows = dataclasses.replace(rows, x=rows.x[:, order])
    return checked(rows, len(order), None if _kind(config) == "regression" else _model(config).labels)


def _public_part(config: CompareConfig) -> PublicPart | None:
    """The public rows of a comparison in which a method needs some or an option asks for them; None in others."""
    model = _model(config)
    budget = Budget(config.epsilon[0], config.delta, cast(Adjacency, config.adjacency))
    needed = any(reads_public(MethodName.parse(name), budget, str(model)) for name in config.methods)
    if not (needed or config.asks_for_public):
        return None
    return PublicPart.of(config, model, _kind(config), _public_file(config))


def _is_file(config: CompareConfig) -> bool:
    return Path(config.data).suffix.lower() in (".csv", ".parquet")


def _identity(config: CompareConfig) -> str:
    """What is compared on, as the source that no protector may have been made from."""
    return source_of_file(config.data) if _is_file(config) else config.data


def _model(config: CompareConfig) -> Model:
    """The model with its number of classes, declared by the data set's documentation, or by `classes` for a file."""
    if not _is_file(config):
        # A regression has no classes; `load_rows` refuses a model that needs some.
        return find_model(config.model, data.num_classes(config.data) or 2)
    return find_model(config.model, len(config.classes) if config.classes else None)


def _kind(config: CompareConfig) -> str:
    """The kind of the target, which determines the metric."""
    if _is_file(config):
        return _model(config).kind(config.classes)
    return data.kind_of(config.data)


def resolve_methods(config: CompareConfig, rows: Rows) -> list[ComparedMethod]:
    """Every method at every budget; none may be made from the data that it will be scored on. Where the protector of a
    name is, one of its folds takes its place."""
    # Budget takes an adjacency's name, and refuses an unknown one with a sentence.
    adjacency = cast(Adjacency, config.adjacency)
    budgets = [Budget(epsilon, config.delta, adjacency) for epsilon in config.epsilon]
    budgets[0].check_rows(train_size(rows))
    names = [MethodName.parse(name) for name in config.methods]
    if any(name.private for name in names):
        private_choice.check_kind(_kind(config))
    model, part = str(_model(config)), _public_part(config)
    asked = {"accountant": config.accountant, "aux": config.aux, "avoid": (_identity(config),)}
    variants = frozenset().union(*(name.variants for name in names)) & {PRETRAINED, PROJECTED}
    auxiliary = _auxiliary(config, variants) if part is None else None
    methods = []
    for name in names:
        reads = part is not None and bool(name.given_public or reads_public(name, budgets[0], model))
        division = Division(part, reads)
        more = {"auxiliary": auxiliary, "division": division}
        methods.append(find_method(name, budgets, model, division.num_private(rows), **asked, **more))
    return methods


def _auxiliary(config: CompareConfig, variants: frozenset[str]) -> Auxiliary | None:
    """What these variants take from the auxiliary set; None without variants."""
    if not variants:
        return None
    if config.aux is None:
        raise InputError(
            f"METHOD{min(variants)} takes something from a public set, but no auxiliary set is named; name it in "
            "--aux, or have a part of the training rows public (--public-share)."
        )
    if overlaps(config.aux, (_identity(config),)):
        raise InputError(
            f"the auxiliary set {config.aux} shares rows with {config.data}, so what is taken from it would flatter "
            "every method; choose another set."
        )
    public = dataclasses.replace(config, data=config.aux)
    rows, model = load_rows(public), _model(public)
    start: np.ndarray | str | None = None
    if PRETRAINED in variants:
        start = public_solution(model, rows)
        if model != _model(config):
            start = (
                f"model {model} on {config.aux} gives no start for {_model(config)}; choose a set with as many classes."
            )
    return Auxiliary(start, public_geometry(rows) if PROJECTED in variants else None)


def curves(config: CompareConfig, epsilon: float) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Train loss after each step and share of the budget spent in it, f32[seeds, T] for each private method.

    Simulated again with the comparison's seeds; `figures.against_step` draws both. METHOD:private is left out, since it
    is several runs.
    """
    rows, model = load_rows(config), _model(config)
    losses, shares = {}, {}
    for method in resolve_methods(dataclasses.replace(config, epsilon=(epsilon,)), rows):
        if method.is_private and not method.by_choice:
            (budget,) = method.protectors
            prepared = method.prepare(budget, model, rows, _kind(config))
            start = method.starting_point(model, rows.x.shape[1])
            seeds = range(config.seeds)
            asked = {"observe": mean_loss, "start": start, "divide": method.division}
            outcome = simulate([prepared.protector], [prepared.setup], rows, seeds, **asked)
            losses[method.name] = outcome.seen[:, 0]
            shares[method.name] = outcome.cost_per_step()[:, 0] / float(prepared.setup.cap)
    return losses, shares


def _run(
    method: ComparedMethod, budgets: Sequence[Budget], seeds: Sequence[int], rows: Rows, config: CompareConfig
) -> list[results.Row]:
    """A row for every budget and seed; budgets that cannot be run or certified give empty cells."""
    model, kind = _model(config), _kind(config)
    begun, prepared, done = time.perf_counter(), {}, []
    for budget in budgets:
        try:
            prepared[budget] = method.prepare(budget, model, rows, kind)
        except InputError as error:
            done += [_row(config, method, budget, seed, {}, str(error)) for seed in seeds]
    for group in _alike(prepared):
        # Without privacy the budget makes no difference, so one run serves all.
        run = [prepared[budget] for budget in (group if method.is_private else group[:1])]
        start = method.starting_point(model, rows.x.shape[1])
        plans = [one.selection for one in run if one.selection is not None]
        try:
            method.check_public(run[0].protector, model, rows, kind, seeds)
            if plans:
                outcome = private_choice.choose(plans, rows, seeds, start, method.division)
            else:
                asked = {"start": start, "divide": method.division}
                outcome = simulate([one.protector for one in run], [one.setup for one in run], rows, seeds, **asked)
        except InputError as error:
            done += [_row(config, method, budget, seed, {}, str(error)) for budget in group for seed in seeds]
            continue
        seconds = {"seconds": round((time.perf_counter() - begun) / outcome.steps.size, 4)}
        for i, seed in enumerate(seeds):
            task = split(rows, seed)
            scores = _scores(outcome.params[i], model, task.private, task.test, kind)
            ranked = scores.pop("class_scores", None)
            areas: list[float | None] = [None] * len(group) if ranked is None else _areas(ranked, cast(Rows, task.test))
            for k, budget in enumerate(group):
                j = k if method.is_private else 0
                metrics = {name: float(values[j]) for name, values in scores.items()} | seconds
                metrics |= {"test_auc": areas[j]}
                done.append(_scored(config, method, budget, seed, metrics, prepared[budget], outcome, (i, j)))
        begun = time.perf_counter()
    return done


def _alike(prepared: Mapping[Budget, PreparedMethod]) -> list[list[Budget]]:
    """Groups of budgets whose runs have the same structure and compile once (a method may take more steps at a larger
    budget)."""
    groups: dict[Any, list[Budget]] = {}
    for budget, one in prepared.items():
        leaves, tree = jax.tree.flatten((one.protector, one.setup))
        groups.setdefault((tree, tuple(jnp.shape(leaf) for leaf in leaves)), []).append(budget)
    return list(groups.values())


def _scored(
    config: CompareConfig,
    method: ComparedMethod,
    budget: Budget,
    seed: int,
    metrics: results.Row,
    prepared: PreparedMethod,
    outcome: Outcome | private_choice.Chosen,
    place: tuple[int, int],
) -> results.Row:
    """The row of one run, at `place` in its outcome; without metrics if it cannot be certified."""
    try:
        certified = _certified(prepared, outcome, place)
    except RuntimeError as error:
        return _row(config, method, budget, seed, {}, str(error))
    # A search on the private rows themselves cannot be certified.
    facts = {"steps": int(outcome.steps[place]), "epsilon_certified": math.inf if method.in_hindsight else certified}
    return _row(config, method, budget, seed, metrics | facts, prepared.note)


def _row(
    config: CompareConfig, method: ComparedMethod, budget: Budget, seed: int, metrics: results.Row, note: str
) -> results.Row:
    facts = {"data": config.data, "model": str(_model(config)), "delta": config.delta, "epsilon": budget.epsilon}
    names = {"method": method.name, "adjacency": str(budget.adjacency), "accountant": method.accountant, "seed": seed}
    said = results.note(method.hold_out, note)
    return dict.fromkeys(results.COLUMNS) | facts | names | metrics | {"note": said}


def _certified(prepared: PreparedMethod, outcome: Outcome | private_choice.Chosen, place: tuple[int, int]) -> float:
    """Epsilon of a cell in float64, from its granted queries; infinite without a filter."""
    if isinstance(outcome, private_choice.Chosen):
        seed, budget = place
        return cast(private_choice.SelectionPlan, prepared.selection).certify(outcome.traces[seed][budget])
    if prepared.filter is None:
        return math.inf
    return prepared.filter.certify(outcome.answered(*place), prepared.protector.adaptive_noise)


def _areas(scores: jax.Array, test: Rows) -> list[float | None]:
    """The areas under the curve of class scores f32[k, n, K] of several runs; None where the test has one class."""
    counted = np.asarray(test.mask) > 0
    return [area_under_curve(one, np.asarray(test.y)[counted]) for one in np.asarray(scores)[:, counted]]


@partial(jax.jit, static_argnames=("model", "kind"))
def _scores(params: jax.Array, model: Model, train: Rows, test: Rows, kind: str) -> dict[str, jax.Array]:
    """Those of `results.METRICS` that a target of this kind has, each f32[k], of params f32[k, p]; for classes, their
    scores f32[k, n, K] on the test rows in place of `test_auc`."""

    def one(params: jax.Array) -> dict[str, jax.Array]:
        is_number = kind == "regression"
        found = {
            "test_mse" if is_number else "test_accuracy": score(params, model, test, kind),
            "train_loss": mean_loss(params, model, train),
            "test_loss": mean_loss(params, model, test),
        }
        return found if is_number else found | {"class_scores": model.class_scores(params, test.x)}

    return jax.vmap(one)(params)
