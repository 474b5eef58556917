"""Whole numbers from 2^53 on keep their names exactly, from any table to predictions, or are refused."""

import decimal

import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.tables.reading import open_table
from l2p.tables.schema import Category, Encoding, Number, Schema, Target, read_rows
from l2p.tables.schema.template import from_public

FIRST, SECOND = 2**53, 2**53 + 1
SCHEMAS = [
    Schema({"id": Category(pair), "x": Number(0, 1)}, Target("y", pair))
    for pair in ((FIRST, SECOND), (str(FIRST), str(SECOND)))
]
COLUMNS = {
    "int64": np.array([FIRST, SECOND]),
    "uint64": np.array([FIRST, SECOND], np.uint64),
    "texts": [str(FIRST), f" {SECOND}.0 "],
    "objects": [FIRST, decimal.Decimal(SECOND)],
    "numpy's": [np.int64(FIRST), np.uint64(SECOND)],
}


@pytest.mark.parametrize("schema", SCHEMAS, ids=["numbers", "texts"])
@pytest.mark.parametrize("cells", COLUMNS.values(), ids=COLUMNS)
def test_two_neighbours_stay_two_in_features_labels_and_predictions(schema, cells):
    rows = read_rows({"id": cells, "x": [0, 1], "y": cells}, Encoding(schema))
    assert np.asarray(rows.x)[:, :2].tolist() == [[1, 0], [0, 1]]
    assert Encoding(schema).decode(np.asarray(rows.y)).tolist() == list(schema.target.classes)


@pytest.mark.parametrize("form", ["csv", "parquet", "parquet with a gap", "pandas"])
def test_files_and_frames_keep_them(tmp_path, form):
    pa = pytest.importorskip("pyarrow")
    pq, pd = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pandas")
    ids = [FIRST, SECOND, None] if form.endswith("gap") else [FIRST, SECOND]
    table = {"id": ids, "x": [0] * len(ids), "y": [FIRST, SECOND, FIRST][: len(ids)]}
    if form == "pandas":
        data = pd.DataFrame(table)
    elif form == "csv":
        data = tmp_path / "a.csv"
        data.write_text("\n".join(["id,x,y", *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]))
    else:
        data = tmp_path / "a.parquet"
        pq.write_table(pa.table(table), data)
    rows = read_rows(data, Encoding(SCHEMAS[0]), on_invalid="null")
    assert np.asarray(rows.x)[:2, :2].tolist() == [[1, 0], [0, 1]]
    assert np.asarray(rows.y)[:2].tolist() == [0, 1]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["numbers", "texts"])
@pytest.mark.parametrize(("kind", "first"), [(np.float64, FIRST), (np.float32, FIRST)])
def test_a_column_of_floats_that_takes_them_for_one_is_refused(schema, kind, first):
    cells = np.array([first, 1.0], kind)
    with pytest.raises(InputError, match="read the column as whole numbers or as text"):
        read_rows({"id": cells, "x": [0, 1], "y": cells}, Encoding(schema))


def test_a_single_float_is_none_of_them():
    rows = read_rows({"id": [float(FIRST), SECOND], "x": [0, 1], "y": [FIRST, SECOND]}, Encoding(SCHEMAS[0]))
    assert np.asarray(rows.x)[:, :2].tolist() == [[0.5, 0.5], [0, 1]]


def test_a_declaration_that_is_not_exact_is_refused():
    with pytest.raises(InputError, match="write all its digits, without a point"):
        Category((float(FIRST), 1))


def test_a_public_sample_names_them_exactly():
    sample = open_table({"x": ["1", "2", "3"], "y": [str(FIRST), str(SECOND), str(FIRST)]})
    assert from_public(sample, "y").target.classes == (FIRST, SECOND)
