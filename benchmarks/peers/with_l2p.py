"""l2p in Python. The protector is the fold that never saw Adult; everything else is as it comes.

There is no seed: these are releases, whose noise comes from the operating system.
"""
# requires: -e {checkout} pandas==3.1.1

import harness
import numpy as np
import pandas as pd

from l2p.estimators import PrivateClassifier
from l2p.tables.reading import open_table
from l2p.tables.schema.template import from_public


def train(private, public, test, epsilon, seed, curve=None) -> np.ndarray:
    rows, new = (pd.read_csv(path, dtype=str, skipinitialspace=True) for path in (private, test))
    schema = from_public(open_table(public), "income", curve=curve)
    model = PrivateClassifier(epsilon, 1e-6, protector="universal-fold-1", schema=schema)
    model.fit(rows.drop(columns="income"), rows["income"])
    return model.predict_proba(new)[:, 1]


if __name__ == "__main__":
    harness.main(train)
