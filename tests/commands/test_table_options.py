"""Files as other programs and countries write them: encodings, decimal commas, columns to leave out."""

import codecs
import dataclasses
import gzip
import json

import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError, TableWarning
from l2p.commands.cli import main
from l2p.tables.reading import Format, open_table
from l2p.tables.schema import Category, Encoding, Missing, Number, Schema, Target, read_rows
from tests.canaries import leaks, observed

SCHEMA = Schema(
    {
        "age": Number(0, 100),
        "dose": Number(0, 10),
        "ward": Category(("Nürd", "south"), missing=Missing(indicator=True)),
    },
    Target("back", ("no", "yes")),
)


def rows_of(decimal=".", count=400):
    random = np.random.default_rng(0)
    for age, dose in zip(random.integers(1, 100, count), random.integers(1, 1000, count) / 100, strict=True):
        ward = random.choice(["Nürd", "south"])
        yield f"{age}", f"{dose}".replace(".", decimal), ward, "yes" if age / 50 + dose / 5 > 2 else "no"


def text(decimal=".", separator=",", index=False):
    rows = [("age", "dose", "ward", "back"), *rows_of(decimal)]
    if index:
        rows = [("" if place == 0 else str(place - 1), *row) for place, row in enumerate(rows)]
    return "\n".join(separator.join(row) for row in rows) + "\n"


def arff():
    return (
        "@relation r\n@attribute age real\n@attribute dose real\n@attribute ward string\n@attribute back string\n"
        + ("@data\n" + "".join(",".join(row) + "\n" for row in rows_of()))
    )


