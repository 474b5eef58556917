"""The 13 q^2 rho rule as papers apply it."""

import math

import numpy as np

from l2p.privacy.accountants import tcdp
from l2p.privacy.cost.sampling import Poisson
from tests.privacy.traces import POISSON, price, trace


def test_tcdp_says_which_precondition_fails():
    assert tcdp.failing_precondition(trace(20, 5), POISSON) is None
    for noise, rate, phrase in ((1.0, 0.01, "rho"), (20.0, 0.2, "sampling rate")):
        assert phrase in (tcdp.failing_precondition(trace(noise, 5), Poisson(rate)) or "")
        assert price("tcdp", trace(noise, 5), Poisson(rate)) == math.inf
    # The theorem's third precondition follows from the other two.
    rho = np.geomspace(1e-12, 0.1, 1000)
    assert (3 * rho * (2 + np.log2(1 / rho)) < math.log(10)).all()
