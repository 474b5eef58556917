"""Learned constants on tables of more than 512 columns, before their own numbers were learned and with them.

    L2P_TABLES=FOLDER python -m benchmarks.wide_tables > benchmarks/pages/wide_tables.md

A third of at most 3,600 rows tests. Prints what `INTRODUCTION` says, and `benchmarks.paired_ends` beside it.
"""

import jax.numpy as jnp
import numpy as np
import tyro

from benchmarks.paired_ends import compare
from benchmarks.run_ends import model_for
from l2p.tables.public import catalog
from l2p.task.checks import check_scaled
from l2p.task.rows import Rows

MOST_ROWS, MOST_FEATURES, RUNS = 3600, 1000, 6
TABLES = ("digits", "openml:waveform5000", "openml:kr.vs.kp", "openml:ailerons")
LOG_SIGNALS = (1.4, 2.1, 2.8, 3.5, 4.2, 4.9, 5.6, 6.3, 7.0, 7.7, 8.4, 9.5, 11.0)
INTRODUCTION = """\
# Tables of more than 512 columns

Public tables of 512 to 1,000 columns are rare, so these are made: a table's columns and the products of two of them,
1,000 at most, and scikit-learn's digits enlarged to 28 x 28 pixels. Mean test losses of six runs, by the folds that
never saw the table: of a base rate that the whole budget buys, and of each method, with its difference to the first
one and the standard error of that, and a star where it is beyond two of these. `control-universal-line` is
`control-universal` without the numbers for more than 512 features ([convergence.md](convergence.md)). What is above a
model's start at the smallest budgets, with these numbers and without, is [the base rate that runs buy
first](learning.md#where-runs-end-above-their-start).

`L2P_TABLES=FOLDER python -m benchmarks.wide_tables > benchmarks/pages/wide_tables.md`"""


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


def main(
    methods: tuple[str, ...] = ("control-universal-line", "control-universal"),
    tables: tuple[str, ...] = TABLES,
    model: str | None = None,
    log_signals: tuple[float, ...] = LOG_SIGNALS,
    on_private: bool = False,
) -> None:
    """Measure and print.

    Args:
      methods: names or files of protectors; the first is what the others are compared with.
      tables: public sets; digits, or tables of OpenML's.
      model: what they train; by default the linear model for the target's kind.
      log_signals: budgets, as log(mu N).
      on_private: score on the private rows themselves, to tell what is learned of these alone.
    """
    print(INTRODUCTION)
    for name in tables:
        trained, (private, test) = model_for(name, model), parts(name)
        rows = private, private if on_private else test
        check_scaled(rows[0], None if catalog.kind_of(name) == "regression" else trained.labels)
        compare(name, rows, methods, trained, log_signals, RUNS)


if __name__ == "__main__":
    tyro.cli(main)