#: How a file is written, and what has to be said of it.
FILES = {
    "utf-8 with a mark.csv": (codecs.BOM_UTF8 + text().encode(), {}),
    "utf-16 with a mark.csv": (text().encode("utf-16"), {}),
    "utf-16 big-endian, packed.csv.gz": (gzip.compress(codecs.BOM_UTF16_BE + text().encode("utf-16-be")), {}),
    "utf-32 with a mark.csv": (text().encode("utf-32"), {}),
    "a mark beats what is said.csv": (text().encode("utf-16"), {"encoding": "latin-1"}),
    "latin-1.csv": (text().encode("latin-1"), {"encoding": "latin-1"}),
    "utf-16 without a mark.csv": (text().encode("utf-16-le"), {"encoding": "utf-16-le"}),
    "latin-1.arff": (arff().encode("latin-1"), {"encoding": "cp1252"}),
    "decimal commas.csv": (text(",", ";").encode(), {"decimal": ","}),
    "german.csv": (text(",", ";").encode("cp1252"), {"decimal": ",", "encoding": "cp1252"}),
    "decimal commas, no header.csv": (
        text(",", ";").partition("\n")[2].encode(),
        {"decimal": ",", "header": False, "columns": ("age", "dose", "ward", "back")},
    ),
    "a column more.csv": (text(index=True).replace(",age", "row,age", 1).encode(), {"ignore": ("row",)}),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_written_in_another_way_gives_the_same_rows(tmp_path, name):
    content, options = FILES[name]
    (tmp_path / "plain.csv").write_text(text(), encoding="utf-8")
    (tmp_path / name).write_bytes(content)
    expected = read_rows(tmp_path / "plain.csv", Encoding(SCHEMA))
    rows = read_rows(tmp_path / name, Encoding(SCHEMA), format=Format(**options))
    np.testing.assert_array_equal(rows.x, expected.x)
    np.testing.assert_array_equal(rows.y, expected.y)
    declared = dataclasses.replace(
        SCHEMA, **{part: options[part] for part in ("encoding", "decimal") if part in options}
    )
    layout = {part: value for part, value in options.items() if part not in ("encoding", "decimal")}
    np.testing.assert_array_equal(read_rows(tmp_path / name, Encoding(declared), format=Format(**layout)).x, rows.x)


def test_the_index_that_pandas_writes_is_left_out_with_a_sentence(tmp_path):
    path = tmp_path / "ward.csv"
    (tmp_path / "plain.csv").write_text(text(), encoding="utf-8")
    path.write_text(text(index=True), encoding="utf-8")
    with pytest.warns(TableWarning, match="the first column has no name in .*ward.csv, as an index written by to_csv"):
        rows = read_rows(path, Encoding(SCHEMA))
    np.testing.assert_array_equal(rows.x, read_rows(tmp_path / "plain.csv", Encoding(SCHEMA)).x)
    path.write_text(",,age,back\n0,1,61,1\n0,2,62,0\n")
    with pytest.warns(TableWarning, match="the first 2 columns have no name"):
        source = open_table(path)
    (block,) = source.blocks(source.names)
    assert {name: cells.tolist() for name, cells in block.items()} == {"age": ["61", "62"], "back": ["1", "0"]}


@pytest.mark.parametrize("content", [text().encode("latin-1"), text().encode("utf-16-le"), arff().encode("latin-1")])
def test_a_file_in_no_utf8_is_told_of_its_encoding(tmp_path, content):
    path = tmp_path / ("ward.arff" if content.startswith(b"@") else "ward.csv")
    path.write_bytes(content)
    error, message = observed(lambda: read_rows(path, Encoding(SCHEMA)))
    assert isinstance(error, InputError), message
    assert "is no text in UTF-8; name its encoding (--encoding cp1252" in message
    assert "export it as CSV" not in message
    assert leaks(message) == []


def test_cells_that_are_no_numbers_bring_up_the_decimal_comma(tmp_path):
    (tmp_path / "ward.csv").write_text(text(",", ";"), encoding="utf-8")
    with pytest.raises(InputError, match=r"column 'dose' has cells .*if it writes 7,5 for 7.5, say so \(--decimal ,\)"):
        read_rows(tmp_path / "ward.csv", Encoding(SCHEMA))


@pytest.mark.parametrize(
    ("wrong", "phrase"),
    [
        ({"encoding": "latin-99"}, "none that Python knows"),
        ({"encoding": "base64"}, "none that Python knows"),
        ({"decimal": ";"}, "write . or ,"),
        ({"ignore": ("dose",)}, "column 'dose' is to be ignored, but the schema needs it"),
    ],
)
def test_a_format_that_cannot_be_is_refused(wrong, phrase):
    with pytest.raises(InputError, match=phrase):
        read_rows(
            {"age": [1], "dose": [1], "ward": ["south"], "back": ["no"]}, Encoding(SCHEMA), format=Format(**wrong)
        )


def test_a_declared_text_that_decimal_commas_would_turn_into_a_number_is_refused():
    with pytest.raises(InputError, match="'1,5' is declared, but commas are decimal"):
        Schema({"size": Category(("1,5", "2,5"))}, Target("back", ("no", "yes")), decimal=",")


def test_what_is_said_once_is_kept_for_predictions_and_frames_of_texts(tmp_path, monkeypatch, capsys):
    """The command line's options go into the run's schema; estimators take them from there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ward.csv").write_text(text(",", ";"), encoding="cp1252")
    (tmp_path / "plain.csv").write_text(text(), encoding="utf-8")
    SCHEMA.write("schema.json")
    options = ["--schema", "schema.json", "--epsilon", "8", "--delta", "1e-4", "--protector", "noisygd", "--seed", "1"]
    assert (
        main(["apply", "--data", "ward.csv", "--decimal", ",", "--encoding", "cp1252", *options, "--out", "run"]) == 0
    )
    saved = Schema.read("run/schema.json")
    assert (saved.decimal, saved.encoding) == (",", "cp1252")
    assert main(["predict", "--model", "run", "--data", "ward.csv", "--out", "a.csv"]) == 0
    over = ["--decimal", ".", "--encoding", "utf-8"]
    assert main(["predict", "--model", "run", "--data", "plain.csv", "--out", "b.csv", *over]) == 0
    predicted = (tmp_path / "a.csv").read_text()
    assert predicted == (tmp_path / "b.csv").read_text()
    assert predicted.count("yes") > 50
    assert predicted.count("no") > 50
    texts = dict(zip(SCHEMA.names, zip(*rows_of(","), strict=True), strict=True))
    assert l2p.load_model("run").predict(texts).tolist() == predicted.split()[1:]
    capsys.readouterr()


def test_a_training_remembers_how_its_tables_are_written(tmp_path):
    from meta_train.recipes.remembered import remember

    remember(tmp_path, [], [], [], Format(";", False, ("a", "b"), "cp1252", ",", ("b",)), "universal")

    layout = json.loads((tmp_path / "tables.json").read_text())["format"]
    assert Format(**(layout | {"columns": tuple(layout["columns"])})) == Format(
        ";", False, ("a", "b"), "cp1252", ",", ("b",)
    )


def test_a_table_without_a_column_to_ignore_is_as_it_is():
    source = open_table({"age": [1], "name": ["Smith"]}, Format(ignore=("name", "row")))
    assert source.names == ("age",)
