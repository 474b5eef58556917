import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

from l2p.base.errors import InputError
from l2p.models import Logistic, Quadratic, Softmax, Square
from meta_train.config import Plain
from meta_train.config.one_source import OneSource
from meta_train.evaluation import meta_test
from meta_train.recipes.tuned import config_for
from meta_train.tasks.family import TaskFamily
from meta_train.tasks.mixtures import Mixture
from meta_train.tasks.quadratics import OPTIMUM_LENGTH, QUADRATICS, TARGET_NOISE
from meta_train.tasks.sources import class_counts, families, kind_of
from meta_train.tasks.synthetic import SyntheticClasses
from meta_train.tasks.targets import from_table
from meta_train.training.starting_points import starting_point

MODEL = Logistic()


@pytest.fixture(scope="module")
def family() -> TaskFamily:
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.random((300, 6)), generator.random((300, 6)) < 0.4], 1).astype(np.float32)
    return TaskFamily.from_table(x, (x[:, 0] > 0.5).astype(np.float32))


@pytest.fixture(scope="module")
def sample(family):
    arguments = {"num_tasks": 12, "num_rows": 64, "num_features": 5, "log_signal": (1.0, 7.0)}
    return jax.jit(lambda key, power=1.0: family.sample(key, MODEL, **arguments, signal_power=power))


def test_only_binary_columns_of_both_kinds_become_labels(family):
    assert family.label_columns.tolist() == [6, 7, 8, 9, 10, 11]


@pytest.mark.slow
def test_features_stay_in_the_unit_interval_and_labels_are_binary(sample):
    batch = sample(jax.random.key(0))
    assert batch.rows.x.shape == (12, 64, 5)
    assert float(batch.rows.x.min()) >= 0.0
    assert float(batch.rows.x.max()) <= 1.0 + 1e-6
    assert set(np.unique(batch.rows.y)) == {0.0, 1.0}


@pytest.mark.slow
def test_budgets_cover_the_range_lowest_first(sample):
    signals = np.asarray(sample(jax.random.key(1)).log_signal)
    assert ((signals >= 1.0 + 0.5 * np.arange(12)) & (signals <= 1.5 + 0.5 * np.arange(12))).all()


@pytest.mark.slow
def test_a_power_of_the_range_moves_budgets_down_and_changes_nothing_else(sample):
    even, low = sample(jax.random.key(1)), sample(jax.random.key(1), 2.0)
    share = (np.asarray(even.log_signal) - 1.0) / 6.0
    np.testing.assert_allclose(low.log_signal, 1.0 + 6.0 * share**2, rtol=1e-5)
    assert jnp.array_equal(even.rows.x, low.rows.x)


@pytest.mark.slow
def test_same_key_same_tasks_and_another_key_other_tasks(sample):
    first, again, different = sample(jax.random.key(2)), sample(jax.random.key(2)), sample(jax.random.key(3))
    assert jnp.array_equal(first.rows.x, again.rows.x)
    assert not jnp.array_equal(first.rows.x, different.rows.x)


@pytest.mark.slow
def test_the_reference_solution_beats_every_constant_prediction(sample):
    batch = sample(jax.random.key(4))
    share = np.asarray(batch.rows.y.mean(1))
    entropy = -(share * np.log(share) + (1 - share) * np.log1p(-share))
    assert (np.asarray(batch.best_loss) < entropy + 1e-3).all()


@pytest.mark.slow
def test_a_table_without_binary_columns_still_makes_tasks():
    x = np.random.default_rng(1).random((200, 4)).astype(np.float32)
    family = TaskFamily.from_table(x, (x[:, 0] > 0.5).astype(np.float32))
    batch = jax.jit(lambda key: family.sample(key, MODEL, 3, 32, 3, (1.0, 2.0)))(jax.random.key(0))
    assert np.isfinite(np.asarray(batch.best_loss)).all()


def test_held_out_rows_are_not_training_rows():
    train, held_out = families("breast_cancer")
    rows = {row.tobytes() for row in np.asarray(train.x)}
    assert train.x.shape[0] + held_out.x.shape[0] == 569
    assert not rows & {row.tobytes() for row in np.asarray(held_out.x)}


