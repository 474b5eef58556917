"""A number with a curve is a few hat functions of its value, and a linear model of them bends with it."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import BSpline
from sklearn.linear_model import LogisticRegression

import l2p
from l2p.base.errors import InputError
from l2p.release.prediction.unmet import FeatureSums, counted_as
from l2p.tables.schema import Encoding, Missing, Number, Schema, Target, read_rows
from l2p.tables.schema.curves import LEAST, MOST, hats, labels

BACK = Target("back", ("no", "yes"))
AGE = Number(0, 100, Missing(30, indicator=True), curve=5)
ENCODING = Encoding(Schema({"age": AGE, "dose": Number(-1, 3, curve=(-1, 0, 3))}, BACK))

#: Steps between knots, and a place among them from below the first to beyond the last.
steps = st.lists(st.floats(1e-3, 1e3), min_size=LEAST - 1, max_size=9)
shares = st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=9)


@settings(max_examples=100, deadline=None)
@given(steps, shares)
def test_hats_are_b_splines_of_degree_1_and_each_row_has_its_own(steps, shares):
    knots = np.cumsum([-7.0, *steps])
    values = knots[0] + np.array([*shares, 0.0, 1.0]) * (knots[-1] - knots[0])
    x = hats(values, knots)
    clipped = np.clip(values, knots[0], knots[-1])
    splines = BSpline.design_matrix(clipped, np.r_[knots[0], knots, knots[-1]], 1).toarray()
    np.testing.assert_allclose(x, splines, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(x, np.concatenate([hats(values[[row]], knots) for row in range(len(values))]))
    assert x.dtype == np.float32
    assert ((x > 0).sum(1) <= 2).all()
    np.testing.assert_allclose(x.sum(1), 1, atol=1e-6)
    squares = np.square(x).sum(1)
    assert squares.min() >= 0.5 - 1e-6
    assert squares.max() <= 1


def test_cells_that_are_missing_beyond_bounds_or_no_numbers_are_as_of_any_number():
    assert ENCODING.names == (
        *("age near 0", "age near 25", "age near 50", "age near 75", "age near 100", "age:missing"),
        *("dose near -1", "dose near 0", "dose near 3"),
    )
    ages, doses = np.array(["30", "?", "150", "ten", "inf"], object), np.array([-9, 0, 2.25, 0, 1e308])
    x, valid = ENCODING.features({"age": ages, "dose": doses})
    assert valid.tolist() == [True, True, True, False, False]
    expected = [[0, 0.8, 0.2, 0, 0, 0, 1, 0, 0], [0, 0.8, 0.2, 0, 0, 1, 0, 1, 0], [0, 0, 0, 0, 1, 0, 0, 0.25, 0.75]]
    np.testing.assert_array_equal(x[:3], np.float32(expected))
    assert not x[3:].any()


@settings(max_examples=100, deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e9), st.integers(LEAST, MOST))
def test_knots_have_names_that_tell_them_apart_and_say_where_they_are(low, width, count):
    knots = np.linspace(low, low + width, count)
    names = labels(knots)
    assert len(set(names)) == count
    assert (np.abs(np.array(names, float) - knots) <= np.diff(knots).min() / 2).all()


@pytest.mark.parametrize("curve", [LEAST - 1, MOST + 1, True, 8.0, "8", [0, 100], range(MOST + 1)], ids=repr)
def test_a_curve_of_too_few_or_too_many_knots_is_refused(curve):
    with pytest.raises(InputError, match="a curve has from 3 to 64 knots"):
        Number(0, 100, curve=curve)


@pytest.mark.parametrize(
    ("bounds", "curve", "phrase"),
    [
        ((0, 100), (0, 50, 90), "begin at 0 and end at 90, but values reach from 0 to 100"),
        ((0, 100), (0, 50, 50, 100), "must increase"),
        ((0, 100), (0, float("nan"), 100), "must be finite numbers"),
        ((None, None), (0, 50, 100), "bounds, which are private"),
        ((5, 5), 8, "leave no room between low and high"),
        ((1, 1 + 1e-15), 8, "too close for numbers to tell them apart"),
    ],
)
def test_knots_that_no_line_joins_are_refused(bounds, curve, phrase):
    with pytest.raises(InputError, match=phrase):
        Number(*bounds, curve=curve)


def test_a_mean_doubts_the_indicator_of_a_curve_and_no_knot_of_it():
    """How many rows are near a knot is not declared, so a small sum does not show that none was."""
    sums = np.array([400.0, 1.0, 500.0, 1.0, -2.0, 1.0, 30.0, 20.0, 400.0])
    matrix = counted_as(ENCODING.schema, FeatureSums(sums, 2.0))
    np.testing.assert_array_equal(matrix, np.diag([1, 1, 1, 1, 1, 0, 1, 1, 1]))


def test_a_linear_model_of_curves_rises_and_falls_where_one_of_lines_cannot(tmp_path):
    rng = np.random.default_rng(0)
    age, dose = rng.uniform(0, 100, 2000), rng.uniform(-1, 3, 2000)
    table = {"age": age, "dose": dose, "back": np.where(np.abs(age - 50) + 10 * dose > 35, "yes", "no")}
    schema = Schema({"age": Number(0, 100, curve=7), "dose": Number(-1, 3, curve=7)}, BACK)
    l2p.private_train(table, "noisygd", l2p.Budget(100, 1e-6), schema=schema, key=jax.random.key(0)).save(tmp_path)
    model = l2p.load_model(tmp_path)
    assert model.schema == schema
    lines = LogisticRegression().fit(np.column_stack([age, dose]), table["back"])
    of_lines = lines.score(np.column_stack([age, dose]), table["back"])
    assert (model.predict(table) == table["back"]).mean() > of_lines + 0.1
    knots = {"age": np.linspace(0, 100, 7), "dose": np.full(7, 1.0)}
    chances = model.predict_proba(knots)
    weights = np.asarray(model.params)[:7]
    np.testing.assert_allclose(np.diff(np.log(chances[:, 1] / chances[:, 0])), np.diff(weights), atol=1e-3)
    assert weights.argmin() == 3  # the curve is the weights of its hats


def test_bought_bounds_place_the_knots():
    columns = {"pay": Number.private(Missing(9), curve=3), "dose": Number(0, 1)}
    private = Schema(columns, BACK)
    schema = private.with_bounds({"pay": (-8.0, 8.0)})
    assert schema.columns["pay"] == Number(-8, 8, Missing(8), curve=3)
    rows = read_rows({"pay": ["4", "?"], "dose": [0, 1], "back": ["no", "yes"]}, Encoding(schema))
    assert rows.x.tolist() == [[0, 0.5, 0.5, 0], [0, 0, 1, 1]]


def test_two_columns_may_not_give_one_name():
    with pytest.raises(InputError, match="both give a feature named 'age near 50'"):
        Schema({"age": Number(0, 100, curve=3), "age near 50": Number(0, 1)}, BACK)
    # Where the knots of a private curve lie is not known before its bounds are bought.
    with pytest.raises(InputError, match="has a name as the knots of the curve of 'age' have"):
        Schema({"age": Number.private(curve=3), "age near 50": Number(0, 1)}, BACK)
