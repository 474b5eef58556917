"""SGD-MA's accountant as published."""

import math

import pytest

from tests.privacy.traces import DELTA, price, trace


def test_moments_cannot_certify_small_budgets():
    assert price("moments", trace(1e6, 1)) == pytest.approx(-math.log(DELTA) / 32, rel=1e-6)
    # Above that floor, the old conversion and integer orders cost a little.
    assert price("rdp_all_orders", trace(2, 1000)) < price("moments", trace(2, 1000)) < 1.2 * 3.36
