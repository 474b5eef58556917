"""Private tables: what is read, and that no refusal quotes a private cell."""

import sys

import numpy as np
import pytest

from l2p.tables.reading import open_table
from l2p.tables.schema.cells import numbers
from tests.tables.ward import SECRET, refusal


def read_table(path, declared=()):
    """The names of a table's columns, and its cells f64[n, c]."""
    source = open_table(path)
    source.check_columns(declared)
    blocks = source.blocks(source.names)
    cells = [np.stack([numbers(block[name]) for name in source.names], axis=1) for block in blocks]
    return source.names, np.concatenate(cells)


@pytest.fixture
def csv_file(tmp_path):
    """Writes text to a CSV file and gives its path."""

    def write(text, encoding="utf-8"):
        path = tmp_path / "table.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


def test_a_csv_file_is_read_as_numbers(csv_file):
    columns, cells = read_table(csv_file('\ufeffage, "dose, mg" ,label\r\n 61,1e-3,1\r\n\r\n"7",nan,-inf\r\n'))
    assert columns == ("age", "dose, mg", "label")
    np.testing.assert_array_equal(cells, [[61, 1e-3, 1], [7, np.nan, -np.inf]])


def test_empty_cells_are_nan(csv_file):
    _, cells = read_table(csv_file("a,b,c\n1,,3\n ,5,6\n7,8,\n"))
    np.testing.assert_array_equal(cells, [[1, np.nan, 3], [np.nan, 5, 6], [7, 8, np.nan]])


MALFORMED = [("", "empty"), ("\n1,2\n", "empty")]
MALFORMED += [("a,b,a\n1,2,3\n", "columns 1 and 3 "), ("a,,b\n0,1,2\n", "column 2 "), ("a,\n0,1\n", "no name")]
MALFORMED += [(f"61,{SECRET}\n62,1\n", "holds numbers")]
MALFORMED += [(f"a,b\n{rows}\n", "more or fewer cells") for rows in ("1,2\n3", "1,2,3\n4,5,6")]


@pytest.mark.parametrize(("text", "reason"), MALFORMED)
def test_a_malformed_csv_file_is_refused(csv_file, text, reason):
    assert reason in refusal(read_table, csv_file(text))


NAMES = ["class", "age", "dose"]


@pytest.mark.parametrize(
    ("header", "phrase"),
    [
        ("age,dose,Class", "has no column 'class'; did you mean 'Class'?"),
        ("age,dose,klass", "has no column 'class'; did you mean 'klass'?"),
        ("age,dose,weight", "has no column 'class'; compare it with the header line"),
        (f"age,{SECRET},class,x", "has no column 'dose'; compare it with the header line"),
        # A name similar to a declared one, in a line that may be a row.
        (f"age,{SECRET},klass", "has no column 'class', 'dose', as declared; check that its first line names the"),
        (f"{SECRET},b,c", "has no column 'class', 'age', 'dose', as declared; check that its first line names the"),
        (f"{SECRET};a;b;c", "has no column 'class', 'age', 'dose', as declared; check that its first line"),
    ],
)
def test_a_name_is_suggested_only_where_all_declared_names_but_one_are_there(csv_file, header, phrase):
    path = csv_file(header + "\n1,2,3,4\n")
    assert f"the table {path} {phrase}" in refusal(read_table, path, NAMES)


def test_unreadable_files_are_refused(csv_file, tmp_path):
    assert "there is no file" in refusal(read_table, tmp_path / "absent.csv")
    assert "there is no file" in refusal(read_table, tmp_path)
    (tmp_path / "table.xlsx").write_text("a\n1\n")
    assert ".arff or .parquet" in refusal(read_table, tmp_path / "table.xlsx")
    assert "UTF-8" in refusal(read_table, csv_file("a,b\n1,é\n", encoding="latin-1"))
    assert "comma-separated" in refusal(read_table, csv_file("a,b\n1," + "x" * 200_000 + "\n"))


@pytest.mark.slow
def test_a_large_csv_file_round_trips(tmp_path):
    values = np.random.default_rng(0).normal(size=(30_000, 20))
    columns = tuple(f"c{j}" for j in range(20))
    np.savetxt(tmp_path / "large.csv", values, delimiter=",", header=",".join(columns), comments="", fmt="%.17g")
    names, cells = read_table(tmp_path / "large.csv")
    assert names == columns
    np.testing.assert_array_equal(cells, values)


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
    assert from_parquet[0] == from_csv[0]
    np.testing.assert_array_equal(from_parquet[1], from_csv[1])


def test_a_malformed_parquet_file_is_refused(tmp_path):
    pa, pq = pyarrow()
    path = tmp_path / "table.parquet"
    path.write_bytes(b"not parquet")
    assert "cannot be read as Parquet" in refusal(read_table, path)
    pq.write_table(pa.table({"age": [1], "status": [SECRET]}), path)
    assert "has no column 'dose'" in refusal(read_table, path, ["age", "dose"])
    pq.write_table(pa.table([[1], [2]], names=["age", "age"]), path)
    assert "columns 1 and 2 " in refusal(read_table, path)


def test_missing_pyarrow_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "table.parquet").write_bytes(b"")
    assert "pip install 'l2p-jax[data]'" in refusal(read_table, tmp_path / "table.parquet")
