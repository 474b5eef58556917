"""Private tables: what is read, how it is scaled, and that no refusal quotes a private cell."""

import json
import sys
import time
import traceback

import numpy as np
import pytest

from l2p.data import Table, prepare, read_bounds, read_table
from l2p.errors import InputError

SECRET = "hiv-positive"
BOUNDS = {"age": (0, 120), "dose": (-1, 1)}


def table(labels=(0, 1, 1), ages=(30, 60, 150), doses=(0, -1, 9)):
    """Columns age, dose, label."""
    return Table(("age", "dose", "label"), np.column_stack([ages, doses, labels]).astype(float))


@pytest.fixture
def csv_file(tmp_path):
    """Writes text to a CSV file and gives its path."""

    def write(text, encoding="utf-8"):
        path = tmp_path / "table.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


def refusal(function, *args, **kwargs):
    """The message of the InputError, checked to quote the secret nowhere, the printed traceback's causes included."""
    with pytest.raises(InputError) as caught:
        function(*args, **kwargs)
    error = caught.value
    printed = "".join(traceback.format_exception(error))
    assert SECRET not in str(error)
    assert f"'{SECRET}'" not in printed
    return str(error)


def test_a_csv_file_is_read_as_numbers(csv_file):
    read = read_table(csv_file('\ufeffage, "dose, mg" ,label\r\n 61,1e-3,1\r\n\r\n"7",nan,-inf\r\n'))
    assert read.columns == ("age", "dose, mg", "label")
    np.testing.assert_array_equal(read.values, [[61, 1e-3, 1], [7, np.nan, -np.inf]])
    assert read.values.dtype == np.float64


def test_empty_cells_are_nan(csv_file):
    read = read_table(csv_file("a,b,c\n1,,3\n ,5,6\n7,8,\n"))
    np.testing.assert_array_equal(read.values, [[1, np.nan, 3], [np.nan, 5, 6], [7, 8, np.nan]])


MALFORMED = [("", "empty"), ("\n1,2\n", "empty"), ("a,b\n", "no rows"), ("a,b\n\n\n", "no rows")]
MALFORMED += [("a,b,a\n1,2,3\n", "columns 1 and 3 "), ("a,,b\n0,1,2\n", "column 2 "), (",a\n0,1\n", "no name")]
MALFORMED += [(f"61,{SECRET}\n62,1\n", "holds numbers"), (f'a,"b\n3,"4"\n5,{SECRET}\n', "column 2 ")]
MALFORMED += [(f"a,b\n{rows}\n", "more or fewer cells") for rows in ("1,2\n3", "1,2,3\n4,5,6")]


@pytest.mark.parametrize(("text", "reason"), MALFORMED)
def test_a_malformed_csv_file_is_refused(csv_file, text, reason):
    assert reason in refusal(read_table, csv_file(text))


@pytest.mark.parametrize("gap", ["2", ""])
def test_a_text_cell_names_the_column_only_and_that_only_in_what_is_a_header(csv_file, gap):
    path = csv_file(f"age,dose,status\n1,2,3\n4,{gap},{SECRET}\n7,8,9\n")
    complaint = f"of {path} holds something that is not a number: encode it as numbers first"
    assert refusal(read_table, path) == f"column 3 {complaint}"
    assert refusal(read_table, path, {"age"}) == f"column 3 {complaint}"
    assert refusal(read_table, path, {"age", "dose"}) == f"column 'status' {complaint}"


NAMES = ["class", "age", "dose"]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("age,dose,Class", "has no column 'class'; did you mean 'Class'?"),
        ("age,dose,klass", "has no column 'class'; did you mean 'klass'?"),
        ("age,dose,weight", "has no column 'class'; compare it with the header line"),
        (f"age,{SECRET},class,x", "has no column 'dose'; compare it with the header line"),
        # A name that is nearly declared, in a line that may be a row.
        (f"age,{SECRET},klass", "has no column 'class', 'dose', as declared; check that its first line names the"),
        (f"{SECRET},b,c", "has no column 'class', 'age', 'dose', as declared; check that its first line names the"),
        (f"{SECRET};age;dose;class", "has no column 'class', 'age', 'dose', as declared; check that its first line"),
    ],
)
def test_a_name_is_suggested_only_where_all_declared_names_but_one_are_there(csv_file, header, said):
    path = csv_file(header + "\n1,2,3,4\n")
    assert f"the table {path} {said}" in refusal(read_table, path, NAMES)
    columns = tuple(header.split(","))
    nowhere = Table(columns, np.zeros((1, len(columns))))
    assert f"the table {said}" in refusal(prepare, nowhere, "class", BOUNDS)


