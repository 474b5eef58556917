"""Tasks of any source that are read in their first half and scored on their last: other rows of the same task."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import MODELS
from meta_train.config import EveryModel
from meta_train.config.many_sources import ManySources
from meta_train.evaluation.budgets import ByMu
from meta_train.evaluation.scores import evaluate, whole_run
from meta_train.tasks.family import COPIES, TaskFamily
from meta_train.tasks.fresh_rows import Halved
from meta_train.tasks.mixtures import Mixture
from meta_train.tasks.reference import best_loss
from meta_train.tasks.spans import FOLDS, STRIDES, Span, choose_rows, draw_rows
from meta_train.tasks.synthetic import Synthetic, SyntheticClasses, SyntheticNumbers
from meta_train.tasks.targets import Classes, Numbers
from meta_train.training.starting_points import starting_point
from tests.conftest import EVERY_CASE

NUM, COLUMNS, FEATURES = 120, 3, 3


def table(first: int) -> tuple[jnp.ndarray, jnp.ndarray]:
    """Every column tells a row's number, from `first` on; and classes."""
    numbers = (first + np.arange(NUM)) / 1000
    return jnp.asarray(np.tile(numbers[:, None], COLUMNS), jnp.float32), jnp.arange(NUM, dtype=jnp.float32) % 4


def two(first: int = 0) -> TaskFamily:
    x, y = table(first)
    return TaskFamily(x, y // 2, jnp.zeros(0, jnp.int32), plain=1.0)


def four(first: int = 0) -> Classes:
    return Classes(*table(first), num_classes=4, plain=1.0)


def numbers(first: int = 0) -> Numbers:
    x, y = table(first)
    return Numbers(x, y / 4, plain=1.0)


FAMILIES = {
    "two classes": two(),
    "four classes": four(),
    "some of four classes": four().with_num_classes(3),
    "numbers": numbers(),
    "stacked": Mixture((two(), two(300)), frozenset({0, 1})),
    "stacked, some classes": Mixture((four(), four(300)), frozenset({0, 1})).with_num_classes(3),
}
#: Those that "stacked, some classes" is both of: .ci/full alone runs them.
ALIKE = ("some of four classes", "stacked")


def numbers_of(rows) -> list[set[int]]:
    """The numbers of the rows of each task."""
    return [set(np.round(task[:, 0] * 1000).astype(int)) for task in np.asarray(rows.x)]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in FAMILIES if EVERY_CASE or name not in ALIKE])
def test_no_row_is_read_and_scored_and_every_row_has_its_turn(name):
    family = Halved(FAMILIES[name].with_rows_apart())
    draw = jax.jit(lambda key: family.draw_both(key, 4, 200, FEATURES))
    rows_so_far: tuple[set, set] = set(), set()
    for seed in range(20):
        read, scored = draw(jax.random.key(seed))
        assert read.x.shape == scored.x.shape == (4, 200, FEATURES)
        for read_numbers, scored_numbers in zip(numbers_of(read), numbers_of(scored), strict=True):
            assert not read_numbers & scored_numbers
            assert len(scored_numbers) <= NUM // FOLDS
        rows_so_far[0].update(*numbers_of(read))
        rows_so_far[1].update(*numbers_of(scored))
    every = {first + row for first in ((0, 300) if "stacked" in name else (0,)) for row in range(NUM)}
    assert rows_so_far[0] == rows_so_far[1] == every


@pytest.mark.long
def test_without_being_told_halves_share_rows():
    # So the test above can fail.
    read, scored = jax.jit(lambda key: Halved(two()).draw_both(key, 4, 200, FEATURES))(jax.random.key(0))
    assert all(
        read_numbers & scored_numbers
        for read_numbers, scored_numbers in zip(numbers_of(read), numbers_of(scored), strict=True)
    )


def test_rows_are_of_their_table():
    x, span = jnp.zeros((50, 2)), Span(*(jnp.array(number) for number in (10, 20, 2, 0)))
    for seed in range(5):
        index = np.asarray(draw_rows(jax.random.key(seed), 400, x, span, apart=True).index)
        assert set(index) == set(range(10, 30))
        assert len(set(index[200:])) == 20 // FOLDS


