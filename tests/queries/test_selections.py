"""Selections by noise are the exponential mechanism, and have the bounds that their price rests on."""

import itertools
import math

import jax
import numpy as np
import pytest
from scipy import integrate, special, stats

from l2p.privacy import Adjacency
from l2p.protectors.by_hand.agd import NUM_CANDIDATES
from l2p.task.noise import KeyNoise
from tests.queries.conformance import ADJACENCIES, CLIP, DRAWS, LEVEL, NOISE, f32, minimum


def choices(query, scores, adjacency, count=DRAWS):
    release = jax.jit(jax.vmap(lambda key: query.release(scores, KeyNoise(key), adjacency)))
    return np.bincount(np.asarray(release(jax.random.split(jax.random.key(9), count))), minlength=len(scores))


def fit_p_value(counts, probabilities):
    probabilities = np.asarray(probabilities, float)
    return stats.chisquare(counts, probabilities / probabilities.sum() * counts.sum()).pvalue


def one_sided(qualities):
    """P(largest of qualities + Exp(1)) per candidate, by quadrature: what permute-and-flip is."""
    qualities = np.asarray(qualities, float)

    def chance(index):
        gaps = qualities[index] - np.delete(qualities, index)
        kinks = sorted({max(-gap, 0.0) for gap in gaps} | {0.0})
        inner = lambda z: math.exp(-z) * np.prod(-np.expm1(-np.maximum(z + gaps, 0.0)))  # noqa: E731
        return sum(integrate.quad(inner, low, high)[0] for low, high in zip(kinks, [*kinks[1:], 60.0], strict=True))

    return np.array([chance(index) for index in range(len(qualities))])


def wrong_sign(qualities):
    """P(largest of qualities - Exp(1)) per candidate: the noise raises the score that is minimised."""
    qualities = np.asarray(qualities, float)

    def chance(index):
        gaps = qualities[index] - np.delete(qualities, index)
        kinks = sorted({max(gap, 0.0) for gap in gaps} | {0.0})
        inner = lambda z: math.exp(-z) * np.exp(-np.maximum(z - gaps, 0.0)).prod()  # noqa: E731
        return sum(integrate.quad(inner, low, high)[0] for low, high in zip(kinks, [*kinks[1:], 60.0], strict=True))

    return np.array([chance(index) for index in range(len(qualities))])


SCORES = {2: np.array([1.0, 0.3]), 21: np.random.default_rng(2).uniform(0, 2.5, 21)}
TABLES = pytest.mark.parametrize("size", SCORES)


@pytest.mark.slow(but=["2-add_remove", "21-add_remove"])
@ADJACENCIES
@TABLES
def test_gumbel_minimum_is_the_exponential_mechanism(size, adjacency):
    scores, query = SCORES[size], minimum("gumbel")
    scale = NOISE * CLIP * adjacency.sensitivity_factor
    counts = choices(query, f32(scores), adjacency)
    assert fit_p_value(counts, np.exp(-scores / scale)) > LEVEL
    for wrong in (scale * 1.15, scale / 1.15, -scale):
        assert fit_p_value(counts, np.exp(-scores / wrong)) < LEVEL


def test_gumbel_noise_of_the_wrong_sign_is_seen():
    scores, scale = SCORES[21], NOISE * CLIP
    noise = np.random.default_rng(0).gumbel(size=(DRAWS, 21)) * scale
    right, wrong = (np.bincount(np.argmin(scores + sign * noise, 1), minlength=21) for sign in (-1, 1))
    assert fit_p_value(right, np.exp(-scores / scale)) > LEVEL
    assert fit_p_value(wrong, np.exp(-scores / scale)) < LEVEL


@pytest.mark.slow(but=["2-add_remove"])
@ADJACENCIES
@TABLES
def test_exponential_minimum_has_its_exact_frequencies(size, adjacency):
    scores, query = SCORES[size], minimum("exponential")
    scale = NOISE * CLIP * adjacency.sensitivity_factor
    counts = choices(query, f32(scores), adjacency)
    assert fit_p_value(counts, one_sided(-scores / scale)) > LEVEL
    for wrong in (scale * 1.15, scale / 1.15):
        assert fit_p_value(counts, one_sided(-scores / wrong)) < LEVEL
    if size == 21:  # with two candidates the sign has no effect: the difference of two exponentials is symmetric
        assert fit_p_value(counts, wrong_sign(-scores / scale)) < LEVEL


