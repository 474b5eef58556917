"""Declared bounds: what is refused."""

import re

import pytest

from l2p.base.errors import InputError
from l2p.tables.bounds import interval
from l2p.tables.schema import Target
from tests.tables.ward import refusal

NO_NUMBERS = [[0], [0, 1, 2], 5, "01", ["0", "1"], [None, 1], [True, 2]]
NO_NUMBERS += [[float("nan"), 1], [0, float("inf")], [0, 10**400]]
REASONS = [(pair, "must be two finite numbers") for pair in NO_NUMBERS]
REASONS += [([1, 1], "[1, 1] leave no room between low and high"), ([2, 1], "[2, 1] leave no room")]
REASONS += [([-1e308, 1e308], "[-1e+308, 1e+308] are too far apart: cells are divided by high - low")]


@pytest.mark.parametrize(("pair", "reason"), REASONS, ids=lambda value: str(value)[:20])
def test_malformed_bounds_are_refused(pair, reason):
    assert refusal(interval, "dose", pair).startswith(f"bounds of column 'dose' {reason}")
    with pytest.raises(InputError, match=re.escape(reason)):
        Target("dose", bounds=pair)
