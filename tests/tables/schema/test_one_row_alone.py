"""A row's encoding does not depend on another row, whose cell may decide the type of the whole column."""

import decimal

import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.tables.reading import Format, open_table
from l2p.tables.schema import Category, Encoding, Missing, Number, Schema, Target, Unit, read_rows

TARGET = Target("y", ("0.0", "1"))
#: The same ten cells of a column that another row turns into numbers, booleans or texts, or makes whole or not.
OTHERS = [0.5, np.nan, None, "x", True, "", -0.0]


def encoded(column, name="v", **schema):
    columns = {name: Category(("1.0", "2", "-3.0"), missing=Missing(indicator=True))}
    rows = read_rows(
        {name: column, "y": ["1"] * len(column)}, Encoding(Schema(columns, TARGET, **schema)), on_invalid="null"
    )
    return np.asarray(rows.x)[:-1]


@pytest.mark.parametrize("cell", OTHERS, ids=repr)
@pytest.mark.parametrize("cells", [[1, 2, -3, 1], [1.0, 2.0, -3.0, 1.0], ["1", "2.0", "-3", "1.00"]], ids=repr)
def test_a_row_is_encoded_the_same_whatever_another_row_holds(cells, cell):
    expected = encoded([1, 2, -3, 1, 7])
    assert expected.any(axis=1).all()
    assert np.array_equal(encoded([*cells, cell]), expected)


@pytest.mark.parametrize(
    "cell", ["1" * 5000, 10**5000, decimal.Decimal("sNaN")], ids=["a long text", "a large number", "no number"]
)
def test_a_cell_that_is_no_float_stops_no_other_row(cell):
    assert np.array_equal(encoded([1, 2, -3, 1, cell]), encoded([1, 2, -3, 1, 7]))


@pytest.mark.parametrize("label", OTHERS, ids=repr)
def test_a_label_is_read_the_same_whatever_another_row_holds(label):
    schema = Schema({"v": Number(0, 1)}, TARGET)
    for labels in ([0, 1, 0], [0.0, 1.0, -0.0], ["0", "1.0", "0.0"]):
        rows = read_rows({"v": [0.5] * 4, "y": [*labels, label]}, Encoding(schema), on_invalid="null")
        assert np.asarray(rows.mask)[:3].all()
        assert np.asarray(rows.y)[:3].tolist() == [0, 1, 0]


def test_a_cell_of_minus_zero_changes_no_other_row_of_its_block():
    column = np.zeros(2**14)
    schema = Schema({"v": Category(("0.0", "1.0"))}, Target("y", ("0", "1")))
    for place in (0, 5000):
        changed = column.copy()
        changed[place] = -0.0
        with_zero, with_minus_zero = (
            np.asarray(read_rows({"v": values, "y": column}, Encoding(schema), on_invalid="null").x)
            for values in (column, changed)
        )
        assert np.array_equal(with_zero, with_minus_zero)


def test_a_word_in_the_column_of_units_makes_no_unit_of_rows_without_one():
    schema = Schema({"v": Number(0, 1)}, Target("y", ("0", "1")), Unit("who", 1))
    masks = []
    for last in (8.0, "x"):
        table = {"v": [0.5] * 4, "y": ["1"] * 4, "who": [7.0, np.nan, np.nan, last]}
        rows = read_rows(table, Encoding(schema), on_invalid="null", unit=schema.unit)
        masks.append(np.asarray(rows.mask)[:3].tolist())
    assert masks == [[1, 0, 0], [1, 0, 0]]


def test_without_a_header_no_private_row_decides_how_the_others_are_cut(tmp_path):
    layout = Format(header=False, columns=("name", "y"))
    for first in ("Smith, John;1", "Madonna;1"):
        path = tmp_path / "people.csv"
        path.write_text(f"{first}\nDoe;0\n")
        source = open_table(path, Format(";", False, ("name", "y")))
        (block,) = source.blocks(["y"])
        assert block["y"].tolist() == ["1", "0"]
    with pytest.raises(InputError, match="compare --columns"):
        open_table(path, layout)  # at commas, whatever the row looks like