@TABLES
def test_gumbel_minimum_has_the_bounded_range_that_its_price_rests_on(size):
    """Cesar & Rogers 2021: epsilon^2 / 8 where log ratios of all candidates lie within epsilon of each other."""
    epsilon, random, scores = 1 / NOISE, np.random.default_rng(6), SCORES[size]
    vertices = [*random.integers(0, 2, (50, size)).astype(float), *random.random((50, size)), np.eye(size)[0]]
    worst = {1: 0.0, 2: 0.0}
    for sides in worst:  # one row more: scores rise; one row replaced: some rise and some fall
        for vertex, next_vertex in itertools.pairwise(vertices):
            moved = CLIP * (vertex - (sides - 1) * next_vertex)
            before, after = (special.log_softmax(-table_ / NOISE / CLIP) for table_ in (scores, scores + moved))
            worst[sides] = max(worst[sides], np.ptp(after - before))
    assert 0.99 * epsilon < worst[1] <= epsilon * (1 + 1e-9)
    assert 1.99 * epsilon < worst[2] <= 2 * epsilon * (1 + 1e-9)  # hence twice the noise


@pytest.mark.slow(but=["2"])
@TABLES
def test_exponential_minimum_keeps_its_privacy_ratio_and_the_wrong_sign_does_not(size):
    epsilon, random = 1 / NOISE, np.random.default_rng(6)
    scale = NOISE * CLIP
    vertices = [np.eye(size)[index] for index in (0, size - 1)] + [1 - np.eye(size)[0], np.ones(size)]
    vertices += [random.integers(0, 2, size).astype(float) for _ in range(3)] + [random.random(size)]
    ratios = {one_sided: 0.0, wrong_sign: 0.0}
    for scores in (SCORES[size], np.zeros(size)):
        for vertex in vertices:  # what one more row may add to the scores: anything in [0, clip norm]
            for law in ratios:
                before, after = law(-scores / scale), law(-(scores + CLIP * vertex) / scale)
                assert before.sum() == pytest.approx(1, abs=1e-6)
                ratios[law] = max(ratios[law], np.abs(np.log(after) - np.log(before)).max())
    assert 0.9 * epsilon < ratios[one_sided] <= epsilon + 1e-5
    if size == 21:
        assert ratios[wrong_sign] > 1.5 * epsilon


@TABLES
def test_released_exponential_choices_of_neighbours_stay_within_the_ratio(size):
    # The released frequencies themselves: worst candidate of two neighbours, Clopper-Pearson at LEVEL.
    query = minimum("exponential")
    scores = np.zeros(size)
    counts = [choices(query, f32(table_), Adjacency.ADD_REMOVE) for table_ in (scores, scores + CLIP * np.eye(size)[0])]
    low = stats.beta.ppf(LEVEL / 2, counts[0][0], DRAWS - counts[0][0] + 1)
    high = stats.beta.isf(LEVEL / 2, counts[1][0] + 1, DRAWS - counts[1][0])
    assert math.log(low / high) <= 1 / NOISE
    noise = np.random.default_rng(1).exponential(size=(DRAWS, size)) * NOISE * CLIP
    mutant = [(np.argmin(table_ + noise, 1) == 0).sum() for table_ in (scores, scores + CLIP * np.eye(size)[0])]
    low = stats.beta.ppf(LEVEL / 2, mutant[0], DRAWS - mutant[0] + 1)
    high = stats.beta.isf(LEVEL / 2, mutant[1] + 1, DRAWS - mutant[1])
    assert size == 2 or math.log(low / high) > 1 / NOISE


def test_losses_that_are_not_numbers_count_as_the_most_a_row_may_lose():
    limited = minimum("gumbel").limit(f32([[np.nan, np.inf, -np.inf, 0.1, 7.0]]))
    np.testing.assert_array_equal(limited, f32([[CLIP, CLIP, 0.0, 0.1, CLIP]]))


def test_selection_candidates_are_twenty_and_staying_put():
    assert NUM_CANDIDATES + 1 == 21  # the table size above is the number of AGD's candidates
