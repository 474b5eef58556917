"""Breast cancer: measurements of cell nuclei in images of biopsies."""

from typing import Any

import numpy as np

from l2p.tables.public.public_set import PublicSet


def _parse() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_breast_cancer

    packaged: Any = load_breast_cancer()
    return packaged.data, packaged.target


# Ranges in the set's description, rounded outwards: mean, standard error and worst of ten measurements.
_RANGES = {
    "radius": ((5, 30), (0, 3), (5, 37)),
    "texture": ((5, 40), (0, 5), (10, 50)),
    "perimeter": ((40, 190), (0, 22), (50, 255)),
    "area": ((100, 2600), (0, 550), (150, 4300)),
    "smoothness": ((0.05, 0.17), (0, 0.032), (0.07, 0.23)),
    "compactness": ((0, 0.35), (0, 0.14), (0, 1.1)),
    "concavity": ((0, 0.45), (0, 0.4), (0, 1.3)),
    "concave points": ((0, 0.21), (0, 0.055), (0, 0.3)),
    "symmetry": ((0.1, 0.31), (0, 0.08), (0.15, 0.67)),
    "fractal dimension": ((0.04, 0.1), (0, 0.03), (0.05, 0.21)),
}

SET = PublicSet(
    name="breast_cancer",
    source="UCI's Breast Cancer Wisconsin (Diagnostic) (Wolberg, Mangasarian, Street & Street 1995, CC BY 4.0), as "
    "scikit-learn packages it.",
    parse=_parse,
    bounds={
        **{f"mean {name}": mean for name, (mean, _, _) in _RANGES.items()},
        **{f"{name} error": error for name, (_, error, _) in _RANGES.items()},
        **{f"worst {name}": worst for name, (_, _, worst) in _RANGES.items()},
    },
    target="diagnosis",
    classes=("malignant", "benign"),
)