def test_a_model_learns_the_kind_of_targets_that_a_source_has():
    assert OneSource(source="digits", model="softmax:10").one_model() == Softmax(10)
    assert OneSource(source="california", model="square").one_model() == Square()
    with pytest.raises(InputError, match="multiclass"):
        OneSource(source="digits").one_model()
    with pytest.raises(InputError, match="softmax:10"):
        OneSource(source="digits", model="softmax:3").one_model()


@pytest.mark.slow
def test_tasks_of_many_classes_keep_them_all_under_other_names():
    train, held_out = families("digits:features")
    assert (train.num_classes, train.max_features) == (10, 288)
    arguments = {"num_tasks": 6, "num_rows": 200, "log_signal": (1.0, 7.0)}
    own = jax.jit(lambda key: train.sample(key, Softmax(10), num_features=None, **arguments))(jax.random.key(0))
    assert own.rows.x.shape == (6, 200, 288)
    assert all(set(np.unique(labels)) <= set(range(10)) and len(np.unique(labels)) == 10 for labels in own.rows.y)
    assert (np.asarray(own.best_loss) < np.log(10)).all()
    drawn = jax.jit(lambda key: held_out.sample(key, Softmax(10), num_features=20, **arguments))(jax.random.key(1))
    assert drawn.rows.x.shape == (6, 200, 20)
    # The same rows, relabelled: labels of two tasks agree up to a permutation, where there is no noise.
    family = from_table(np.eye(4, dtype=np.float32), np.arange(4, dtype=np.float32), 4)
    draw = jax.jit(lambda key: family.draw(key, 200, None))
    assert len({tuple(np.asarray(draw(jax.random.key(seed)).x.argmax(1))) for seed in range(3)}) == 3
    names = set()
    for seed in range(12):
        rows = draw(jax.random.key(seed))
        table = np.zeros((4, 4))
        np.add.at(table, (np.asarray(rows.x).argmax(1), np.asarray(rows.y).astype(int)), 1)
        assert (table.max(1) > 0.7 * table.sum(1)).all()  # noise is at most a fifth, of which a quarter changes nothing
        names.add(tuple(table.argmax(1)))
    assert len(names) > 6


@pytest.mark.slow
def test_numbers_stay_in_the_unit_interval_and_can_be_learned():
    random = np.random.default_rng(4)
    x = random.random((500, 8)).astype(np.float32)
    family = from_table(x, x[:, 0] * 0.8, None)
    arguments = {"num_tasks": 16, "num_rows": 200, "num_features": 5, "log_signal": (1.0, 7.0)}
    batch = jax.jit(lambda key: family.sample(key, Square(), **arguments))(jax.random.key(0))
    assert 0.0 <= float(batch.rows.y.min()) <= float(batch.rows.y.max()) <= 1.0
    spread = 0.5 * np.asarray(batch.rows.y).var(1)
    assert np.median(np.asarray(batch.best_loss) / spread) < 0.8
    with pytest.raises(InputError, match="8 columns"):
        family.draw(jax.random.key(0), 8, 9)


@pytest.mark.slow
def test_tasks_of_many_classes_set_some_of_them_against_the_others():
    random = np.random.default_rng(2)
    y = random.integers(0, 4, 400).astype(np.float32)
    x = np.stack([y / 4, random.random(400).astype(np.float32)], 1).astype(np.float32)
    family = TaskFamily.from_table(x, y).with_columns(np.array([0, 1]))
    splits = set()
    for seed in range(30):
        label = np.asarray(family._grouped(jax.random.key(seed), family.y))
        groups = [set(label[y == group_label]) for group_label in range(4)]
        assert all(len(group) == 1 for group in groups)  # a class lies on one side
        assert set(label) == {0.0, 1.0}
        splits.add(tuple(next(iter(group)) for group in groups))
    assert len(splits) > 8


@pytest.fixture(scope="module")
def synthetic():
    arguments = {"num_tasks": 24, "num_rows": 300, "num_features": 6, "log_signal": (1.0, 7.0)}
    return [
        jax.jit(lambda key, source=source: source.sample(key, MODEL, **arguments)) for source in families("synthetic")
    ]


