"""Learned constants on wide tables, with a private eigenbasis and without one.

    L2P_TABLES=FOLDER python -m benchmarks.wide_tables

Tables of 512 to 1,000 columns are rare among public ones, so these are made: a table's columns and the products
of two of them, 1,000 at most, and scikit-learn's digits enlarged to 28 x 28 pixels. The fold of `control-universal`
runs that never saw the table: it buys a basis from mu N = d on; *with* always buys one, *without* never does. A third
of at most 3,600 rows tests. Prints mean test losses of six runs, differences to *without*, and their standard errors.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
import tyro

from benchmarks.paired_ends import compared, ends
from benchmarks.run_ends import model_for
from l2p.checkpoints.lookup import look_up
from l2p.privacy.budget import Budget
from l2p.protectors import Stepwise
from l2p.protectors.stepwise.eigenbasis import Eigenbasis
from l2p.tables.public import catalog
from l2p.task.checks import check_scaled
from l2p.task.rows import Rows
from meta_train.evaluation.marks import first_loss

MOST_ROWS, MOST_FEATURES, RUNS = 3600, 1000, 6
TABLES = ("digits", "openml:waveform5000", "openml:kr.vs.kp", "openml:ailerons", "openml:tic-tac-toe")
LOG_SIGNALS = (4.2, 5.6, 6.3, 7.0, 7.7, 8.4)


def widened(x: np.ndarray) -> np.ndarray:
    """Columns f[n, d] and the products of all pairs of them around their middles, in [0, 1] as features of every table
    are, without those that hardly vary."""
    centred = 2.0 * _scaled(x) - 1.0
    first, second = np.triu_indices(x.shape[1])
    columns = np.concatenate([centred, centred[:, first] * centred[:, second]], 1)
    columns = columns[:, columns.std(0) > 1e-3]
    return _scaled(columns[:, np.random.default_rng(1).permutation(columns.shape[1])[:MOST_FEATURES]])


def _scaled(x: np.ndarray) -> np.ndarray:
    low, high = x.min(0), x.max(0)
    return (x - low) / np.maximum(high - low, 1e-9)


def enlarged(pixels: np.ndarray) -> np.ndarray:
    """Images f[n, 64] of 8 x 8 pixels as f[n, 784], by linear interpolation."""
    places = np.linspace(0.0, 7.0, 28)
    below = np.minimum(places.astype(int), 6)
    share = places - below
    weights = np.zeros((28, 8))
    weights[np.arange(28), below], weights[np.arange(28), below + 1] = 1.0 - share, share
    images = np.einsum("ai,nij,bj->nab", weights, pixels.reshape(-1, 8, 8), weights)
    return images.reshape(len(pixels), -1)


def parts(name: str) -> tuple[Rows, Rows]:
    """Private and test rows of a table that was made wide."""
    table = catalog.load(name)
    order = np.random.default_rng(0).permutation(len(table.y))[:MOST_ROWS]
    x, y = np.asarray(table.x, np.float64)[order], np.asarray(table.y)[order]
    x = enlarged(x) if name == "digits" else widened(x)
    places = np.split(np.arange(len(y)), [len(y) * 2 // 3])
    private, test = (Rows(jnp.asarray(x[at], jnp.float32), jnp.asarray(y[at]), jnp.ones(len(at))) for at in places)
    return private, test


def variants(protector: Stepwise) -> dict[str, Stepwise]:
    """The protector without its basis, with one at all budgets, and as it is."""
    basis = protector.purchase(Eigenbasis)
    assert basis is not None
    always = protector.with_purchases(dataclasses.replace(basis, log_least_ratio=None))
    return {"without": protector.without(Eigenbasis), "with": always, "as it is": protector}


def main(tables: tuple[str, ...] = TABLES, log_signals: tuple[float, ...] = LOG_SIGNALS) -> None:
    """Measure and print.

    Args:
      tables: public sets; digits, or tables of OpenML's.
      log_signals: budgets, as log(mu N).
    """
    for name in tables:
        (private, test), kind, model = parts(name), catalog.kind_of(name), model_for(name)
        check_scaled(private, None if kind == "regression" else model.labels)  # simulations trust their rows
        protector = look_up("control-universal", model, avoid=(name,)).set_up(Budget(1.0, 1e-6)).protector
        (num_rows, num_features), methods = private.x.shape, variants(protector)
        print(f"\n{name}, {num_rows:,} rows of {num_features} features, {model}, from ", end="")
        print(f"{first_loss(model, test):.4f} at the start\n\n| log(mu N) | mu N / d | {' | '.join(methods)} |")
        print("|---" * (len(methods) + 2) + "|")
        at = {"log_signals": jnp.array(log_signals), "model": model, "kind": kind, "runs": RUNS}
        losses = [np.asarray(ends(method, private, test, **at)[0]) for method in methods.values()]
        for place, log_signal in enumerate(log_signals):
            first, *others = (ended[place] for ended in losses)
            cells = [f"{first.mean():.4f}", *(compared(first, other) for other in others)]
            print(f"| {log_signal:g} | {np.exp(log_signal) / num_features:.2g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
