"""Bins that do not depend on the data: signed powers of two, and zero. The bin of a cell depends on it alone."""

import numpy as np

#: The least and the largest exponent e of a bin (2^(e-1), 2^e]. Smaller numbers lie in the least, larger ones in the
#: largest, but for zero, which has its own.
EXPONENTS = (-31, 64)
_PER_SIGN = EXPONENTS[1] - EXPONENTS[0] + 1
#: B, how many there are: from the most negative to the largest, zero in the middle.
COUNT = 2 * _PER_SIGN + 1
ZERO = _PER_SIGN


def places(values: np.ndarray) -> np.ndarray:
    """The place from 0 to `COUNT` - 1 of each value f64[n], i64[n]; -1 where it is not finite.

    >>> (places(np.array([0.0, 1.0, 2.0, 2.1, -1e300, np.nan])) - ZERO).tolist()
    [0, 32, 33, 34, -96, -97]
    """
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.abs(np.where(finite, values, 0.0)))
    exponent = np.clip(exponent - (mantissa == 0.5), *EXPONENTS)
    signs = np.sign(np.where(finite, values, 0.0)).astype(np.int64)
    return np.where(finite, ZERO + signs * (exponent - EXPONENTS[0] + 1), -1)


def edges(place: int) -> tuple[float, float]:
    """The ends of a bin.

    >>> edges(ZERO), edges(ZERO + 32), edges(ZERO - 33)
    ((0.0, 0.0), (0.5, 1.0), (-2.0, -1.0))
    """
    if place == ZERO:
        return 0.0, 0.0
    exponent = abs(place - ZERO) + EXPONENTS[0] - 1
    near, far = 2.0 ** (exponent - 1), 2.0**exponent
    return (near, far) if place > ZERO else (-far, -near)