@pytest.mark.slow
def test_synthetic_features_are_of_many_kinds(synthetic):
    x = np.asarray(synthetic[0](jax.random.key(0)).rows.x)
    assert 0.0 <= x.min() <= x.max() <= 1.0
    binary = np.isin(x, (0.0, 1.0)).all(1)
    assert 0.2 < binary.mean() < 0.8
    assert binary.all(1).any() or binary.mean(1).max() > 0.8  # tasks that are (nearly) all indicators
    spread = x.std(1).max(1) / np.maximum(x.std(1).min(1), 1e-3)
    assert spread.max() > 3 > spread.min()
    varied = [task[:, task.std(0) > 0.05] for task in x]
    correlated = [np.abs(np.corrcoef(task.T) - np.eye(task.shape[1])).max() for task in varied]
    assert max(correlated) > 0.5
    assert min(correlated) < 0.25


@pytest.mark.slow
def test_synthetic_tasks_can_be_learned_and_are_not_all_even(synthetic):
    batch = synthetic[0](jax.random.key(1))
    share = np.asarray(batch.rows.y.mean(1))
    entropy = -(share * np.log(share) + (1 - share) * np.log1p(-share))
    gained = entropy - np.asarray(batch.best_loss)
    assert np.median(gained) > 0.03
    assert np.minimum(share, 1 - share).min() < 0.25


@pytest.mark.slow
def test_synthetic_numbers_lie_in_their_bounds_and_can_be_told_in_part():
    train, held_out = families("synthetic:numbers")
    arguments = {"num_tasks": 24, "num_rows": 300, "num_features": 6, "log_signal": (1.0, 7.0)}
    batch = jax.jit(lambda key: train.sample(key, Square(), **arguments))(jax.random.key(0))
    y = np.asarray(batch.rows.y)
    assert 0.0 <= y.min() <= y.max() <= 1.0
    explained = 1.0 - 2.0 * np.asarray(batch.best_loss) / y.var(1)
    assert explained.min() < 0.4 < 0.7 < explained.max() < 1.0
    assert y.std(1).max() > 2 * y.std(1).min()
    assert kind_of("synthetic:numbers") == "regression"
    with pytest.raises(InputError, match="not classes"):
        held_out.halves()


@pytest.mark.slow
def test_tasks_of_fewer_classes_are_of_rows_of_some():
    # Each row is a class of its own here: a task's rows show which of the table's classes it has.
    family = from_table(np.eye(6, dtype=np.float32), np.arange(6, dtype=np.float32), 6).with_num_classes(3)
    draw = jax.jit(jax.vmap(lambda key: family.draw(key, 64, None)))
    rows = draw(jax.random.split(jax.random.key(0), 20))
    classes = [set(np.unique(x.argmax(1))) for x in np.asarray(rows.x)]
    assert {len(some) for some in classes} == {3}
    assert len(set().union(*classes)) == 6
    assert set(np.unique(rows.y)) == {0.0, 1.0, 2.0}
    # Half of the tasks have no label noise: there, each class has a single label.
    pairs = [set(zip(x.argmax(1), y, strict=True)) for x, y in zip(np.asarray(rows.x), np.asarray(rows.y), strict=True)]
    assert min(map(len, pairs)) == 3
    assert family.with_num_classes(None) is family


@pytest.mark.slow
def test_tasks_of_more_classes_are_of_parts_that_a_linear_model_can_tell():
    x = np.random.default_rng(0).random((500, 8)).astype(np.float32)
    family = from_table(x, (x[:, 0] > 0.5).astype(np.float32), 2).with_num_classes(6)
    rows = jax.jit(jax.vmap(lambda key: family.draw(key, 400, None)))(jax.random.split(jax.random.key(0), 8))
    right = []
    for table, y in zip(np.asarray(rows.x), np.asarray(rows.y, int), strict=True):
        lines = np.column_stack([table, np.ones(400)])
        weights = np.linalg.lstsq(lines, np.eye(6)[y], rcond=None)[0]
        right.append(((lines @ weights).argmax(1) == y).mean())
        assert len(np.unique(y)) == 6
    assert max(right) > 0.6
    assert min(right) > 0.4
    with pytest.raises(InputError, match="multiples of 2"):
        family.with_num_classes(2 * 3 + 1)


@pytest.mark.slow
def test_classes_come_on_demand_where_tasks_are_drawn_with_any_number():
    table = from_table(np.eye(6, dtype=np.float32), np.arange(6, dtype=np.float32), 6)
    mixture = Mixture((table, SyntheticClasses(0))).with_num_classes(12)
    assert isinstance(mixture, Mixture)
    first, second = mixture.parts
    assert (first.num_classes * first.parts, second.num_classes) == (12, 12)
    with pytest.raises(InputError, match="cannot be drawn with 3 classes"):
        families("synthetic")[0].with_num_classes(3)


