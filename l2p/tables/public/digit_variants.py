"""Variants of sets of images of the digits 0 to 9."""

import math

import numpy as np

from l2p.tables.public.public_set import Content, Variant, numbered
from l2p.tables.public.random_features import FEATURES, random_features


def _odd(content: Content, _: str) -> Content:
    return content._replace(y=content.y % 2)


def _pair(content: Content, digits: str) -> Content:
    first, second = map(int, digits.split(","))
    rows = np.isin(content.y, (first, second))
    return content._replace(x=content.x[rows], y=content.y[rows] == second)


def _features(content: Content, text: str) -> Content:
    side = math.isqrt(content.x.shape[1])
    count = int(text.partition(":")[2] or FEATURES)
    x = random_features(content.x.reshape(-1, side, side), count)
    return Content(x, content.y, tuple(numbered("feature", count)))


DIGIT_VARIANTS = (
    Variant(r"(\d),(?!\1)\d", ":3,5 for two different digits (the first is class 0)", 2, _pair),
    Variant("odd", ":odd for odd against even", 2, _odd),
    Variant(
        r"features(:\d+)?",
        f":features for {FEATURES} frozen random features of the images, or :features:{4 * FEATURES} for that many",
        None,
        _features,
    ),
)
