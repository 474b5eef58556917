"""Numbers for people: few digits, on the safe side."""

import decimal
import math


def rounded(value: float, up: bool, digits: int = 3) -> str:
    """`value` >= 0 in this many digits, rounded up or down from its first ten digits.

    >>> rounded(0.081234, up=True), rounded(0.081234, up=False), rounded(0.1 + 0.2, up=True), rounded(0.0, up=False)
    ('0.0813', '0.0812', '0.3', '0')
    >>> rounded(0.2367044, up=True, digits=4), rounded(1.0000049, up=True, digits=6), rounded(1e-6, up=True, digits=6)
    ('0.2368', '1.00001', '1e-06')
    """
    if not math.isfinite(value):
        return str(value)
    rounding = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
    return f"{float(decimal.Context(prec=digits, rounding=rounding).create_decimal(f'{value:.9e}')):.{digits}g}"


def in_digits(number: float) -> str:
    """A number with four digits, or to the unit.

    >>> in_digits(0.000123456), in_digits(61.5312), in_digits(90702.3), in_digits(1e9)
    ('0.0001235', '61.53', '90,702', '1e+09')
    """
    return f"{number:,.0f}" if 1e3 <= number < 1e7 else f"{number:.4g}"
