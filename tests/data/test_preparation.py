"""Rows to learn from: how they are scaled and labelled, one by one, and that no refusal quotes a private cell."""

import csv
import itertools

import numpy as np
import pytest

from l2p.data import Preparation, Table, prepare
from l2p.task import RowSource
from tests.data.ward import BOUNDS, refusal, table


def test_features_are_scaled_and_clipped():
    rows = prepare(table(), "label", BOUNDS)
    np.testing.assert_array_equal(rows.x, np.float32([[0.25, 0.5], [0.5, 0], [1, 1]]))
    np.testing.assert_array_equal(rows.y, [0, 1, 1])
    np.testing.assert_array_equal(rows.mask, [1, 1, 1])
    assert all(type(part) is np.ndarray and part.dtype == np.float32 for part in (rows.x, rows.y, rows.mask))


def test_huge_cells_are_clipped_like_others():
    rows = prepare(table(ages=(1e308, -1e308, 0)), "label", BOUNDS | {"age": (-1e307, 1e307)})
    np.testing.assert_array_equal(rows.x[:, 0], [1, 0, 0.5])


DECLARED = [((0, 1, 1), None, (0, 1, 1)), ((-1, 1, -1), None, (0, 1, 0)), ((1, 1, 1), None, (1, 1, 1))]
DECLARED += [((3, 5, 3), (3, 5), (0, 1, 0)), ((3, 5, 3), (5, 3), (1, 0, 1))]


@pytest.mark.parametrize(("labels", "classes", "expected"), DECLARED)
def test_labels_follow_the_declared_classes(labels, classes, expected):
    np.testing.assert_array_equal(prepare(table(labels), "label", BOUNDS, classes).y, expected)


NULL = [((0, 77, 1), None), ((3, 77, 5), (3, 5)), ((0, np.nan, 1), None), ((0, np.inf, 1), (0, 1))]


@pytest.mark.parametrize(("labels", "classes"), NULL)
def test_labels_outside_the_classes_are_null_rows(labels, classes):
    rows = prepare(table(labels), "label", BOUNDS, classes, on_invalid="null")
    np.testing.assert_array_equal(rows.y, [0, 0, 1])
    np.testing.assert_array_equal(rows.mask, [1, 0, 1])
    assert not rows.x[1].any()


@pytest.mark.parametrize("labels", [(0, 77, 1), (-1, 0, 1), (0, np.nan, 1), (0, 0.5, 1)])
def test_labels_outside_the_classes_are_refused_unquoted(labels):
    message = refusal(prepare, table(labels), "label", BOUNDS)
    assert "target 'label' has labels other than 0 and 1, or -1 and 1" in message
    assert "77" not in message
    assert "0.5" not in message
    assert "other than 2 and 4" in refusal(prepare, table(labels), "label", BOUNDS, (2, 4))


@pytest.mark.parametrize("cell", [np.nan, np.inf, -np.inf])
def test_invalid_features_are_refused_or_null(cell):
    broken = table(doses=(0, cell, 1))
    assert "column 'dose'" in refusal(prepare, broken, "label", BOUNDS)
    rows = prepare(broken, "label", BOUNDS, on_invalid="null")
    np.testing.assert_array_equal(rows.mask, [1, 0, 1])
    np.testing.assert_array_equal(rows.x, np.float32([[0.25, 0.5], [0, 0], [1, 1]]))
    np.testing.assert_array_equal(rows.y, [0, 0, 1])


def test_a_row_is_null_whatever_the_others_are():
    rows, others = table(labels=(0, 2, -1), doses=(0, 1, np.nan)), table(labels=(-1, 7, 1), doses=(5, 5, 5))
    alone = prepare(rows, "label", BOUNDS, on_invalid="null")
    both = Table(rows.columns, np.concatenate([others.values, rows.values]))
    beside = prepare(both, "label", BOUNDS, on_invalid="null")
    for part in ("x", "y", "mask"):
        np.testing.assert_array_equal(getattr(beside, part)[3:], getattr(alone, part))


def test_missing_and_surplus_bounds_are_refused():
    message = refusal(prepare, table(), "label", {"dose": (0, 1)})
    why = "reading them off private rows would leak; declare [low, high] from public knowledge"
    assert message == f"bounds are missing for column 'age': {why}"
    assert "no column 'agee'" in refusal(prepare, table(), "label", BOUNDS | {"agee": (0, 1)})
    # One declared name does not prove that there is a header, so the other names are only counted.
    assert refusal(prepare, table(), "label", {}) == f"bounds are missing for 2 columns: {why}"
    wide = Table((*"abcdefgh", "label"), np.zeros((1, 9)))
    message = refusal(prepare, wide, "label", {"a": (0, 1)})
    assert message == f"bounds are missing for column 'b', 'c', 'd', 'e', 'f' and 2 more: {why}"
    # Bounds of the target declare a regression.
    prepare(table(), "label", BOUNDS | {"label": (0, 1)})


def test_an_unknown_target_is_refused():
    assert "no column 'lable'; did you mean 'label'?" in refusal(prepare, table(), "lable", BOUNDS)
    assert "at least one" in refusal(prepare, Table(("label",), np.zeros((2, 1))), "label", {})