@pytest.mark.slow
def test_synthetic_classes_are_all_there_and_can_be_told_in_part():
    train, _ = families("synthetic:classes:4")
    arguments = {"num_tasks": 16, "num_rows": 300, "num_features": 6, "log_signal": (1.0, 7.0)}
    batch = jax.jit(lambda key: train.sample(key, Softmax(4), **arguments))(jax.random.key(0))
    shares = np.stack([np.bincount(y.astype(int), minlength=4) / 300 for y in np.asarray(batch.rows.y)])
    assert shares.shape == (16, 4)
    assert (shares > 0).mean() > 0.9
    entropy = -(shares * np.log(np.maximum(shares, 1e-9))).sum(1)
    gained = entropy - np.asarray(batch.best_loss)
    assert gained.min() < 0.12 < 0.4 < gained.max()
    assert (kind_of("synthetic:classes:4"), class_counts("synthetic:classes:4")) == ("multiclass", {4})
    assert class_counts("digits:features+synthetic:classes:4") == {10, 4}
    for source in ("synthetic:classes:", "synthetic:classes:2", "synthetic:classes:many"):
        with pytest.raises(InputError, match="how many classes"):
            kind_of(source)


@pytest.mark.slow
def test_rough_tasks_have_longer_tails_stronger_correlations_and_rarer_classes():
    def extremes(source):
        family = families(source)[0]
        rows = jax.jit(jax.vmap(lambda key: family.draw(key, 300, 4)))(jax.random.split(jax.random.key(1), 48))
        x, y = np.asarray(rows.x), np.asarray(rows.y)
        assert (x >= 0.0).all()
        assert (x <= 1.0).all()
        centred = (x - x.mean(1, keepdims=True)) / np.maximum(x.std(1, keepdims=True), 1e-6)
        values = np.linalg.svd(centred, compute_uv=False) ** 2
        tails = (x.max(1) / np.maximum(np.median(x, 1), 1e-6)).max(1)
        rare = np.array([np.bincount(labels.astype(int), minlength=3).min() for labels in y])
        return np.quantile(tails, 0.25), np.quantile(values[:, 0] / values.sum(1), 0.9), np.mean(rare < 5)

    smooth, rough = extremes("synthetic:classes:3"), extremes("synthetic:rough:classes:3")
    assert all(more > less for more, less in zip(rough, smooth, strict=True))
    assert (kind_of("synthetic:rough"), kind_of("synthetic:rough:numbers")) == ("binary", "regression")
    assert class_counts("synthetic:rough:classes:7") == {7}
    with pytest.raises(InputError):
        kind_of("rough")


@functools.cache
def of_style(source: str, num_rows: int, num_features: int):
    """Twelve tasks, as NumPy arrays."""
    family = families(source)[0]
    draw = jax.jit(lambda key: family.draw_several(key, 12, num_rows, num_features))
    return jax.tree.map(np.asarray, draw(jax.random.key(1)))


@pytest.mark.slow
def test_one_hot_tasks_have_categories_of_which_every_row_has_one_value():
    x = of_style("synthetic:one_hot:classes:5", 300, 12).x
    is_indicator = np.isin(x, (0.0, 1.0)).all(1)
    assert is_indicator.mean() > 0.7
    # Columns of categories sum to one, so that one-hot tables have as many linear dependencies as categories.
    tables = [table[:, indicators] for table, indicators in zip(x, is_indicator, strict=True)]
    ranks = [np.linalg.matrix_rank(np.column_stack([table, np.ones(300)])) for table in tables]
    assert np.mean([rank < table.shape[1] + 1 for rank, table in zip(ranks, tables, strict=True)]) > 0.9
    assert (np.concatenate([table.mean(0) for table in tables]) < 0.05).mean() > 0.1
    assert class_counts("synthetic:one_hot:classes:5") == {5}