def test_distinct_rows_count_once_within_each_half():
    x, span = jnp.zeros((90, 2)), Span(*(jnp.array(number) for number in (10, 60, 2, 0)))
    draw = jax.jit(lambda key: draw_rows(key, 100, x, span, apart=True, distinct=True))
    among = jnp.arange(90) % 2 == 0
    choose = jax.jit(lambda key: choose_rows(key, 100, x, span, among, apart=True, distinct=True))
    orders = set()
    for seed in range(8):
        for drawn, size in ((draw(jax.random.key(seed)), 60), (choose(jax.random.key(seed)), 30)):
            index, counts = np.asarray(drawn.index), np.asarray(drawn.mask) > 0
            halves = [index[:50][counts[:50]], index[50:][counts[50:]]]
            assert [len(set(half)) for half in halves] == [len(half) for half in halves]
            # Three quarters are read, as far as there is space for them, and the others scored.
            assert abs(len(halves[0]) - min(50, 0.75 * size)) <= 4
            assert abs(len(halves[1]) - 0.25 * size) <= 4
            assert set(halves[0]) | set(halves[1]) <= set(range(10, 70))
            assert not set(halves[0]) & set(halves[1])
        orders.add(tuple(index))
    assert len(orders) == 8
    assert all(all(stride % divisor for divisor in range(2, 1001)) for stride in STRIDES)


def test_a_half_without_a_row_of_the_classes_takes_from_all_of_them():
    x, among = jnp.zeros((50, 2)), jnp.zeros(50, bool).at[jnp.array([10, 11])].set(True)
    choose = jax.jit(lambda key: choose_rows(key, 40, x, None, among, apart=True).index)
    chosen = [np.asarray(choose(jax.random.key(seed))) for seed in range(20)]
    assert all(set(index) <= {10, 11} for index in chosen)
    # Two rows beside each other are nearly always in the same half.
    assert any(set(index[:20]) == set(index[20:]) for index in chosen)


@pytest.mark.slow
@pytest.mark.long(but=["family1"])
@pytest.mark.parametrize("family", [Synthetic(0), SyntheticNumbers(0), SyntheticClasses(0, num_classes=3)])
def test_synthetic_tasks_are_drawn_once_and_cut(family):
    halved = Halved(family.with_rows_apart())
    draw = jax.jit(lambda key: (family.draw_several(key, 2, 60, 5), *halved.draw_both(key, 2, 30, 5)))
    task, read, scored = draw(jax.random.key(3))
    np.testing.assert_array_equal(jnp.concatenate([read.x, scored.x], 1), task.x)
    np.testing.assert_array_equal(jnp.concatenate([read.y, scored.y], 1), task.y)


@pytest.fixture(scope="module")
def batches():
    """Batches by the share of tasks that are scored on fresh rows."""
    family = Halved(Synthetic(0))
    draw = jax.jit(
        lambda shares: family.sample(
            jax.random.key(0), MODELS["logistic"], 24, 100, 12, (1.0, 9.0), 1e-4, fresh_shares=shares
        )
    )
    return {shares: draw(shares) for shares in ((1.0, 0.0), (1.0, 1.0), (0.0, 0.0))}


@pytest.mark.long
def test_tasks_with_little_signal_are_scored_on_fresh_rows_more_often(batches):
    batch = batches[1.0, 0.0]
    fresh = ~np.asarray((batch.rows.x == batch.scored.x).all((1, 2)))
    assert fresh[:6].mean() > 0.5 > fresh[-6:].mean()
    for shares in ((1.0, 1.0), (0.0, 0.0)):
        apart = ~np.asarray((batches[shares].rows.x == batches[shares].scored.x).all((1, 2)))
        assert (apart == bool(shares[0])).all()
        # What a task is does not depend on where it is scored.
        np.testing.assert_array_equal(batches[shares].rows.x, batch.rows.x)
    expected = np.where(fresh, batches[1.0, 1.0].best_loss, batches[0.0, 0.0].best_loss)
    np.testing.assert_allclose(batch.best_loss, expected, rtol=1e-5)


