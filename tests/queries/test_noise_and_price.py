"""Every query's noise has the scale that it is priced for."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import special, stats

from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN
from l2p.oracle.sums import exact_sum
from l2p.privacy import Adjacency, Filter, FullBatch
from l2p.privacy.accountants import covering, of_fixed_noise
from l2p.privacy.cost import convert
from l2p.queries import (
    BinCounts,
    ClippedLoss,
    CrossMoment,
    FeatureSum,
    Minimizer,
    TargetSum,
)
from l2p.queries.selection import Selection
from l2p.task.entropy import Entropy
from l2p.task.exact_sums import ExactSum, Quantized
from l2p.task.noise import Draw, HostNoise, KeyNoise
from tests.queries.conformance import (
    ADDITIVE,
    ADJACENCIES,
    BUDGET,
    CLIP,
    DRAWS,
    LEVEL,
    MODEL,
    NOISE,
    QUERIES,
    D,
    NoNoise,
    as_float64,
    counts,
    f32,
    in_units,
    table,
)

DISTRIBUTIONS = {"gaussian": stats.norm, "gumbel": stats.gumbel_r, "exponential": stats.expon}


def scale_p_value(noise, scale, distribution):
    """p-value of "noise is `distribution` at `scale`"; chi-square where scale has one, Kolmogorov-Smirnov for Gumbel.

    With 60,000 draws a standard deviation estimate has a relative error of 0.3 % (Gaussian) or 0.4 % (exponential),
    so 5 % is over 12 of them; for Gumbel 5 % moves the distribution function by 0.018, 4.5 times 1/sqrt(60,000).
    """
    standard = np.asarray(noise, np.float64).ravel() / scale
    if distribution == "gumbel":
        return stats.kstest(standard, stats.gumbel_r.cdf).pvalue
    total, freedom = (
        ((standard**2).sum(), standard.size) if distribution == "gaussian" else (2 * standard.sum(), 2 * standard.size)
    )
    return 2 * min(stats.chi2.cdf(total, freedom), stats.chi2.sf(total, freedom))


def check_scale(noise, scale, distribution):
    assert scale_p_value(noise, scale, distribution) > LEVEL
    for wrong in (scale * 1.05, scale / 1.05):  # power: a 5 % error is seen
        assert scale_p_value(noise, wrong, distribution) < LEVEL


def host_noise(distribution, size, grid, seed=11):
    plan = [Draw(distribution, size)]
    (bits,) = Entropy(seed).draw(plan, 1)
    noise = HostNoise([jnp.asarray(bits[0])], plan)
    noise.grid = grid
    return noise


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_key_noise_has_the_scale_asked_for(distribution):
    added = KeyNoise(jax.random.key(1)).add(distribution, jnp.full(DRAWS, 3.0), f32(2.5))
    check_scale(np.asarray(added) - 3.0, 2.5, distribution)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_host_noise_has_the_scale_asked_for_in_float64_and_sums_lie_on_the_grid(distribution):
    grid = 2.0**-20
    with jax.enable_x64(True):
        noise = host_noise(distribution, DRAWS, grid)
        added = np.asarray(noise.add(distribution, jnp.full(DRAWS, 3.0, jnp.float64), jnp.float32(2.5)))
    assert added.dtype == np.float64
    # Only the index of a selection is released, so its noised scores are not rounded.
    assert np.array_equal(added / grid, np.rint(added / grid)) == (distribution == "gaussian")
    check_scale(added - 3.0, 2.5, distribution)


@pytest.mark.parametrize(("distribution", "size"), [("gumbel", 8), ("gaussian", 7)])
def test_host_noise_drawn_for_something_else_is_refused(distribution, size):
    with jax.enable_x64(True), pytest.raises(RuntimeError, match="was planned"):
        host_noise("gaussian", 8, 2.0**-20).add(distribution, jnp.zeros(size, jnp.float64), jnp.float32(1.0))


def test_host_noise_is_what_the_host_drew_bit_for_bit():
    (bits,) = Entropy(4).draw([Draw("gaussian", 64)], 1)
    with jax.enable_x64(True):
        drawn, rounded = (HostNoise([jnp.asarray(bits[0])], [Draw("gaussian", 64)]) for _ in range(2))
        rounded.grid = 2.0**-20
        used = np.asarray(drawn.standard("gaussian", (64,)))
        added = np.asarray(rounded.add("gaussian", jnp.zeros(64, jnp.float64), jnp.float32(1.0)))
    drawn = bits[0].view(np.float64).ravel()
    assert np.array_equal(used, drawn)
    assert 2.0**-23 < np.abs(added - drawn).max() <= 2.0**-21
    assert np.any(drawn != drawn.astype(np.float32))


@pytest.mark.slow(but=["0.001"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_noise_on_an_exact_sum_has_the_scale_asked_for_and_hides_low_bits(scale):
    unit, high = 2.0**-40, 2.0**20  # a sum of 2^52 units, which many blocks of rows may reach
    with jax.enable_x64(True):
        total = ExactSum(*(jnp.full(DRAWS, value, jnp.float64) for value in (high, 1.0, unit)))
        noise = host_noise("gaussian", DRAWS, 0.0)
        added = np.asarray(noise.add("gaussian", total, jnp.float32(scale)))
    check_scale(added - (high * 2.0**32 + 1.0) * unit, scale, "gaussian")
    coarse = unit * 2.0 ** max(0, math.ceil(math.log2(scale / unit) - 20 + 1e-9))
    assert np.array_equal(added / coarse, np.rint(added / coarse))
    assert coarse == unit or coarse > scale * 2.0**-21


def test_exact_sums_of_any_number_of_blocks_lose_no_unit():
    most = 2.0**53
    with jax.enable_x64(True):
        total = ExactSum.empty(2)
        plus = jax.jit(lambda total, steps: total.plus(Quantized(steps, jnp.ones(()))))
        for sign in (1, 1, 1, -1, 1, 1):
            total = plus(total, jnp.array([sign * most, sign * (most - 1)]))
        steps, _ = in_units(total)
    assert steps.tolist() == [4 * 2**53, 4 * (2**53 - 1)]


def test_noise_calls_are_independent_of_each_other_and_of_the_key():
    noise, different = KeyNoise(jax.random.key(1)), KeyNoise(jax.random.key(2))
    first, second, third = (
        np.asarray(source.add("gaussian", jnp.zeros(DRAWS), f32(1.0))) for source in (noise, noise, different)
    )
    for a, b in ((first, second), (first, third), (second, third)):
        # Under the null the correlation is normal with deviation 1/sqrt(n); five of them.
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / DRAWS**0.5
    assert np.corrcoef(first, first)[0, 1] > 0.99
    two = Entropy(3).draw([Draw("gaussian", 1000), Draw("gaussian", 1000)], 2)
    assert len({part.tobytes() for draw in two for part in draw}) == 4


def test_operating_system_entropy_never_repeats_and_only_it_is_private():
    plan_ = [Draw("gaussian", 4)]
    first_entropy, second_entropy = Entropy(), Entropy()
    assert first_entropy.is_private
    assert not Entropy(0).is_private
    assert not np.array_equal(first_entropy.draw(plan_, 1)[0], second_entropy.draw(plan_, 1)[0])
    assert np.array_equal(Entropy(0).draw(plan_, 1)[0], Entropy(0).draw(plan_, 1)[0])


def wide(query, size):
    """The same query over `size` coordinates, for many draws at once."""
    if isinstance(query, FeatureSum):
        return query.replace(num_features=size)
    if isinstance(query, BinCounts):
        return query.replace(num_columns=size, num_bins=1)
    if isinstance(query, TargetSum):
        return query.replace(num_classes=size)
    if isinstance(query, ClippedLoss):
        return query.replace(candidates=jnp.zeros((size, D + 1)))
    if isinstance(query, CrossMoment):
        return query.replace(num_features=size - 1)
    return query.replace(params=jnp.zeros(size))


@ADJACENCIES
@pytest.mark.parametrize(
    "kind",
    ["gradient", "normalized gradient", "feature sum", "clipped loss", "cross moment", "bin counts", "class counts"],
)
@pytest.mark.parametrize("source", ["key", "host"])
def test_vector_answers_carry_noise_multiplier_times_sensitivity(kind, source, adjacency):
    query = wide(QUERIES[kind], DRAWS)
    # A vector of clipped losses may move in all its entries at once.
    length = {"cross moment": "norm_bound", "bin counts": "noise_multiplier"}.get(kind, "clip_norm")
    bound = DRAWS**0.5 if kind == "bin counts" else 1.0 if kind == "class counts" else float(getattr(query, length))
    bound *= DRAWS**0.5 if kind == "clipped loss" else 1
    replaced = 2**0.5 if counts(query) else 2
    scale = NOISE * bound * (replaced if adjacency is Adjacency.REPLACE_ONE else 1)
    with jax.enable_x64(source == "host"):
        noise = KeyNoise(jax.random.key(7)) if source == "key" else host_noise("gaussian", DRAWS, bound * 2.0**-24)
        answer = query.release(query.empty(), noise, adjacency)
    check_scale(answer, scale, "gaussian")


@ADJACENCIES
def test_gradient_norm_carries_noise_multiplier_times_sensitivity(adjacency):
    query = QUERIES["gradient norm"]
    total = jnp.array([3.0, 0.0, 4.0, 0.0])
    release = jax.jit(jax.vmap(lambda key: query.release(total, KeyNoise(key), adjacency)))
    noise = np.asarray(release(jax.random.split(jax.random.key(8), DRAWS))) - 5.0
    check_scale(noise, NOISE * CLIP * (2 if adjacency is Adjacency.REPLACE_ONE else 1), "gaussian")


# -------------------------------------------------------------------------------------------------------------- price
@ADDITIVE
@pytest.mark.parametrize("noise", [0.3, 1.7, 1234.5])
def test_event_prices_the_noise_as_in_float64(query, noise):
    event = query.replace(noise_multiplier=f32(noise)).event()
    mechanism = event.mechanism
    assert mechanism == (query.mechanism if isinstance(query, Selection) else "gaussian")
    exact_noise = float(f32(noise))
    rho = {"gaussian": 1 / 2, "gumbel": 1 / 8, "exponential": 1 / 2}[mechanism] / exact_noise**2
    order = convert.planned_order(BUDGET.epsilon, BUDGET.delta)
    truths = {"gdp": 1 / exact_noise**2, "zcdp": rho, "ctcdp": rho, "rdp": order * rho}
    assert set(truths) <= set(covering(FullBatch())) - {"basic", *of_fixed_noise()}
    for name, truth in truths.items():
        if name == "gdp" and mechanism != "gaussian":
            with pytest.raises(InputError, match="gdp"):
                Filter(name, BUDGET).price_list().price(event)
        else:
            price = float(Filter(name, BUDGET).price_list().price(event))
            assert truth <= price <= truth * (1 + 3e-6)


@ADDITIVE
def test_more_noise_is_cheaper_and_its_gradient_says_so(query):
    name = "gdp" if query.mechanism == "gaussian" else "rdp"
    accountant = Filter(name, BUDGET).price_list()
    price = lambda noise: accountant.price(query.replace(noise_multiplier=noise).event())  # noqa: E731
    check_grads(price, (f32(1.7),), order=1, modes=["rev"], rtol=2e-2)
    assert float(jax.grad(price)(f32(1.7))) < 0


@pytest.mark.slow
def test_minimizer_costs_infinity_finds_the_minimum_and_is_no_sum():
    query = Minimizer(MODEL, jnp.zeros(D + 1), jnp.zeros(()))
    for name in set(covering(FullBatch())) - set(of_fixed_noise()):
        assert float(Filter(name, BUDGET).price_list().price(query.event())) == math.inf
    rows = table(count=120)
    minimum = np.asarray(jax.jit(lambda rows: query.add(query.empty(), rows))(rows), float)
    assert np.array_equal(query.release(jnp.asarray(minimum), NoNoise(), Adjacency.ZERO_OUT), f32(minimum))
    x, y, mask = as_float64(rows)
    lines = np.c_[x, np.full(len(x), INTERCEPT_COLUMN)]
    mean_gradient = (mask * (special.expit(lines @ minimum) - y)) @ lines / mask.sum()
    assert np.abs(mean_gradient).max() < 1e-5  # float32 Newton; the ridge of 1e-6 included
    assert np.abs(minimum).max() > 0.1
    assert not query.additive
    with pytest.raises(TypeError, match="not a sum"), jax.enable_x64(True):
        exact_sum(query, rows)
