"""interpret: DP-EBM, boosting of one feature at a time (Nori et al. 2021), with its defaults.

Its model is additive, with steps in place of slopes, and so a richer one than logistic regression. Types, bounds and
categories have to be declared, or it reads them off the private rows with a warning. A category that private rows do
not have gets no noise, so a bin for a category tells that somebody has it; what is rare in public rows is therefore one
category here, which thousands of private rows have. benchmarks/pages/side_by_side.md says what that leaves open.
"""
# requires: interpret-core==0.7.8 scikit-learn==1.9.1 pandas==3.1.1

import harness
import numpy as np
import pandas as pd
from interpret.privacy import DPExplainableBoostingClassifier

#: The share of public rows that a category of its own has to have.
COMMON = 0.01


def train(private, public, test, epsilon, seed, **settings) -> np.ndarray:
    rows, public_rows, new = (pd.read_csv(path, skipinitialspace=True) for path in (private, public, test))
    income = public_rows.pop("income").str.startswith(">50K")
    numbers = public_rows.select_dtypes("number")
    low, high = numbers.quantile(0.005), numbers.quantile(0.995)
    low, high = (low - (high - low) / 10).clip(lower=0), high + (high - low) / 10
    types, common = {}, {}
    for name in public_rows:
        if name in numbers:
            types[name] = "continuous"
        else:
            share = public_rows[name].value_counts(normalize=True)
            common[name] = set(share.index[share >= COMMON])
            merged = public_rows[name].where(public_rows[name].isin(common[name]), "rare")
            # Categories have an order, and cuts are along it: that of public shares of high incomes.
            types[name] = list(income.groupby(merged).mean().sort_values().index)

    def declared(table: pd.DataFrame) -> pd.DataFrame:
        cells = {name: table[name].where(table[name].isin(words), "rare") for name, words in common.items()}
        return table[list(public_rows)].assign(**table[list(numbers)].clip(low, high, axis=1), **cells)

    model = DPExplainableBoostingClassifier(
        feature_types=list(types.values()),
        privacy_bounds={name: (low[name], high[name]) for name in numbers},
        epsilon=epsilon,
        delta=1e-6,
        random_state=seed,
        n_jobs=1,
        **settings,
    )
    model.fit(declared(rows), rows["income"].str.startswith(">50K"))
    return model.predict_proba(declared(new))[:, 1]


if __name__ == "__main__":
    harness.main(train)