def test_features_fix_the_order_of_a_test_file():
    trained = prepare(table(), "label", BOUNDS)
    shuffled = Table(("label", "dose", "age"), table().values[:, [2, 1, 0]])
    tested = prepare(shuffled, "label", BOUNDS, features=("age", "dose"))
    np.testing.assert_array_equal(tested.x, trained.x)
    assert prepare(table(), "label", BOUNDS, features=("dose",)).x.shape == (3, 1)


@pytest.mark.parametrize(
    ("reason", "argument"),
    [
        *(("two different numbers", {"classes": classes}) for classes in [(1, 1), (0, np.nan), (0, 1, 2), ("a", "b")]),
        *(("features must be", {"features": names}) for names in [(), ("age", "age"), ("age", "label")]),
        ("no column 'weight'", {"features": ("age", "weight")}),
        ("'refuse' or 'null'", {"on_invalid": "drop"}),
    ],
)
def test_malformed_arguments_are_refused(reason, argument):
    assert reason in refusal(prepare, table(), "label", BOUNDS, **argument)


# ------------------------------------------------------------------------------------------------------------- streams
class CsvSource(RowSource):
    """Rows of a CSV file of numbers, `block` lines at a time; the last block is padded with empty cells."""

    def __init__(self, path, preparation, num_rows, block):
        self.path, self.preparation, self.num_rows, self.block = path, preparation, num_rows, block
        self.num_features = len(preparation.features)

    def blocks(self):
        with open(self.path, newline="") as file:
            lines = csv.reader(file)
            next(lines)
            while cells := list(itertools.islice(lines, self.block)):
                values = np.full((self.block, len(self.preparation.columns)), np.nan)
                values[: len(cells)] = [[float(cell) for cell in line] for line in cells]
                yield self.preparation.rows_of(values)


LINES = 41
COLUMNS = ("dose", "label", "age")
WIDER = {**BOUNDS, "label": (-1, 4)}
TARGETS = {
    "labels as they stand": (None, "binary"),
    "two classes": ((3, -1), "binary"),
    "three classes": ((4, 0, 1), "multiclass"),
    "a number": (None, "regression"),
}


def spoilt():
    """Rows with cells of all kinds, and labels of which some are valid for every kind of target and some are not."""
    rng = np.random.default_rng(0)
    values = np.column_stack(
        [rng.uniform(-2, 2, LINES), rng.choice([-1, 0, 1, 3, 4, 0.3], LINES), rng.uniform(-50, 200, LINES)]
    )
    values[[3, 17, 30], [0, 2, 1]] = np.nan
    values[[5, 18, 40], [0, 2, 1]] = np.inf
    values[7, 0] = 1e308
    return Table(COLUMNS, values)


@pytest.fixture(scope="module")
def spoilt_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("stream") / "ward.csv"
    np.savetxt(path, spoilt().values, delimiter=",", header=",".join(COLUMNS), comments="", fmt="%.17g")
    return path


@pytest.mark.parametrize("block", [1, 2, 7, LINES, LINES + 5])
@pytest.mark.parametrize("target", TARGETS)
def test_a_stream_has_the_rows_of_the_whole_table_bit_for_bit(spoilt_file, target, block):
    classes, kind = TARGETS[target]
    whole = prepare(spoilt(), "label", WIDER, classes, "null", ("age", "dose"), kind)
    assert 0 < whole.mask.sum() < LINES
    preparation = Preparation.of(COLUMNS, "label", WIDER, classes, ("age", "dose"), kind)
    blocks = list(CsvSource(spoilt_file, preparation, LINES, block).blocks())
    assert {part.y.shape for part in blocks} == {(block,)}
    for name in ("x", "y", "mask"):
        streamed = np.concatenate([getattr(part, name) for part in blocks])
        assert streamed.dtype == np.float32
        assert streamed[:LINES].tobytes() == getattr(whole, name).tobytes()
        assert not streamed[LINES:].any()


def test_everything_public_is_refused_before_a_row_is_there():
    """What `prepare` refuses of a table that has rows, `Preparation.of` refuses without any."""
    for argument in (
        {"bounds": {"age": (0, 120)}},
        {"bounds": BOUNDS | {"dose": (1, 1)}},
        {"bounds": BOUNDS | {"weight": (0, 1)}},
        {"classes": (0, 1, 2)},
        {"features": ("label",)},
        {"kind": "multiclass"},
        {"kind": "regression"},
        {"target": "lable"},
    ):
        given = {"target": "label", "bounds": BOUNDS} | argument
        assert refusal(Preparation.of, table().columns, **given) == refusal(prepare, table(), **given)


def test_a_preparation_is_a_value():
    """It can be hashed, compared, and shared by streams: it contains no rows of a table."""
    one, other = (Preparation.of(table().columns, "label", BOUNDS, classes) for classes in ((0, 1), [0.0, 1.0]))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Preparation.of(table().columns, "label", BOUNDS)


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros((3, 2)), np.full((3, 3), "1"), np.full((3, 3), None)])
def test_a_block_that_is_no_table_of_numbers_is_refused(values):
    preparation = Preparation.of(table().columns, "label", BOUNDS)
    for act in (preparation.rows_of, preparation.refuse_invalid):
        assert "an array of real numbers" in refusal(act, values)