@pytest.mark.slow
def test_a_linear_model_separates_the_classes_of_separable_tasks():
    def accuracies(source):
        rows = of_style(source, 300, 6)
        model = SGDClassifier(max_iter=300, tol=None, random_state=0)
        return [model.fit(x, y).score(x, y) for x, y in zip(rows.x, rows.y, strict=True) if 0.0 < y.mean() < 1.0]

    assert np.median(accuracies("synthetic:separable")) > 0.99 > 0.95 > np.median(accuracies("synthetic:rough"))


@pytest.mark.slow
def test_heavy_tails_leave_most_numbers_in_a_small_part_of_their_range():
    def middle(source):
        y = of_style(source, 300, 6).y
        return np.median(np.subtract(*np.quantile(y, [0.75, 0.25], axis=1)) / np.ptp(y, axis=1))

    assert middle("synthetic:heavy:numbers") < 0.6 * middle("synthetic:numbers")
    assert kind_of("synthetic:heavy:numbers") == "regression"


@pytest.mark.slow
def test_halves_make_the_same_tasks_of_other_rows():
    family = families("synthetic")[1]
    first, second = family.halves()
    x, second_half = (task.draw(jax.random.key(3), 2000, 5) for task in (first, second))
    np.testing.assert_allclose(x.x.mean(0), second_half.x.mean(0), atol=0.08)
    assert not jnp.array_equal(x.x, second_half.x)
    # What is learned on one half holds on the other.
    weights = np.linalg.lstsq(np.asarray(x.x) - 0.5, np.asarray(x.y) - 0.5, rcond=None)[0]
    fits = [np.corrcoef((np.asarray(half.x) - 0.5) @ weights, half.y)[0, 1] for half in (x, second_half)]
    assert fits[1] > fits[0] - 0.1


@pytest.mark.slow
@pytest.mark.parametrize("source", ["synthetic:classes:3", "digits"])
def test_halves_of_several_classes_are_the_same_tasks_of_other_rows(source):
    held_out = families(source)[1].with_num_classes(3)
    first, second = (
        jax.jit(half.draw, static_argnums=(1, 2))(jax.random.key(3), 1000, 5) for half in held_out.halves()
    )
    assert not jnp.array_equal(first.x, second.x)
    # Least squares for each class's indicator, fitted on one half, also classifies the other half.
    table, second_table = (np.column_stack([half.x, np.ones(1000)]) for half in (first, second))
    weights = np.linalg.lstsq(table, np.eye(3)[np.asarray(first.y, int)], rcond=None)[0]
    right = [((lines @ weights).argmax(1) == half.y).mean() for lines, half in ((table, first), (second_table, second))]
    assert right[1] > right[0] - 0.15
    assert right[1] > 0.4


@pytest.mark.slow
def test_a_mixture_draws_from_each_source_that_has_the_columns():
    train, held_out = families("breast_cancer+digits:rest:3,5+synthetic")
    assert isinstance(train, Mixture)
    digits = train.parts[1]
    assert float(jnp.std(digits.x, axis=0).min()) > 0.05  # no border pixels
    kinds, draw = set(), jax.jit(lambda key: train.draw(key, 64, 8))
    for seed in range(20):
        rows = draw(jax.random.key(seed))
        pixels = np.asarray(rows.x) * 16
        kinds.add(bool(np.allclose(pixels, pixels.round(), atol=1e-4)))  # pixels are sixteenths
        assert set(np.unique(rows.y)) <= {0.0, 1.0}
    assert kinds == {True, False}
    # Breast cancer has 30 columns, the digits more.
    assert jax.eval_shape(lambda key: train.draw(key, 8, 40), jax.random.key(0)).x.shape == (8, 40)
    assert not jnp.array_equal(train.parts[0].x[:8], held_out.parts[0].x[:8])
    with pytest.raises(InputError, match="num_features"):
        train.draw(jax.random.key(0), 8, None)
    with pytest.raises(InputError, match="two kinds"):
        kind_of("adult+random_quadratics")


@pytest.mark.slow
def test_frozen_features_of_all_digits_but_some_are_told_apart_in_two():
    train, held_out = families("digits:rest:3,5:features:18")
    assert kind_of("digits:rest::features:18+synthetic") == "binary"
    assert train.classes == (0, 1, 2, 4, 6, 7, 8, 9)
    assert train.x.shape[1] == 18
    rows = jax.jit(held_out.draw, static_argnums=(1, 2))(jax.random.key(0), 64, 12)
    assert rows.x.shape == (64, 12)
    assert set(np.unique(rows.y)) == {0.0, 1.0}