def test_unreadable_files_are_refused(csv_file, tmp_path):
    assert "there is no file" in refusal(read_table, tmp_path / "absent.csv")
    assert "there is no file" in refusal(read_table, tmp_path)
    (tmp_path / "table.xlsx").write_text("a\n1\n")
    assert ".csv or .parquet" in refusal(read_table, tmp_path / "table.xlsx")
    assert "UTF-8" in refusal(read_table, csv_file("a,b\n1,é\n", encoding="latin-1"))
    assert "comma-separated" in refusal(read_table, csv_file("a,b\n1," + "x" * 200_000 + "\n"))


def test_a_large_csv_file_round_trips_in_time(tmp_path):
    values = np.random.default_rng(0).normal(size=(30_000, 20))
    columns = tuple(f"c{j}" for j in range(20))
    np.savetxt(tmp_path / "large.csv", values, delimiter=",", header=",".join(columns), comments="", fmt="%.17g")
    start = time.perf_counter()
    read = read_table(tmp_path / "large.csv")
    # Measured: 0.2 s.
    assert time.perf_counter() - start < 5
    assert read.columns == columns
    np.testing.assert_array_equal(read.values, values)


def pyarrow():
    """pyarrow and pyarrow.parquet, or a skip that says why."""
    reason = "pyarrow is not installed: pip install 'l2p-jax[data]'"
    return pytest.importorskip("pyarrow", reason=reason), pytest.importorskip("pyarrow.parquet", reason=reason)


def test_parquet_equals_csv(csv_file, tmp_path):
    pa, pq = pyarrow()
    content = {"age": [61, None, 7], "dose": [0.5, -1.25, None], "label": [True, False, True]}
    pq.write_table(pa.table(content), tmp_path / "table.parquet")
    from_parquet = read_table(tmp_path / "table.parquet")
    from_csv = read_table(csv_file("age,dose,label\n61,0.5,1\n,-1.25,0\n7,,1\n"))
    assert from_parquet.columns == from_csv.columns
    np.testing.assert_array_equal(from_parquet.values, from_csv.values)
    assert from_parquet.values.dtype == np.float64


def test_a_malformed_parquet_file_is_refused(tmp_path):
    pa, pq = pyarrow()
    path = tmp_path / "table.parquet"
    path.write_bytes(b"not parquet")
    assert "cannot be read as Parquet" in refusal(read_table, path)
    pq.write_table(pa.table({"age": [1], "status": [SECRET]}), path)
    assert "column 2 " in refusal(read_table, path)
    assert "column 'status'" in refusal(read_table, path, ["age", "status"])
    assert "has no column 'dose'" in refusal(read_table, path, ["age", "dose"])
    pq.write_table(pa.table([[1], [2]], names=["age", "age"]), path)
    assert "columns 1 and 2 " in refusal(read_table, path)
    pq.write_table(pa.table({"age": pa.array([], pa.int64())}), path)
    assert "no rows" in refusal(read_table, path)


def test_missing_pyarrow_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "table.parquet").write_bytes(b"")
    assert "pip install 'l2p-jax[data]'" in refusal(read_table, tmp_path / "table.parquet")


PAIRS = [[0], [0, 1, 2], 5, "01", ["0", "1"], [None, 1], [True, 2], [1, 1], [2, 1]]
PAIRS += [[float("nan"), 1], [0, float("inf")], [-1e308, 1e308], [0, 10**400]]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: str(pair)[:20])
def test_malformed_bounds_are_refused(tmp_path, pair):
    path = tmp_path / "bounds.json"
    path.write_text(json.dumps({"age": [0, 1], "dose": pair}))
    reason = "bounds of column 'dose' must be two finite numbers [low, high] with low < high"
    assert refusal(read_bounds, path) == reason
    assert refusal(prepare, table(), "label", BOUNDS | {"dose": pair}) == reason


def test_bounds_are_a_json_object(tmp_path):
    path = tmp_path / "bounds.json"
    assert "cannot be read" in refusal(read_bounds, path)
    for text in ("", "{", "[[0, 1]]", "3"):
        path.write_text(text)
        assert "JSON" in refusal(read_bounds, path)
    path.write_text('{"age": [0, 120], "dose": [-0.5, 1e3]}')
    assert read_bounds(path) == {"age": (0.0, 120.0), "dose": (-0.5, 1000.0)}


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
    why = "read off private rows they leak; declare [low, high] from public knowledge"
    assert message == f"bounds are missing for column 'age': {why}"
    assert "no column 'agee'" in refusal(prepare, table(), "label", BOUNDS | {"agee": (0, 1)})
    # One declared name proves no header, so the others are counted only.
    assert refusal(prepare, table(), "label", {}) == f"bounds are missing for 2 columns: {why}"
    wide = Table((*"abcdefgh", "label"), np.zeros((1, 9)))
    message = refusal(prepare, wide, "label", {"a": (0, 1)})
    assert message == f"bounds are missing for column 'b', 'c', 'd', 'e', 'f' and 2 more: {why}"
    # Bounds of the target are what a regression declares.
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
