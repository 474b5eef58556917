"""Rows of a loss of one's own that stream: what rows in memory give, and sources that do not hold what they say."""

import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError, RowsError
from l2p.oracle.sums import BlockSum
from l2p.privacy.cost.sampling import Poisson
from l2p.queries import ClippedGradient
from l2p.release.losses.custom import custom
from l2p.task.exact_sums import ExactSum
from l2p.task.feature_map import FeatureMap
from l2p.task.sources import ArraySource
from tests.release.losses import DATA, NUM_FEATURES, NUM_ROWS, START, logistic

BUDGET = l2p.Budget(4.0, 1e-4)
POINT = jnp.array([0.5, -1.0, 2.0, 0.3])


def in_blocks(data=DATA, size=128, num_rows=NUM_ROWS):
    def blocks():
        for first in range(0, num_rows, size):
            yield {name: array[first : first + size] for name, array in data.items()}

    return l2p.BlockSource(blocks, num_rows)


def released_sum(data):
    rows, model, _ = custom(data, logistic, START)
    rows = rows if isinstance(data, l2p.BlockSource) else ArraySource(rows, NUM_ROWS)
    identity = FeatureMap.identity(model.rows.size)
    query = ClippedGradient(model, POINT, identity, jnp.float32(0.3), jnp.float32(1))
    with jax.enable_x64(True):
        total = BlockSum(query, None, None, scaled=False)(rows.blocks())
        assert isinstance(total, ExactSum)
        return np.asarray(total.steps)


def test_a_release_adds_up_the_same_whole_numbers_from_blocks_and_from_memory():
    large = {"x": 100.0 * DATA["x"] - 7.0, "y": DATA["y"].astype(np.int64)}  # of no range that l2p's own models have
    large["x"][5, 1], large["y"][9] = np.nan, 2**40
    whole, parts = released_sum(large), released_sum(in_blocks(large))
    assert np.array_equal(whole, parts)
    assert np.abs(whole).max() > 2**20


@pytest.mark.long(cases=["dpsgd", "agd"])
@pytest.mark.slow
@pytest.mark.parametrize("name", ["noisygd", "dpsgd", "agd"])
def test_a_simulation_over_blocks_is_that_in_memory(name):
    protector = l2p.load(name, BUDGET).replace(num_steps=3)
    results = [
        l2p.private_train(data, protector, BUDGET, model=logistic, params=START, key=jax.random.key(1))
        for data in (DATA, in_blocks())
    ]
    np.testing.assert_allclose(*(np.concatenate(result.params) for result in results), rtol=1e-4, atol=1e-4)
    cards = [result.card for result in results]
    assert cards[0].events == cards[1].events
    assert (cards[0].num_rows, cards[0].num_features) == (cards[1].num_rows, cards[1].num_features)


@pytest.mark.slow
def test_a_release_reads_batches_of_blocks_and_its_card_is_exact():
    protector = l2p.load("dpsgd", BUDGET).replace(num_steps=4, sampler=Poisson(0.1))
    passes = []

    def blocks():
        passes.append(1)
        return in_blocks().blocks()

    source = l2p.BlockSource(blocks, NUM_ROWS)
    result = l2p.private_train(source, protector, BUDGET, model=logistic, params=START)
    assert (result.steps, result.card.private_release) == (4, True)
    assert result.card.float_mode.startswith("exact: ")
    assert len(passes) <= 3  # its layout, and one for all four small batches
    assert np.isfinite(np.concatenate(result.params)).all()


def changing():
    yield {"x": DATA["x"][:200], "y": DATA["y"][:200]}
    yield {"x": DATA["x"][200:, :2], "y": DATA["y"][200:]}


def uneven():
    yield {"x": DATA["x"][:200], "y": DATA["y"][:200]}
    yield {"x": DATA["x"][200:], "y": DATA["y"][201:]}


ENDING = {
    "rows of two shapes": (changing, NUM_ROWS, "rows of another structure, shape or type than the first one"),
    "columns of two lengths": (uneven, NUM_ROWS, "a block of the source does not fit: 'y' of the data has another"),
    "fewer rows than it says": (in_blocks().blocks, NUM_ROWS + 1, "more or fewer rows than its num_rows"),
    "more rows than it says": (in_blocks().blocks, NUM_ROWS - 1, "more or fewer rows than its num_rows"),
    "an error of its own": (lambda: (_ for _ in [1 / len(DATA["x"][:0])]), NUM_ROWS, "its message is withheld"),
}


@pytest.mark.parametrize("case", ENDING)
def test_a_source_that_gives_other_rows_than_it_says_ends_the_run(case):
    blocks, num_rows, says = ENDING[case]
    protector = l2p.load("noisygd", BUDGET).replace(num_steps=1)
    with pytest.raises(RowsError, match=says) as error:
        l2p.private_train(l2p.BlockSource(blocks, num_rows), protector, BUDGET, model=logistic, params=START)
    assert error.value.__context__ is None


def test_sources_that_are_none_are_refused_before_a_run():
    for blocks, num_rows, says in (
        (iter([DATA]), NUM_ROWS, "of which there would be one pass alone"),
        (in_blocks().blocks, 0, "not above 0"),
        (in_blocks().blocks, "many", "num_rows is of type str"),
    ):
        with pytest.raises(InputError, match=says):
            l2p.BlockSource(blocks, num_rows)
    with pytest.raises(InputError, match="gives no block"):
        custom(l2p.BlockSource(lambda: iter(()), 5), logistic, START)
    with pytest.raises(InputError, match="came as LaidOut"):
        custom(custom(in_blocks(), logistic, START).rows, logistic, START)


def test_memory_holds_two_blocks_at_most():
    blocks_given = []

    def blocks():
        for _ in range(50):
            assert sum(reference() is not None for reference in blocks_given) <= 2
            block = np.zeros((10, NUM_FEATURES), np.float32)
            blocks_given.append(weakref.ref(block))
            yield block

    source = custom(l2p.BlockSource(blocks, 500), lambda w, row: w @ row, jnp.zeros(NUM_FEATURES)).rows
    assert sum(int(block.mask.sum()) for block in source.blocks()) == 500
    assert len(blocks_given) == 51
