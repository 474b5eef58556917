"""Methods x budgets x seeds on one data set, scored outside any guarantee: what `l2p compare` runs."""

import dataclasses
import hashlib
import math
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p import data, results
from l2p.checkpoint import Resolved, range_warnings, resolve
from l2p.compare_config import CompareConfig
from l2p.errors import InputError
from l2p.models import Model, find_model, plain_name
from l2p.oracle import Setup
from l2p.privacy.accountants import NAMES, Filter, default_accountant
from l2p.privacy.budget import Budget
from l2p.privacy.events import Adjacency, Answered
from l2p.protector import Protector
from l2p.protectors import HAND_DESIGNED
from l2p.rehearsal import filter_for
from l2p.simulate import mean_loss, score, simulate, split, train_size
from l2p.task import Rows


@dataclasses.dataclass(frozen=True)
class Method:
    """A method, with its protector for each budget of a comparison; `accountant` is "none" for no privacy at all.

    `range` is what a checkpoint was made for, if it says; `sha256` that of its file.
    """

    name: str
    accountant: str
    protectors: dict[Budget, Protector]
    range: dict[str, list[float]] | None = None
    sha256: str | None = None

    @property
    def is_private(self) -> bool:
        """False for one that asks for answers without noise, which only an unlimited ledger grants."""
        return self.accountant != "none"

    def setup(self, budget: Budget, model: Model, num_rows: int, num_features: int) -> tuple[Setup, Filter | None]:
        """The public facts of a run and what stops it; `InputError` if no theorem covers it at this budget."""
        if not self.is_private:
            priced = Filter(default_accountant(("none",)), budget).accountant()
            setup = Setup.create(model, budget.adjacency, priced, num_rows)
            return dataclasses.replace(setup, cap=jnp.array(jnp.inf)), None
        resolved = Resolved(self.name, self.protectors[budget], self.accountant)
        filter = filter_for(resolved, budget, model, num_features, num_rows)
        filter.sampler.check(budget.adjacency, num_rows)
        return Setup.create(model, budget.adjacency, filter.accountant(), num_rows), filter


def main(config: CompareConfig) -> None:
    """Compare, then print tables and write results.csv, summary.md and figure.png into `config.out`."""
    from l2p.summary import report

    report(compare(config), config)


def compare(config: CompareConfig) -> list[results.Row]:
    """Rows of results.csv, one per method, budget and seed; in an empty cell metrics are None and the note says why.

    Scored rows that `config.out` already holds are kept, not run again. `seconds` is a method's time, compilation
    included, over its runs.

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
    path = config.out / "results.csv"
    results.claim(config.out / "inputs.json", _inputs(config, rows), {m.name: m.sha256 for m in methods})
    common = {"data": config.data, "model": config.model, "delta": config.delta, "adjacency": config.adjacency}
    found = results.read(path, common, {method.name: method.accountant for method in methods})
    wanted = []
    for method in methods:
        cells = [(method.name, epsilon, seed) for epsilon in config.epsilon for seed in range(config.seeds)]
        missing = [cell for cell in cells if cell not in found]
        if missing:
            budgets = [budget for budget in method.protectors if any(budget.epsilon == cell[1] for cell in missing)]
            seeds = sorted({seed for *_, seed in missing})
            fresh = {results.cell(row): row for row in _run(method, budgets, seeds, rows, common, config)}
            # A whole rectangle was run; what had been found before stays as it was.
            found |= {cell: fresh[cell] for cell in missing}
            results.write(path, found.values())
        wanted += cells
    return [found[cell] for cell in wanted]


def _inputs(config: CompareConfig, rows: Rows) -> results.Row:
    """What decides a comparison's numbers beyond the columns of results.csv."""
    table = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in (rows.x, rows.y, rows.mask)))
    return {"table_sha256": table.hexdigest(), "aux": config.aux}


def _check(config: CompareConfig) -> None:
    plain_name(config.model)
    if config.accountant is not None and config.accountant not in NAMES:
        known = ", ".join(NAMES)
        raise InputError(f"accountant {config.accountant!r} certifies none of these runs; choose one of {known}.")
    for name, values in {"methods": config.methods, "epsilon": config.epsilon}.items():
        if not values or len(set(values)) < len(values):
            raise InputError(f"{name} is {values!r}, but each row needs its own; name at least one, and each once.")
    if config.seeds < 1:
        raise InputError(f"seeds is {config.seeds}, but without a run there is nothing to compare; choose 10, say.")


def load_rows(config: CompareConfig) -> Rows:
    """The whole table."""
    if _is_file(config):
        if config.target is None or config.bounds is None:
            raise InputError(f"{config.data} is a file, so its target column and the file of its bounds must be named.")
        bounds = data.read_bounds(config.bounds)
        kind = cast(data.Kind, _model(config).kind(config.classes))
        return data.prepare(data.read_table(config.data), config.target, bounds, config.classes, kind=kind)
    dataset, kinds = data.load(config.data), _model(config).kinds
    if dataset.kind not in kinds:
        raise InputError(
            f"model {config.model!r} needs a {' or '.join(kinds)} target, but that of {config.data!r} is "
            f"{dataset.kind}; choose another model or data set."
        )
    return Rows(jnp.asarray(dataset.x), jnp.asarray(dataset.y), jnp.ones(len(dataset.y)))


def _is_file(config: CompareConfig) -> bool:
    return Path(config.data).suffix.lower() in (".csv", ".parquet")