@pytest.mark.slow
def test_every_part_of_a_mixture_lends_as_many_tasks_in_any_order():
    y = np.arange(40) % 2
    halves, ends = (TaskFamily.from_table(np.full((40, 5), value), y) for value in (0.5, 0.0))
    # Mixing or flipping columns of halves leaves halves, and none of zeros.
    draw = jax.jit(lambda key: jnp.abs(Mixture((halves, ends)).draw_several(key, 12, 8, 4).x - 0.5).max((1, 2)) < 0.1)
    drawn = np.stack([draw(jax.random.key(seed)) for seed in range(20)])
    assert (drawn.sum(1) == 6).all()
    assert len(np.unique(drawn, axis=0)) > 10
    odd = jax.jit(lambda key: Mixture((halves, ends, ends)).draw_several(key, 7, 8, 4).x)
    counts = {int((np.abs(odd(jax.random.key(seed)) - 0.5).max((1, 2)) < 0.1).sum()) for seed in range(20)}
    assert counts == {2, 3}


@pytest.fixture(scope="module")
def quadratics():
    arguments = {"num_tasks": 6, "num_rows": 400, "num_features": 4, "log_signal": (1.0, 7.0)}
    return [
        jax.jit(lambda key, source=source: source.sample(key, Quadratic(), **arguments))
        for source in families(QUADRATICS)
    ]


@pytest.mark.slow
def test_random_quadratics_have_their_own_optimum_within_the_stated_ranges(quadratics):
    batch = quadratics[0](jax.random.key(0))
    assert float(batch.rows.x.min()) >= 0.0
    assert float(batch.rows.x.max()) <= 1.0
    optima = []
    for task in range(6):
        lines, y = 2.0 * np.asarray(batch.rows.x[task], np.float64) - 1.0, np.asarray(batch.rows.y[task], np.float64)
        assert len(np.unique(np.abs(lines).max(0).round(2))) > 1  # coordinates of different curvature
        optimum = np.linalg.lstsq(lines, y, rcond=None)[0]
        best = 0.5 * np.square(lines @ optimum - y).mean()
        np.testing.assert_allclose(batch.best_loss[task], best, rtol=1e-2)
        assert 0.9 * 0.5 * TARGET_NOISE[0] ** 2 < best < 1.2 * 0.5 * TARGET_NOISE[1] ** 2
        assert OPTIMUM_LENGTH[0] - 0.2 < np.linalg.norm(optimum) < OPTIMUM_LENGTH[1] + 0.2
        optima.append(optimum / np.linalg.norm(optimum))
    assert np.abs(np.triu(np.array(optima) @ np.array(optima).T, 1)).max() < 0.999


@pytest.mark.slow
def test_held_out_quadratics_are_other_problems_at_the_same_budgets(quadratics):
    first, again, held_out = (sample(jax.random.key(2)) for sample in (quadratics[0], *quadratics))
    assert jnp.array_equal(first.rows.y, again.rows.y)
    assert jnp.array_equal(first.log_signal, held_out.log_signal)
    rows = {row.tobytes() for row in np.asarray(first.rows.x).reshape(-1, 4)}
    assert not any(row.tobytes() in rows for row in np.asarray(held_out.rows.x).reshape(-1, 4))


def test_quadratics_are_tuned_for_models_of_numbers_and_not_centred():
    config = config_for("noisygd", "quadratic", QUADRATICS)
    assert (config.name, config.tasks.num_features) == ("noisygd-tuned-quadratic-random_quadratics", (5, 20))
    assert config.tasks.one_model() == Quadratic()
    with pytest.raises(InputError, match="regression"):
        OneSource(source=QUADRATICS).one_model()
    with pytest.raises(InputError, match="binary"):
        OneSource(model="quadratic").one_model()
    assert not starting_point(Plain.of("x", "control", source=QUADRATICS, model="quadratic")).purchases
    assert starting_point(Plain.of("x", "control")).purchases
    with pytest.raises(InputError, match="no table"):
        families(QUADRATICS)[0].draw(jax.random.key(0), 8, None)
    with pytest.raises(InputError, match="no accuracy"):
        meta_test.draw(QUADRATICS, Quadratic(), 5)
