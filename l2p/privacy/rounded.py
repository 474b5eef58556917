"""Numbers for people: three digits, on the safe side."""

import decimal
import math

_UP = decimal.Context(prec=3, rounding=decimal.ROUND_CEILING)
_DOWN = decimal.Context(prec=3, rounding=decimal.ROUND_FLOOR)


def rounded(value: float, up: bool) -> str:
    """Three digits, never on the wrong side of the first ten digits of `value` >= 0.

    >>> rounded(0.081234, up=True), rounded(0.081234, up=False), rounded(0.1 + 0.2, up=True), rounded(0.0, up=False)
    ('0.0813', '0.0812', '0.3', '0')
    """
    if not math.isfinite(value):
        return str(value)
    return f"{float((_UP if up else _DOWN).create_decimal(f'{value:.9e}')):.3g}"