def _model(config: CompareConfig) -> Model:
    """The model, with as many classes as are declared: by the set's documentation, or for a file by `classes`."""
    if not _is_file(config):
        # A regression has no classes; `load_rows` refuses a model that needs some.
        return find_model(config.model, data.num_classes(config.data) or 2)
    return find_model(config.model, len(config.classes) if config.classes else None)


def _kind(config: CompareConfig) -> str:
    """What the target is: decides how a test scores."""
    if _is_file(config):
        return _model(config).kind(config.classes)
    return {None: "regression", 2: "binary"}.get(data.num_classes(config.data), "multiclass")


def resolve_methods(config: CompareConfig, rows: Rows) -> list[Method]:
    """Every method at every budget; none may be made from the data that it is to be scored on."""
    # Budget takes an adjacency's name, and refuses an unknown one with a sentence.
    adjacency = cast(Adjacency, config.adjacency)
    budgets = [Budget(epsilon, config.delta, adjacency) for epsilon in config.epsilon]
    budgets[0].check_rows(train_size(rows))
    asked = {
        "model": str(_model(config)),
        "accountant": config.accountant,
        "aux": config.aux,
        "num_rows": train_size(rows),
    }
    methods = []
    for name in config.methods:
        # A paper's own form keeps to the neighbours of its proof.
        mine = [HAND_DESIGNED[name].budget(budget) if name in HAND_DESIGNED else budget for budget in budgets]
        found = [resolve(name, budget, avoid=(config.data,), **asked) for budget in mine]
        protectors = {budget: one.protector for budget, one in zip(mine, found, strict=True)}
        is_private = "none" not in found[0].protector.mechanisms
        methods.append(
            Method(name, found[0].accountant if is_private else "none", protectors, found[0].range, found[0].sha256)
        )
    return methods


def curves(config: CompareConfig, epsilon: float) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Train loss after each step and share of the budget spent in it, f32[seeds, T] by private method.

    Simulated anew with the comparison's own seeds; `figures.against_step` draws both.
    """
    rows = load_rows(config)
    losses, shares = {}, {}
    for method in resolve_methods(dataclasses.replace(config, epsilon=(epsilon,)), rows):
        if method.is_private:
            ((budget, protector),) = method.protectors.items()
            setup, _ = method.setup(budget, _model(config), train_size(rows), rows.x.shape[1])
            outcome = simulate([protector], [setup], rows, range(config.seeds), observe=mean_loss)
            losses[method.name] = outcome.seen[:, 0]
            shares[method.name] = outcome.cost_per_step()[:, 0] / float(setup.cap)
    return losses, shares


def _run(
    method: Method,
    budgets: Sequence[Budget],
    seeds: Sequence[int],
    rows: Rows,
    common: results.Row,
    config: CompareConfig,
) -> list[results.Row]:
    """A row for every budget and seed; budgets that cannot be run or certified give empty cells."""
    model, num_rows = _model(config), train_size(rows)

    def row(budget: Budget, seed: int, metrics: results.Row, note: str = "") -> results.Row:
        names = {"method": method.name, "epsilon": budget.epsilon, "accountant": method.accountant, "seed": seed}
        names["adjacency"] = str(budget.adjacency)
        return dict.fromkeys(results.COLUMNS) | common | names | metrics | {"note": note}

    setups, filters, done = {}, {}, []
    for budget in budgets:
        try:
            setups[budget], filters[budget] = method.setup(budget, model, num_rows, rows.x.shape[1])
        except InputError as error:
            done += [row(budget, seed, {}, str(error)) for seed in seeds]
    if not setups:
        return done
    # Without privacy the budget makes no difference, so one run serves all.
    run = list(setups) if method.is_private else list(setups)[:1]
    begun = time.perf_counter()
    outcome = simulate([method.protectors[budget] for budget in run], [setups[budget] for budget in run], rows, seeds)
    seconds = (time.perf_counter() - begun) / outcome.steps.size
    for i, seed in enumerate(seeds):
        task = split(rows, seed)
        scores = _scores(outcome.params[i], model, task.private, task.test, _kind(config))
        for budget in setups:
            j = run.index(budget) if method.is_private else 0
            try:
                certified = _certified(filters[budget], outcome.answered(i, j), method.protectors[budget])
            except RuntimeError as error:
                done.append(row(budget, seed, {}, str(error)))
                continue
            facts = {"steps": int(outcome.steps[i, j]), "epsilon_certified": certified, "seconds": round(seconds, 4)}
            note = " ".join(range_warnings(method.range, setups[budget], rows.x.shape[1]))
            done.append(row(budget, seed, {name: float(values[j]) for name, values in scores.items()} | facts, note))
    return done


def _certified(filter: Filter | None, answered: Sequence[Answered], protector: Protector) -> float:
    """Epsilon of one run in float64, from the queries that it was granted; infinite without a filter."""
    return math.inf if filter is None else filter.certify(answered, protector.adaptive_noise)


@partial(jax.jit, static_argnames=("model", "kind"))
def _scores(params: jax.Array, model: Model, train: Rows, test: Rows, kind: str) -> dict[str, jax.Array]:
    """Those of `results.METRICS` that a target of this kind has, each f32[k], of params f32[k, p]."""

    def one(params: jax.Array) -> dict[str, jax.Array]:
        return {
            "test_mse" if kind == "regression" else "test_accuracy": score(params, model, test, kind),
            "train_loss": mean_loss(params, model, train),
            "test_loss": mean_loss(params, model, test),
        }

    return jax.vmap(one)(params)
