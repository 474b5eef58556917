"""Every accountant in the registry has the common properties, on every sampler and mechanism that it covers."""

import pytest

from l2p.privacy.accountants import run_names
from tests.privacy.accountants import properties


@pytest.mark.parametrize("name", run_names())
def test_prices_fall_with_noise_and_add_up(name):
    properties.prices_fall_with_noise_and_add_up(name)


@pytest.mark.slow(but=["gdp", "zcdp", "basic"])
@pytest.mark.parametrize("name", run_names())
def test_prices_inside_the_run_bound_the_float64_ones(name):
    properties.prices_inside_the_run_bound_the_float64_ones(name)


@pytest.mark.slow(cases=["rdp"])
@pytest.mark.parametrize("name", run_names())
def test_a_certificate_is_never_below_dp_accountings(name):
    compared = properties.a_certificate_is_never_below_dp_accountings(name)
    # dp-accounting has loss distributions neither for fixed-size batches nor for objective perturbation.
    assert (compared == 0) == (name == "paper_13")


@pytest.mark.parametrize("name", run_names())
def test_what_is_not_covered_is_refused_in_a_sentence_or_never_granted(name):
    properties.what_is_not_covered_is_refused_in_a_sentence_or_never_granted(name)
