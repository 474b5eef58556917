"""OpenDP: synthetic rows by AIM (McKenna et al. 2022), and plain logistic regression on them.

The domain is declared from the public part: its categories, and cuts at quantiles of its distinct numbers. All columns
are declared, so the whole budget is zCDP, and rho is what comes to (epsilon, delta). AIM as it comes looks at triples
of columns, over 16 rounds a column. Here it looks at pairs, over one round a column, which takes minutes already.

Rows are drawn one by one and not by rounding, which is what `synthesize` does as it comes. In mbi 1.1.0, which OpenDP
pins, rounding orders the rows, and columns that have nothing to do with each other come out related.
"""
# requires: opendp[mbi]==0.16.0 jax==0.10.1 jaxlib==0.10.1 scikit-learn==1.9.1 pandas==3.1.1

import tempfile

import harness
import numpy as np
import opendp.prelude as dp
import pandas as pd
import polars as pl
from encoding import encoded
from sklearn.linear_model import LogisticRegression

dp.enable_features("contrib")  # what its authors have not finished vetting
DELTA = 1e-6


def rho_of(epsilon: float) -> float:
    """The rho whose zCDP implies (epsilon, DELTA)."""
    space = dp.atom_domain(T=int), dp.absolute_distance(T=float)

    def converted(scale: float) -> dp.Measurement:
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale)), DELTA)

    scale = dp.binary_search_param(converted, d_in=1.0, d_out=(epsilon, DELTA), T=float)
    return dp.m.make_gaussian(*space, scale).map(1.0)


def train(private, public, test, epsilon, seed, rounds=15, bins=16, method="sample") -> np.ndarray:
    rows, public_rows = (pd.read_csv(path, skipinitialspace=True) for path in (private, public))
    for table in (rows, public_rows):
        table["income"] = table["income"].str.rstrip(".")
    numbers = public_rows.select_dtypes("number")
    at = np.linspace(0, 1, bins + 1)
    cuts = {name: np.unique(numbers[name].drop_duplicates().quantile(at).astype(int)).tolist() for name in numbers}
    keys = {name: sorted(public_rows[name].unique()) for name in public_rows if name not in numbers}
    context = dp.Context.compositor(
        data=pl.from_pandas(rows).lazy(),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho_of(epsilon)),
        split_evenly_over=1,
    )
    aim = dp.mbi.AIM(queries=2, rounds=rounds)
    released = context.query().contingency_table(keys=keys, cuts=cuts, algorithm=aim).release()
    np.random.seed(seed)  # noqa: NPY002  (mbi draws rows from it; noise comes from the operating system)
    synthetic = released.synthesize(method=method).drop_nulls("income")
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        synthetic.write_csv(file.name)
        X, y, X_test = encoded(file.name, public, test)
    return LogisticRegression(max_iter=1000).fit(X, y).predict_proba(X_test)[:, 1]


if __name__ == "__main__":
    harness.main(train)
