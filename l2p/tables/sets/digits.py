"""Digits: images of handwritten digits, 8 x 8 pixels, that come with scikit-learn."""

from typing import Any

import numpy as np

from l2p.tables.public.digit_variants import DIGIT_VARIANTS
from l2p.tables.public.public_set import PublicSet


def _parse() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    packaged: Any = load_digits()
    return packaged.data, packaged.target


SET = PublicSet(
    name="digits",
    source="The test part of UCI's Optical Recognition of Handwritten Digits (Alpaydin & Kaynak 1998, CC BY 4.0), as "
    "scikit-learn packages it.",
    parse=_parse,
    bounds={f"pixel_{i}_{j}": (0, 16) for i in range(8) for j in range(8)},
    target="digit",
    classes=tuple("0123456789"),
    variants=DIGIT_VARIANTS,
)
