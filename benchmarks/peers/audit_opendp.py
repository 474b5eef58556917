"""Audit of OpenDP's AIM: its guarantee, and its rows beside those of its model.

    python -m benchmarks.peers.audit_opendp

Needs what with_opendp.py requires.
"""

import math

import mbi
import numpy as np
import opendp.prelude as dp
import polars as pl
from opendp.extras.mbi._aim import _make_aim_scores
from opendp.extras.mbi._utilities import make_stable_marginals
from opendp.extras.polars import Bound
from scipy.optimize import brentq
from scipy.stats import norm
from with_opendp import DELTA, rho_of

RHO, ROWS, ROUNDS, DRAWN = 0.01, 500, 3, 20_000


def main() -> None:
    """Print the checks."""
    conversion()
    spending()
    scores("one row", [Bound(by=[], per_group=1)], 1)
    several = [Bound(by=[], per_group=4), Bound(by=[pl.col("a"), pl.col("b")], per_group=1, num_groups=4)]
    scores("four rows in cells of their own", several, 4)
    drawing()


def conversion() -> None:
    """Print the epsilon of the budget as one Gaussian mechanism, whose exact answer is known."""
    for epsilon in (0.1, 1.0, 3.0):
        rho = rho_of(epsilon)
        mu = math.sqrt(2 * rho)
        spent = brentq(
            lambda e, mu=mu: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - DELTA, 1e-6, 100
        )
        print(f"epsilon {epsilon:g}: rho {rho:.4g}, as one Gaussian mechanism {spent:.3f}")


def spending() -> None:
    """The rho of what is measured, and the noise of a category that no row has."""
    random = np.random.default_rng(0)
    rows = pl.DataFrame({name: random.integers(0, 2, ROWS).astype(str) for name in "abc"}).lazy()
    context = dp.Context.compositor(
        data=rows,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=RHO),
        split_evenly_over=1,
    )
    keys = {name: ["0", "1", *(["absent"] if name == "a" else [])] for name in "abc"}
    aim = dp.mbi.AIM(queries=2, rounds=ROUNDS)
    marginals = context.query().contingency_table(keys=keys, algorithm=aim).release().marginals
    measured = sum(0.5 / each.stddev**2 for each in marginals.flatten())
    [first, *_] = marginals.by_clique[("a",)]
    print(f"of rho {RHO} measurements have {measured:.4g}; a tenth of the half after the first is for selections")
    print(f"counts of 0, 1, absent and null {np.asarray(first.noisy_measurement)}, noise of {first.stddev:.1f}")


def scores(who: str, bounds: list[Bound], rows: int) -> None:
    """Print how far a person's rows move the score of a pair of columns, and how far they may."""
    series = [dp.series_domain(name, dp.atom_domain(bounds=(0, 3), T="u32")) for name in "ab"]
    pair = ("a", "b")
    tables = make_stable_marginals(
        dp.lazyframe_domain(series), dp.frame_distance(dp.symmetric_distance()), dp.l2_distance(T="u32"), [pair]
    )
    measured = [mbi.LinearMeasurement(np.ones(16), pair, stddev=1.0)]
    model = mbi.estimation.mirror_descent(mbi.Domain(pair, (4, 4)), measured, iters=2)
    score = _make_aim_scores(*tables.output_space, [dp.mbi.Count(pair)], {pair: 0.0}, model)
    without = np.full((4, 4), 5, dtype=np.int32)
    added = without.copy()
    added[0, :rows] += 1
    moved = score({pair: added})[0] - score({pair: without})[0]
    print(f"{who}: the score moves by {moved:.3g}, accounted as {score.map(tables.map(bounds)):.3g}")


def drawing() -> None:
    """Correlations in drawn rows beside those of the model, by both ways to draw.

    First of two columns that are independent given a third, then of neighbours in a ring of four columns.
    """
    equal, alike = np.full(4, DRAWN / 4), DRAWN * np.array([0.4, 0.1, 0.1, 0.4])
    star = {("a", "b"): equal, ("a", "c"): equal}
    ring = {("a", "b"): alike, ("b", "c"): alike, ("c", "d"): alike, ("a", "d"): alike}
    for pairs, a, b in ((star, "b", "c"), (ring, "a", "b")):
        measured = [mbi.LinearMeasurement(counts, pair, stddev=1.0) for pair, counts in pairs.items()]
        names = sorted({name for pair in pairs for name in pair})
        model = mbi.estimation.mirror_descent(mbi.Domain(names, [2] * len(names)), measured)
        table = np.asarray(model.project((a, b)).values) / DRAWN
        wanted = 4 * table[1, 1] - 1  # both columns are even
        for method in ("round", "sample"):
            np.random.seed(0)  # noqa: NPY002  (mbi draws from it)
            rows = model.synthetic_data(DRAWN, method).df
            correlation = np.corrcoef(rows[a], rows[b])[0, 1]
            print(
                f"of {len(names)}, {method}: {a} and {b} correlate by {correlation:.2f}, by {wanted:.2f} in the model"
            )


if __name__ == "__main__":
    main()
