"""Every kind of table gives the same cells, and what is malformed is refused without a word of it."""

import csv
import gzip
import importlib
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from l2p.base.errors import InputError
from l2p.tables.reading import Format, RawSource, open_table
from l2p.tables.schema.cells import numbers
from tests.canaries import COUNT, NUMBER, WORD, leaks, observed

NAMES = ["age", "ward, old", "back"]
CELLS = [["61", "a", "yes"], ["7.5", "b c", "no"], ["", "it's", "yes"], ["-3", 'say "x"', "no"]]
ARFF = """% a comment in latin-1: caf\xe9
@RELATION 'the ward'
@Attribute age REAL
@attribute 'ward, old' {a, 'b c', "it's", 'say "x"'}
@ATTRIBUTE back {no,yes} % classes
@DATA
61, a, yes
% between
7.5,'b c',no
?,'it\\'s',yes

-3,"say \\"x\\"",no
"""
SPARSE = """@relation ward
@attribute age numeric
@attribute "ward, old" {a,'b c',"it's",'say "x"'}
@attribute back {no,yes}
@data
{0 61, 2 yes}
{0 7.5,1 'b c'}
{0 ?, 1 "it's", 2 yes}
{ 0 -3 , 1 'say "x"' }
"""


def read(data, format=None, wanted=None):
    source = open_table(data, format, NAMES)
    blocks = list(source.blocks(wanted or source.names))
    return {name: [cell for block in blocks for cell in block[name].tolist()] for name in wanted or source.names}


def same_cells(cells):
    assert list(cells) == NAMES
    np.testing.assert_array_equal(numbers(np.array(cells["age"], object)), [61, 7.5, np.nan, -3])
    assert cells["ward, old"] == [row[1] for row in CELLS]
    assert cells["back"] == [row[2] for row in CELLS]


def written(separator=",", header=True):
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows([NAMES, *CELLS] if header else CELLS)
    return text.getvalue().encode()


def arrow():
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'l2p-jax[data]'")
    return pa.table(
        {"age": [61, 7.5, None, -3], "ward, old": [row[1] for row in CELLS], "back": [row[2] for row in CELLS]}
    )


def parquet(table):
    pq = pytest.importorskip("pyarrow.parquet")
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