@pytest.mark.long
def test_the_loss_to_compare_with_can_be_reached_on_fresh_rows(batches):
    least = jax.jit(jax.vmap(lambda rows: best_loss(MODELS["logistic"], rows, 1e-4)))
    on_read, on_fresh = batches[0.0, 0.0], batches[1.0, 1.0]
    np.testing.assert_allclose(on_read.best_loss, least(on_read.rows), rtol=1e-4)
    # Above the minimum there, which no run that reads other rows reaches.
    minimum = np.asarray(least(on_fresh.scored))
    assert (np.asarray(on_fresh.best_loss) > minimum).all()
    assert np.mean(np.asarray(on_fresh.best_loss) - minimum) > 0.02


@pytest.mark.long
def test_tasks_scored_on_fresh_rows_may_have_fewer_rows_and_say_so():
    family = Halved(two().with_rows_apart(distinct=True))
    arguments = {"fresh_shares": (1.0, 0.0), "least_rows": 0.2}
    draw = jax.jit(lambda key: family.sample(key, MODELS["logistic"], 24, 200, FEATURES, (1.0, 9.0), **arguments))
    batch = draw(jax.random.key(0))
    counts, is_fresh = np.asarray(batch.rows.mask.sum(1)), np.asarray(batch.copies) == 1.0
    # The table has 90 rows to read and 30 to score.
    assert (counts[~is_fresh] == 90).all()
    assert (counts[is_fresh] >= 40).all()
    assert counts[is_fresh].min() < 55 < 80 < counts[is_fresh].max()
    rows, setups = ByMu("gdp").simulate(batch, MODELS["logistic"], capped=True)
    np.testing.assert_allclose(rows.mask.sum(1), setups.num_rows)
    np.testing.assert_allclose(setups.num_rows, counts * np.where(is_fresh, 1.0, COPIES))
    np.testing.assert_allclose(setups.log_signal, batch.log_signal, rtol=1e-4)


@pytest.mark.parametrize("fields", [{"least_rows": 0.0}, {"fresh_shares": None}, {"shape_rows": (64,)}])
def test_rows_that_cannot_be_are_refused(fields):
    options = {"least_rows": 0.5, "fresh_shares": (1.0, 0.0), **fields}
    with pytest.raises(InputError, match=next(iter(fields)).replace("fresh_shares", "least_rows")):
        ManySources(num_features=(3, 4), sources=("synthetic",) * 2, models=("logistic",) * 2, **options)


@pytest.mark.long
def test_a_run_is_scored_where_it_is_told_to_be():
    config = EveryModel.of(
        "x", "noisygd", num_features=(4,), sources=("synthetic",), models=("logistic",), fresh_shares=(1.0, 1.0),
        rows=64, tasks=8,
    )  # fmt: skip
    model, family = MODELS["logistic"], Halved(Synthetic(0))
    draw = jax.jit(lambda key: family.sample(key, model, **config.tasks.arguments(config.shapes[0])))
    batch, protector = draw(jax.random.key(0)), starting_point(config).replace(num_steps=5)
    rows, setups = ByMu("gdp").simulate(batch, model, capped=True)
    keys = jax.random.split(jax.random.key(1), 8)
    judge = jax.jit(lambda key, batch: evaluate(protector, key, batch, model, ByMu("gdp"))["score"])
    task = [jax.tree.map(lambda leaf: leaf[5], part) for part in (rows, batch.best_loss, setups, keys, batch.scored)]
    alone = jax.jit(lambda *task: whole_run(protector, *task)[0].value)
    on_read, on_scored = alone(*task[:-1]), alone(*task)
    assert float(judge(jax.random.key(1), batch)[5]) == pytest.approx(float(on_scored), rel=1e-4)
    assert abs(float(on_read) - float(on_scored)) > 1e-3


@pytest.mark.parametrize("shares", [(-0.1, 1.0), (0.0, 1.5), (float("nan"), 1.0), (1.0,)])
def test_shares_are_shares(shares):
    with pytest.raises(InputError, match="fresh_shares is"):
        EveryModel.of("x", "noisygd", num_features=(8,), sources=("adult",), models=("svm",), fresh_shares=shares)
