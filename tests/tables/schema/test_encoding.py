"""A row's encoding depends on that row and the schema alone, and a prediction comes back as the word it was."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from l2p.base.errors import InputError
from l2p.tables.schema import Category, Encoding, Ignore, Missing, Number, Schema, Target, read_rows
from l2p.tables.schema.cells import MISSING, OTHER, codes, numbers

SCHEMA = Schema(
    {
        "age": Number(0, 100, Missing(50, indicator=True)),
        "dose": Number(-1, 1),
        "ward": Category(("a", "b"), missing=Missing(indicator=True)),
        "stay": Category((1, 2, 3), ordered=True, missing=Missing(2)),
        "smokes": Category((False, True)),
        "id": Ignore(),
    },
    Target("back", ("no", "yes"), aliases={"yes.": "yes"}),
    missing_words=("?", "NA", "-999"),
)
ENCODING = Encoding(SCHEMA)

texts = st.sampled_from(
    ["", " ", "?", "NA", "-999", "-999.0", "0.5", " 7", "1e999", "nan", "inf", "1.0", "x", "true", "a "]
)
cells = st.one_of(
    texts, st.none(), st.booleans(), st.floats(), st.integers(-3, 10**20), st.sampled_from(["no", "yes."])
)
rows = st.lists(st.tuples(*[cells] * 7), min_size=1, max_size=12)
ROWS = (*SCHEMA.columns, "back")


def block(raw):
    columns = {}
    for name, column in zip(ROWS, zip(*raw, strict=True), strict=True):
        columns[name] = np.empty(len(raw), object)
        columns[name][:] = column
    return columns


def encoded(raw):
    encoded_rows = ENCODING.rows(block(raw))
    return np.column_stack([encoded_rows.x, encoded_rows.y, encoded_rows.mask])


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(rows, st.randoms())
def test_a_row_alone_is_the_row_in_any_order_and_any_block(raw, random):
    together = encoded(raw)
    np.testing.assert_array_equal(together, np.concatenate([encoded([row]) for row in raw]))
    order = list(range(len(raw)))
    random.shuffle(order)
    np.testing.assert_array_equal(encoded([raw[place] for place in order]), together[order])


@settings(max_examples=100, deadline=None)
@given(rows)
def test_rows_are_within_bounds_and_null_rows_are_zero(raw):
    table = ENCODING.rows(block(raw))
    assert table.x.shape == (len(raw), len(ENCODING.names))
    assert {part.dtype for part in (table.x, table.y, table.mask)} == {np.dtype(np.float32)}
    assert (table.x >= 0).all() and (table.x <= 1).all()  # noqa: PT018
    assert np.isin(table.mask, (0, 1)).all() and np.isin(table.y, (0, 1)).all()  # noqa: PT018
    null = table.mask == 0
    assert not table.x[null].any()
    assert not table.y[null].any()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.floats(), st.sampled_from([1.0, 2.0, -999.0])), min_size=1, max_size=9))
def test_a_column_of_numbers_is_read_as_its_objects_are(column):
    as_numbers, as_objects = np.array(column), np.array([*column, None], object)[:-1]
    np.testing.assert_array_equal(numbers(as_numbers, {"-999"}), numbers(as_objects, {"-999"}))
    for values in (("1", "2"), (1, 2), (False, True)):
        np.testing.assert_array_equal(codes(as_numbers, values, {"-999"}), codes(as_objects, values, {"-999"}))


def test_features_are_named_and_placed_as_documented():
    assert ENCODING.names == (
        *("age", "age:missing", "dose", "ward=a", "ward=b", "ward:missing"),
        *("stay", "smokes=false", "smokes=true"),
    )
    x, valid = ENCODING.features(
        block(
            [("25", "0", "b", "3", "True", "", ""), ("?", 5, "z", "9", "maybe", 1, 1), (200, -9, None, None, 0, 1, 1)]
        )
    )
    assert valid.all()
    np.testing.assert_array_equal(
        x,
        [
            [0.25, 0, 0.5, 0, 1, 0, 1, 0, 1],
            [0.5, 1, 1, 0.5, 0.5, 0, 0.5, 0.5, 0.5],
            [1, 0, 0, 0.5, 0.5, 1, 0.5, 1, 0],
        ],
    )


def test_a_cell_of_which_nothing_is_known_is_the_average_of_the_declared_values():
    columns = {
        "ward": Category(("a", "b", "c"), shares=(2, 1, 1), other=True),
        "stay": Category((1, 2, 3), ordered=True, shares=(1, 1, 0), missing=Missing(indicator=True)),
    }
    encoding = Encoding(Schema(columns, Target("back", ("no", "yes"))))
    assert encoding.names == ("ward=a", "ward=b", "ward=c", "ward:other", "stay", "stay:missing")
    x, _ = encoding.features({"ward": np.array(["z", "b"], object), "stay": np.array(["9", None], object)})
    assert x.tolist() == [[0.5, 0.25, 0.25, 1, 0.25, 0], [0, 1, 0, 0, 0.25, 1]]


@pytest.mark.parametrize("cell", ["", "?", None, np.nan, "abc", "inf", -np.inf, "12,5"])
def test_a_number_that_is_none_makes_a_null_row_or_is_refused(cell):
    raw = [("25", cell, "b", "3", "True", "", "yes"), ("25", "0", "b", "3", "True", "", "yes")]
    assert ENCODING.rows(block(raw)).mask.tolist() == [0, 1]
    with pytest.raises(InputError, match="column 'dose' has cells that are missing, infinite or no numbers"):
        ENCODING.rows(block(raw), "refuse")
    assert ENCODING.rows(block(raw[1:]), "refuse").mask.tolist() == [1]


def test_a_table_that_refuses_invalid_rows_is_encoded_once(monkeypatch):
    names, column = [], Encoding.column
    monkeypatch.setattr(Encoding, "column", lambda self, name, block: names.append(name) or column(self, name, block))
    data = block([("25", "0", "b", "3", "True", "", "yes")])
    assert read_rows(data, ENCODING, "refuse").mask.tolist() == [1]
    assert names == ["age", "dose", "ward", "stay", "smokes"]


def test_decimal_commas_of_features_and_target_apart_are_read_once():
    # Read twice, 7,125 would become 7.125, and that 7125.
    schema = Schema({"dose": Number(0, 10)}, Target("price", bounds=(0, 10)), decimal=",")
    rows = read_rows(({"dose": ["7,125", "2,5"]}, ["1,125", "10"]), Encoding(schema))
    np.testing.assert_array_equal(rows.x[:, 0], np.float32([0.7125, 0.25]))
    np.testing.assert_array_equal(rows.y, np.float32([0.1125, 1]))


def test_a_label_that_is_not_declared_makes_a_null_row_or_is_refused():
    raw = [("25", 0, "b", "3", "True", "", label) for label in ("yes", "yes.", "no", " no ", "perhaps", "")]
    table = ENCODING.rows(block(raw))
    assert table.y.tolist() == [1, 1, 0, 0, 0, 0]
    assert table.mask.tolist() == [1, 1, 1, 1, 0, 0]
    with pytest.raises(InputError, match="labels other than 'no', 'yes'"):
        ENCODING.rows(block(raw), "refuse")


def test_cells_that_mean_a_declared_value_are_that_value():
    same = np.array([1, 1.0, "1", " 1.0", True, "x", None, "?"], object)
    assert codes(same, (0, 1), {"?"}).tolist() == [1, 1, 1, 1, 1, OTHER, MISSING, MISSING]
    assert codes(same, ("0", "1"), {"?"}).tolist() == [1, 1, 1, 1, 1, OTHER, MISSING, MISSING]
    truths = np.array([True, "True", "TRUE", 1, "1", np.True_, "yes"], object)
    assert codes(truths, (False, True)).tolist() == [1, 1, 1, 1, 1, 1, OTHER]
    assert codes(np.array([False, True]), ("False", "True")).tolist() == [0, 1]
    assert codes(np.array(["?"], object), ("?", "a"), {"?"}).tolist() == [0]  # what is declared is not missing


@pytest.mark.parametrize(
    ("target", "predicted", "labels"),
    [
        (Target("y", ("lo", "hi")), [1.0, 0.0], ["hi", "lo"]),
        (Target("y", (3, 5, 9)), [2, 0], [9, 3]),
        (Target("y", (False, True)), [1, 0], [True, False]),
        (Target("y", bounds=(100, 300)), [0.5, 0.0], [200.0, 100.0]),
    ],
)
def test_predictions_come_back_in_words_and_units(target, predicted, labels):
    encoding = Encoding(Schema({"age": Number(0, 1)}, target))
    assert encoding.decode(np.array(predicted)).tolist() == labels
    y, valid = encoding.targets({"y": np.array(labels, object)})
    assert valid.all()
    np.testing.assert_allclose(y, predicted)


def test_features_need_no_target_and_no_ignored_column():
    alone = {name: cells for name, cells in block([("1", 0, "b", 1, 1, "", "")]).items() if name not in ("back", "id")}
    np.testing.assert_array_equal(ENCODING.features(alone)[0], encoded([("1", 0, "b", 1, 1, "", "no")])[:, :-2])
    with pytest.raises(InputError, match="has no column 'back'"):
        ENCODING.rows(alone)


def test_private_bounds_are_bought_before_anything_is_scaled():
    with pytest.raises(InputError, match="bounds of column 'dose' are private"):
        Encoding(Schema({"dose": Number.private()}, Target("y", bounds=(0, 1))))