FILES = {
    "plain.csv": lambda: written(),
    "semicolons.csv": lambda: written(";"),
    "tabs.tsv": lambda: written("\t"),
    "bars.txt": lambda: written("|"),
    "packed.data.gz": lambda: gzip.compress(written()),
    "packed.csv": lambda: gzip.compress(written()),
    "bom.csv": lambda: b"\xef\xbb\xbf" + written(),
    "dense.arff": lambda: ARFF.encode("latin-1"),
    "sparse.arff": lambda: SPARSE.encode(),
    "packed.arff.gz": lambda: gzip.compress(SPARSE.encode()),
    "columns.parquet": lambda: parquet(arrow()),
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_gives_the_same_cells(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(FILES[name]())
    same_cells(read(path))
    assert read(str(path), wanted=["back"]) == {"back": ["yes", "no", "yes", "no"]}


def test_files_one_after_the_other_are_one_table(tmp_path):
    paths = [tmp_path / name for name in ("plain.csv", "sparse.arff")]
    for path in paths:
        path.write_bytes(FILES[path.name]())
    assert read(paths)["back"] == ["yes", "no", "yes", "no"] * 2
    (tmp_path / "other.csv").write_text("age,back\n1,yes\n")
    source = open_table([paths[0], tmp_path / "other.csv"])
    with pytest.raises(InputError, match="has other columns than"):
        source.check_columns(["age", "back"])
    for twice in (tmp_path / "plain.csv", tmp_path / "sub" / ".." / "plain.csv", f"{tmp_path}/pl*.csv"):
        with pytest.raises(InputError, match="named twice, so its rows would count twice"):
            open_table([paths[0], twice])


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_table_without_a_header_takes_the_names_it_is_given(tmp_path, separator):
    path = tmp_path / "bare.csv"
    path.write_bytes(written(separator, header=False))
    same_cells(read(path, Format(separator, header=False, columns=tuple(NAMES))))
    assert list(read(path, Format(header=False, separator=separator))) == ["column_1", "column_2", "column_3"]


def test_a_given_separator_beats_what_the_first_line_has_most_of(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("a,b;c\n1,2;3\n")
    assert list(read(path, Format(separator=";"))) == ["a,b", "c"]
    path.write_text("a b c\n 1  2 3 \n")
    assert read(path, Format(separator=" ")) == {"a": ["1"], "b": ["2"], "c": ["3"]}


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_frames_give_the_same_cells(name):
    library = pytest.importorskip(name, reason=f"{name} is not installed: pip install {name}")
    frame = library.DataFrame(
        dict(zip(NAMES, [[61.0, 7.5, None, -3.0], *zip(*[row[1:] for row in CELLS], strict=True)], strict=True))
    )
    same_cells(read(frame))


def test_frames_keep_their_missing_cells():
    pd = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    frame = pd.DataFrame(
        {
            "int": pd.array([1, None], "Int64"),
            "bool": pd.array([True, None], "boolean"),
            "text": ["a", None],
            "kind": pd.Categorical(["a", None]),
        }
    )
    cells = read(frame)
    assert cells["bool"] == [True, None]
    assert cells["text"] == cells["kind"] == ["a", None]
    np.testing.assert_array_equal(cells["int"], [1, np.nan])
    pl = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    cells = read(pl.DataFrame({"bool": [True, None], "kind": pl.Series(["a", None], dtype=pl.Categorical)}))
    assert cells == {"bool": [True, None], "kind": ["a", None]}


def test_neither_pandas_nor_polars_is_imported():
    for module in ("l2p.tables.reading.memory", "l2p.tables.reading.opening", "l2p.tables.schema.encoding"):
        source = Path(importlib.import_module(module).__file__).read_text(encoding="utf-8")
        assert "import pandas" not in source
        assert "import polars" not in source


def test_arrays_arrow_tables_and_columns_give_the_same_cells():
    array = np.array([[None if cell == "" else cell for cell in row] for row in CELLS], object)
    same_cells(read(array))
    same_cells(read(np.array(CELLS)))
    same_cells(read(dict(zip(NAMES, array.T, strict=True))))
    named = np.array([(1.5, "a")], [("age", "f8"), ("ward", "U3")])
    assert read(named) == {"age": [1.5], "ward": ["a"]}
    same_cells(read(arrow()))


def test_arrow_types_are_read_as_they_mean():
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'l2p-jax[data]'")
    import decimal

    table = pa.table(
        {
            "whole": pa.array([2**60 + 1, None]),
            "word": pa.array(["a", None]).dictionary_encode(),
            "truth": [True, None],
            "price": [decimal.Decimal("1.50"), None],
            "nothing": pa.nulls(2),
            "day": pa.array([0, 1], pa.date32()),
        }
    )
    source = open_table(table)
    assert source.types == {"whole": "number", "word": "category", "truth": "category", "price": "number"}
    cells = read(table, wanted=["whole", "word", "truth", "nothing"])
    assert cells == {"whole": [2**60 + 1, None], "word": ["a", None], "truth": [True, None], "nothing": [None, None]}
    with pytest.raises(InputError, match="column 'day' of the table holds neither numbers nor texts"):
        read(table, wanted=["day"])


def test_arff_types_are_those_of_its_header(tmp_path):
    (tmp_path / "a.arff").write_text(SPARSE)
    assert open_table(tmp_path / "a.arff").types == {"age": "number", "ward, old": "category", "back": "category"}


plain = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n\0", exclude_categories=("Cs", "Zs", "Zl", "Zp", "Cc")),
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(plain, plain, plain), min_size=1, max_size=5), st.sampled_from([";", "\t", "|", ","]))
def test_any_text_goes_through_csv_and_arff(tmp_path_factory, rows, separator):
    folder = tmp_path_factory.mktemp("texts")
    with (folder / "any.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=separator, quoting=csv.QUOTE_ALL).writerows([NAMES, *rows])
    assert list(zip(*read(folder / "any.csv").values(), strict=True)) == rows
    quoted = (",".join("'" + cell.replace("\\", "\\\\").replace("'", "\\'") + "'" for cell in row) for row in rows)
    head = "@relation r\n@attribute age string\n@attribute 'ward, old' string\n@attribute back string\n@data\n"
    (folder / "any.arff").write_text(head + "\n".join(quoted) + "\n", encoding="utf-8")
    assert list(zip(*read(folder / "any.arff").values(), strict=True)) == rows


HEAD = "@relation r\n@attribute age numeric\n@attribute back {no,yes}\n@data\n"
BAD = {
    "ragged.csv": f"age,back\n{WORD},1,{NUMBER}\n",
    "short.csv": f"age,back\n{WORD}\n",
    "open.csv": f'age,back\n{NUMBER},"{WORD}\n',
    "after a quote.csv": f'age,back\n{NUMBER},"{WORD}"x\n',
    "long.csv": f"age,back\n1,{WORD * 20_000}\n",
    "empty.csv": "",
    "blank.csv": "\n1,2\n",
    "numbers.csv": f"{WORD},{NUMBER}\n1,2\n",
    "twice.csv": f"{WORD},{WORD}\n1,2\n",
    "unnamed.csv": f"{WORD},\n1,2\n",
    "latin.csv": f"age,back\n{WORD}\xe9,1\n".encode("latin-1"),
    "latin header.csv": f"{WORD}\xe9,back\n1,1\n".encode("latin-1"),
    "half.csv.gz": gzip.compress(f"age,back\n{WORD},1\n".encode() * COUNT)[:-12],
    "spoilt.csv.gz": b"\x1f\x8b" + WORD.encode() * 9,
    "table.xlsx": WORD,
    "table": WORD,
    "no data.arff": f"@relation r\n@attribute {WORD} numeric\n",
    "words.arff": f"{WORD},{NUMBER}\n",
    "no type.arff": f"@relation r\n@attribute {WORD}\n@data\n1\n",
    "open quote.arff": HEAD + f"{NUMBER},'{WORD}\n",
    "ragged.arff": HEAD + f"{NUMBER},{WORD},yes\n",
    "sparse beyond.arff": HEAD + f"{{7 {WORD}}}\n",
    "sparse far beyond.arff": HEAD + f"{{{'9' * 5000} {WORD}}}\n",
    "sparse open.arff": HEAD + f"{{0 {WORD}\n",
    "sparse words.arff": HEAD + f"{{age {WORD}}}\n",
    "tables in cells.arff": f"@relation r\n@attribute {WORD} relational\n@data\n1\n",
    "latin.arff": (HEAD + f"{NUMBER},{WORD}\xe9\n").encode("latin-1"),
    "twice.arff": f"@relation r\n@attribute {WORD} numeric\n@attribute {WORD} numeric\n@data\n",
    "words.parquet": f"PAR1{WORD}PAR1",
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_table_is_refused_without_a_word_of_it(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(BAD[name] if isinstance(BAD[name], bytes) else BAD[name].encode())
    error, text = observed(lambda: read(path))
    assert isinstance(error, InputError), text
    assert leaks(text) == []


UNREADABLE = {
    "a number": 7,
    "nothing": None,
    "no paths": [],
    "one axis": np.full(COUNT, NUMBER),
    "another width": np.full((COUNT, 2), NUMBER),
    "two axes in a column": {"age": np.full((2, 2), NUMBER)},
    "columns of two lengths": {"age": [NUMBER], "ward": [WORD, WORD]},
    "lists in cells": {"age": np.array([[WORD], None], object)},
    "complex numbers": {"age": [1j * NUMBER]},
    "dates": {"age": np.full(COUNT, "2024-01-31", "M8[D]")},
    "no columns": {},
    "one name twice": {"1": [NUMBER], 1: [WORD]},
    "a file that is not there": "nope.csv",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_table_is_refused_without_a_word_of_it(name):
    error, text = observed(lambda: read(UNREADABLE[name]))
    assert isinstance(error, InputError), text
    assert leaks(text) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"separator": ""},
        {"separator": ",,"},
        {"separator": '"'},
        {"columns": ("a",)},
        {"header": False, "columns": ("a", "a")},
    ],
)
def test_a_format_that_contradicts_itself_is_refused(wrong):
    with pytest.raises(InputError):
        Format(**wrong)


def test_another_number_of_names_than_columns_is_refused(tmp_path):
    (tmp_path / "bare.csv").write_text(f"{NUMBER},{WORD}\n")
    error, text = observed(lambda: read(tmp_path / "bare.csv", Format(header=False, columns=("a", "b", "c"))))
    assert isinstance(error, InputError)
    assert leaks(text) == []


def test_parquet_without_pyarrow_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(InputError, match=r"pip install 'l2p-jax\[data\]'"):
        open_table(tmp_path / "a.parquet")


def test_a_source_is_passed_on():
    source = open_table({"age": [1]})
    assert isinstance(source, RawSource)
    assert open_table(source) is source
