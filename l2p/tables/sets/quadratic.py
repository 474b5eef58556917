"""Quadratic: a synthetic least-squares problem with a known optimum, the same on every machine."""

import numpy as np

from l2p.tables.public.public_set import PublicSet, numbered

#: Rows, features, and standard deviation of the noise on the target.
_ROWS, _FEATURES, _NOISE = 10_000, 10, 0.1


def _parse() -> tuple[np.ndarray, np.ndarray]:
    """Features are uniform in [0, 1], lines are 2 x - 1, and the target is lines @ w + 0.1 z with z standard normal and
    w_j = (-1)^j j / sqrt(385) for j = 1 to 10, of length 1. So w minimises the expected loss of the model `quadratic`,
    0.1^2 / 2 = 0.005; at zero it is 1/6 more.
    """
    generator = np.random.default_rng(0)
    x = generator.random((_ROWS, _FEATURES), np.float32)
    index = np.arange(1, _FEATURES + 1)
    weights = (-1.0) ** index * index / np.sqrt(np.square(index).sum())
    return x, (2.0 * x.astype(np.float64) - 1.0) @ weights + _NOISE * generator.standard_normal(_ROWS)


SET = PublicSet(
    name="quadratic",
    source="Made by a formula from a fixed seed when it is loaded, so there is nothing to license.",
    parse=_parse,
    bounds=numbered("feature", _FEATURES),
    target="a number around 0",  # the model has no intercept, so targets are not moved to [0, 1]
)
