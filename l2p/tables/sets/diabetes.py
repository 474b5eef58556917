"""Diabetes: progression of the disease of 442 patients in a year."""

from typing import Any

import numpy as np

from l2p.tables.public.public_set import PublicSet


def _parse() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_diabetes

    packaged: Any = load_diabetes(scaled=False)
    return packaged.data, packaged.target


SET = PublicSet(
    name="diabetes",
    source="Efron, Hastie, Johnstone & Tibshirani (2004), as scikit-learn packages it; no licence is stated.",
    parse=_parse,
    # What such measurements are in adults at large, rounded outwards; s1 to s6 are blood serum measurements.
    bounds={
        "age": (0, 100),
        "sex": (1, 2),
        "bmi": (10, 60),
        "bp": (40, 180),
        "s1": (50, 400),
        "s2": (0, 350),
        "s3": (10, 120),
        "s4": (1, 12),
        "s5": (2, 8),
        "s6": (40, 300),
    },
    target="progression of the disease after a year",
    target_bounds=(25, 346),  # as in the set's description
)
