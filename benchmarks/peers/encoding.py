"""Adult as numbers, by a public declaration: what users of the peers write themselves, and the same for all four.

Bounds and categories come from the public part alone, by the rule of `l2p schema --from`: all of the public numbers but
half a percent at either end, a tenth of the range more, not across zero. Every feature lies in [0, 1] and at most 14 of
a row differ from zero, so no row is longer than sqrt(14). The quick-starts of the peers fit a scaler, or take the norm,
from the training rows; here those are private, and no guarantee would hold.
"""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder


def encoded(private: str, public: str, test: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features and labels of the private rows, and the features of the test rows."""
    rows, public_rows, new = (pd.read_csv(path, skipinitialspace=True) for path in (private, public, test))
    numbers = public_rows.drop(columns="income").select_dtypes("number")
    low, high = numbers.quantile(0.005), numbers.quantile(0.995)
    low, high = (low - (high - low) / 10).clip(lower=0), high + (high - low) / 10
    categories = [
        name for name in public_rows if name not in numbers and name != "income"
    ]  # "?" is one of their values
    table = make_column_transformer(
        (FunctionTransformer(lambda cells: ((cells - low) / (high - low)).clip(0, 1)), list(numbers)),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), categories),
    ).fit(public_rows)
    labels = rows["income"].str.startswith(">50K").to_numpy(np.float32)
    return table.transform(rows).astype(np.float32), labels, table.transform(new).astype(np.float32)
