"""Budgets without a meaningful guarantee are refused."""

import math

import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.privacy import Adjacency, Budget


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((0.0, 1e-8), "finite epsilon"),
        ((-1.0, 1e-8), "finite epsilon"),
        ((math.inf, 1e-8), "finite epsilon"),
        ((math.nan, 1e-8), "finite epsilon"),
        ((0.9e-12, 1e-8), "outside"),
        ((1.1e6, 1e-8), "outside"),
        (("much", 1e-8), "give a number"),
        ((None, 1e-8), "give a number"),
        ((1.0, -1e-9), "probability"),
        ((1.0, 1.0), "probability"),
        ((1.0, math.nan), "probability"),
        ((1.0, 1e-8, "both"), "zero_out, add_remove, replace_one"),
    ],
)
def test_budget_refuses(arguments, reason):
    with pytest.raises(InputError, match=reason):
        Budget(*arguments)


def test_budget():
    assert str(Budget(np.float32(0.5), 1e-8, "replace_one")) == "(epsilon=0.5, delta=1e-08), replace_one adjacency"
    assert Budget(0.1, 1e-8, "add_remove").adjacency is Adjacency.ADD_REMOVE
    assert Budget(0.1, 1e-8) == Budget(0.1, 1e-8, Adjacency.ZERO_OUT)
    Budget(0.1, 1e-3).check_rows(999)
    with pytest.raises(InputError, match="publishes one row"):
        Budget(0.1, 1e-3).check_rows(1000)
    with pytest.raises(InputError, match="without rows"):
        Budget(0.1, 1e-3).check_rows(0)
