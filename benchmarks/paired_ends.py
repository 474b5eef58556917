"""Protectors against a first one on tables that none of them saw, on the same rows and keys, at budgets log(mu N).

    L2P_TABLES=FOLDER python -m benchmarks.paired_ends --tables openml:nursery openml:pol \
        --methods control-universal runs/control-guarded-fold-3.safetensors

Of a shipped protector the fold runs that never saw the table; a checkpoint that did is refused. A third
of at most 2,400 rows tests, the others are private. Prints mean test losses of 24 runs: of the model's start, of a base
rate that the whole budget buys, of the first method, and of each other one with its difference to the first and the
standard error of that; a star where the difference is beyond two standard errors. At the end, by budget, in what share
of the cells with headroom each other method is lower and higher by more than two standard errors, and its mean gain in
shares of the gap between the start and a model without privacy. A cell has headroom if the first method ends at least
2 % of the gap above that model; tables where that model is no better than the start are left out.
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from benchmarks.run_ends import RUNS, TABLES, model_for, parts
from l2p.checkpoints.lookup import look_up
from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import price_list_for_mu
from l2p.privacy.events import Adjacency
from l2p.protectors import Stepwise
from l2p.run.run import Simulation, advance, start
from l2p.run.simulate import mean_loss
from l2p.tables.public import catalog
from l2p.task.rows import Rows
from meta_train.evaluation.marks import first_loss, loss_of_bought_rates
from meta_train.tasks.reference import best_losses

#: Share of the gap that a first method leaves at least where there is headroom.
HEADROOM = 0.02


class Cell(NamedTuple):
    """A table at a budget.

    Attributes:
      log_signal: log(mu N).
      gains: f[other methods, runs], by how much their losses are lower than those of the first, in shares of the gap.
      headroom: what the first leaves of the gap.
    """

    log_signal: float
    gains: np.ndarray
    headroom: float


@functools.partial(jax.jit, static_argnames=("model", "kind", "runs"))
def ends(
    protector: Stepwise, private: Rows, test: Rows, log_signals: jax.Array, model: Model, kind: str, runs: int = RUNS
) -> tuple[jax.Array, jax.Array]:
    """Test losses f32[B, runs] at the end, and of a base rate that the whole budget buys f32[B]."""
    num_rows, num_features = private.x.shape

    def run(log_signal: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        prices = price_list_for_mu("gdp", jnp.exp(log_signal) / num_rows)
        setup, noise = Setup.create(model, Adjacency.ZERO_OUT, prices, num_rows, kind), Simulation(key)
        begun, _ = start(protector, model.init(num_features), private, setup, noise)
        end, _, _ = advance(protector, begun, private, setup, noise, protector.num_steps)
        params = model.params_for_raw_rows(end.params, end.state.features)
        return mean_loss(params, model, test), loss_of_bought_rates(model, private, test, setup)

    keys = jax.random.split(jax.random.key(0), runs)
    losses, bought = jax.lax.map(lambda log_signal: jax.vmap(lambda key: run(log_signal, key))(keys), log_signals)
    return losses, bought.mean(1)


def compared(first: np.ndarray, other: np.ndarray) -> str:
    """Mean of losses f[RUNS], their mean difference to those of the first method and its standard error."""
    differences = other - first
    mean, error = differences.mean(), differences.std(ddof=1) / np.sqrt(len(differences))
    return f"{other.mean():.4f} ({mean:+.4f}, {error:.4f}){'*' if abs(mean) > 2.0 * error else ''}"


def compare(
    name: str,
    rows: tuple[Rows, Rows],
    methods: tuple[str, ...],
    model: Model,
    log_signals: tuple[float, ...],
    runs: int = RUNS,
) -> list[Cell]:
    """Run the methods on private and test rows of a public set, and print; the cells, where there is a gap."""
    (private, test), kind = rows, catalog.kind_of(name)
    print(f"\n{name}, {len(private.y):,} rows of {private.x.shape[1]} features, {model}, from ", end="")
    print(f"{first_loss(model, test):.4f} at the start\n\n| log(mu N) | bought | {' | '.join(methods)} |")
    print("|---" * (len(methods) + 2) + "|")
    losses = []
    for method in methods:
        protector = look_up(method, model, avoid=(name,)).set_up(Budget(1.0, 1e-6)).protector
        ended, bought = ends(protector, private, test, jnp.array(log_signals), model=model, kind=kind, runs=runs)
        losses.append(np.asarray(ended))
    best = float(best_losses(model, private, test)[1])
    gap = float(first_loss(model, test)) - best
    cells = []
    for place, log_signal in enumerate(log_signals):
        first, *others = (ended[place] for ended in losses)
        printed = [f"{first.mean():.4f}", *(compared(first, other) for other in others)]
        print(f"| {log_signal:g} | {bought[place]:.4f} | {' | '.join(printed)} |", flush=True)
        if gap > 0.0:
            gains = np.array([first - other for other in others]) / gap
            cells.append(Cell(log_signal, gains, (first.mean() - best) / gap))
    return cells


def summary(methods: tuple[str, ...], cells: list[Cell]) -> Iterator[str]:
    """Lines of a table: of the cells with headroom, by budget and in all, what each method but the first gains."""
    roomy = [cell for cell in cells if cell.headroom > HEADROOM]
    yield f"\n| log(mu N) | cells | {' | '.join(f'{method}: lower, higher, gain' for method in methods[1:])} |"
    yield "|---" * (len(methods) + 1) + "|"
    budgets = sorted({cell.log_signal for cell in roomy})
    for name, among in [(f"{budget:g}", [budget]) for budget in budgets] + [("all", budgets)]:
        of_budget = [cell for cell in roomy if cell.log_signal in among]
        columns = [_of_method([cell.gains[place] for cell in of_budget]) for place in range(len(methods) - 1)]
        yield f"| {name} | {len(of_budget)} | {' | '.join(columns)} |"


def _of_method(gains: list[np.ndarray]) -> str:
    """The shares of cells with gains f[runs] in which a method is lower and higher, and its mean gain."""
    in_errors = np.array([gain.mean() / max(gain.std(ddof=1) / np.sqrt(len(gain)), 1e-12) for gain in gains])
    mean = np.mean([gain.mean() for gain in gains])
    return f"{np.mean(in_errors > 2.0):.0%}, {np.mean(in_errors < -2.0):.0%}, {mean:+.1%}"


def main(
    methods: tuple[str, ...],
    tables: tuple[str, ...] = TABLES,
    model: str | None = None,
    log_signals: tuple[float, ...] = (0.7, 1.4, 2.1, 2.8, 3.5, 4.2, 4.9, 5.6, 6.3),
) -> None:
    """Measure and print.

    Args:
      methods: names or files of protectors; the first is what the others are compared with.
      tables: public sets.
      model: what they train; by default the linear model for the target's kind.
      log_signals: budgets.
    """
    cells: list[Cell] = []
    for name in tables:
        cells += compare(name, parts(name), methods, model_for(name, model), log_signals)
    if len(methods) > 1 and any(cell.headroom > HEADROOM for cell in cells):
        print("\n".join(summary(methods, cells)))


if __name__ == "__main__":
    tyro.cli(main)
