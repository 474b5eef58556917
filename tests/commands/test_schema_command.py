"""`l2p schema` and `l2p apply --schema`: from a raw table to a model."""

import json
import os
from types import SimpleNamespace

import pytest

import l2p
from l2p.base.errors import InputError
from l2p.checkpoints.defaults import default_protector
from l2p.commands.cli import main
from l2p.release import api
from l2p.release.prediction import saved
from l2p.tables.schema import Category, Encoding, Ignore, Missing, Number, Schema, Target, read_rows
from tests.canaries import observed
from tests.commands.raw_tables import BUDGET, WARD, changed, declared, lines, make_schema, words


@pytest.mark.slow
def test_a_public_sample_completes_a_schema_that_apply_runs_unedited(folder, tmp_path):
    code, text = make_schema(folder, "--from", str(folder / "public.csv.gz"), out="public.json")
    assert code == 0, text
    assert "2 columns to learn from, as 5 features; 1 ignored (name)" in text
    assert "name  ignored   300 values in 300 rows, most of them in one row alone, as names and addresses are" in text
    schema = Schema.read(folder / "public.json")
    assert isinstance(schema.columns["name"], Ignore)
    ward = schema.columns["ward"]
    assert (ward.values, ward.missing) == (("a", "b"), Missing(indicator=True))
    assert schema.columns["age"].missing.indicator
    assert schema.target == Target("back", ("no", "yes"), aliases={"no.": "no", "yes.": "yes"})
    args = words(folder, "public.json", out=str(tmp_path / "run"), test=str(folder / "test.csv"))
    code, text = observed(lambda: main(args))
    assert code == 0, text
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["accuracy"] > 0.8  # words with a dot
    assert Schema.read(tmp_path / "run" / "schema.json") == schema
    assert saved.load_model(tmp_path / "run").schema == schema
    card = " ".join((tmp_path / "run" / "card.txt").read_text().split())
    assert "The schema, public by declaration" in card
    assert "the classes of 'back' and their aliases" in card


KINDS_OF_COLUMNS = {
    # what a column holds in row i of 60: what it is declared as, and what is said of it
    "name": (lambda i: f"Person {i} of Town", Ignore, "60 values in 60 rows, most of them in one row alone, as names"),
    "note": (lambda i: f"text {i // 2 if i < 20 else i}", Ignore, "most of them in one row alone"),
    "patientId": (lambda i: i // 2 * 37 + 5, Ignore, "numbers of rows or ids; if it says whose row it is and somebody"),
    "row": (lambda i: 100_000 + i, Ignore, "numbers of rows or ids"),
    "case_id": (lambda i: f"P-{i:04}", Ignore, '"unit": {"column": NAME'),
    "when": (lambda i: f"2024-01-{1 + i % 28:02}", Ignore, "dates; if time matters, add a column of numbers"),
    "moment": (lambda i: f"{1 + i % 28}.3.2024 12:{i:02}", Ignore, "dates"),
    "day": (lambda i: 20240101 + i % 28, Ignore, "dates"),
    "same": (lambda _: "x", Ignore, "one value in the whole sample"),
    "empty": (lambda _: "NA", Ignore, "no cell of the sample holds anything"),
    "age": (lambda i: 20 + i * 7 % 41, Number, "bounds 16 to 64, a curve of 6 knots"),
    "visits": (lambda i: i % 5, Number, "bounds 0 to 4.4 weight"),
    "weight": (lambda i: f"{50 + i * 17 % 60}.{i}", Number, "bounds"),
    "ward": (lambda i: "nse"[i % 3], Category, "3 values"),
    "pain": (lambda i: ("none", "some", "much")[i % 3], Category, "2 values; 'none' is read as missing"),
    "grid": (lambda i: f"field {i % 7}", Category, "7 values"),
}


def test_a_sample_says_of_every_column_what_it_gave_or_why_nothing(tmp_path):
    names = [*KINDS_OF_COLUMNS, "back"]
    rows = [[str(value(i)) for value, _, _ in KINDS_OF_COLUMNS.values()] + [("No", "apple")[i % 2]] for i in range(60)]
    (tmp_path / "public.csv").write_text("\n".join(";".join(row) for row in [names, *rows]))
    (tmp_path / "private.csv").write_text(";".join([*names, "lacking"]))
    code, text = make_schema(tmp_path, "--from", str(tmp_path / "public.csv"), "--ignore", "grid", "--curve", "6")
    assert code == 0, text
    schema, output = Schema.read(tmp_path / "schema.json"), " ".join(["", *text.split()])
    for name, (_, kind, why) in KINDS_OF_COLUMNS.items():
        kind, why = (Ignore, "as was asked") if name == "grid" else (kind, why)
        assert isinstance(schema.columns[name], kind), name
        word = {Ignore: "ignored", Number: "number", Category: "category"}[kind]
        assert why in output.partition(f" {name} {word} ")[2][:170], name
    assert "lacking ignored not in the sample" in output
    assert " features; 12 ignored (name, note, " in output
    assert schema.target == Target("back", ("No", "apple"))  # without "No." and "apple."
    assert not any(word in (tmp_path / "schema.json").read_text() for word in ("Person", "P-0", "2024", "text 3"))
    for options, phrase in (
        (["--curve", "6"], "what a public sample shows to be numbers, and there is none"),
        (["--from", str(tmp_path / "public.csv"), "--curve", "2"], "a curve has from 3 to 64 knots"),
    ):
        code, text = make_schema(tmp_path, *options, out="bent.json")
        assert (code, phrase in text) == (2, True), text


def test_numbers_are_curves_where_values_crowd_or_the_budget_carries_them(tmp_path):
    def public(crowd):
        doses = (i % 30 / 10 + (100 if crowd else 1) * (i % 60 == 0) for i in range(300))
        rows = [f"{i * 7 % 41}.5;{dose};{'yes' if i % 3 else 'no'}" for i, dose in enumerate(doses)]
        (tmp_path / f"{crowd}.csv").write_text("\n".join(["age;dose;back", *rows]))
        return ["--from", str(tmp_path / f"{crowd}.csv")]

    (tmp_path / "private.csv").write_text("age;dose;back\n")
    # mu is .2367 at epsilon 1, and there are 8 features with curves.
    allowances = [["--epsilon", "1", "--delta", "1e-6", "--rows", str(number)] for number in (1000, 2000)]
    crowded, even, number = public(crowd=True), public(crowd=False), ["--target", "dose"]
    for options, are_curves, phrase in (
        (crowded, True, "Numbers are curves, since 1 of the 2 with many values crowd in a small part of"),
        (
            [*crowded, *allowances[0]],
            True,
            "is 29.6 for each of 8 features, and they pay from 1 on, since 1 of the 2",
        ),
        (
            [*crowded, *allowances[0], "--rows", "30"],
            False,
            "Numbers are straight lines: with curves mu N, the budget times the rows, is 0.888 ",
        ),
        ([*crowded, "--curve", "0"], False, "age number bounds"),
        (even, False, "Numbers are straight lines; with --epsilon, --delta and --rows"),
        (
            [*even, *allowances[0]],
            False,
            "Numbers are straight lines: with curves mu N, the budget times the rows, is 29.6 ",
        ),
        ([*even, *allowances[1]], True, "Numbers are curves: mu N, the budget times the rows, is 59.2 "),
        ([*even, *allowances[1], "--adjacency", "replace_one"], False, "the budget times the rows, is 29.6 "),
        ([*crowded, *number], False, "Numbers are straight lines; "),
    ):
        (tmp_path / "schema.json").unlink(missing_ok=True)
        code, text = make_schema(tmp_path, *options)
        assert (code, phrase in " ".join(text.split())) == (0, True), text
        columns = Schema.read(tmp_path / "schema.json").columns
        curves = [columns[name].curve for name in ("age", "dose") if name in columns]
        assert [curve is not None and len(curve) for curve in curves] == [are_curves and 4] * len(curves)
    for options, phrase in (
        (["--epsilon", "1"], "write all three, or none of them"),
        (["--adjacency", "replace_one"], "write all three, or none of them"),
        (allowances[0], "there is no public sample (--from)"),
        ([*allowances[0], *even, "--curve", "6"], "--curve has chosen already"),
        ([*even, "--epsilon", "1", "--delta", "1", "--rows", "9"], "delta is 1.0"),
    ):
        code, text = make_schema(tmp_path, *options, out="none.json")
        assert (code, phrase in " ".join(text.split())) == (2, True), text


def test_a_target_of_few_whole_numbers_is_classes_or_a_number_as_is_said(tmp_path):
    rows = [f"{i % 37};{i % 11}" for i in range(300)]
    (tmp_path / "private.csv").write_text("age;back\n")
    (tmp_path / "public.csv").write_text("\n".join(["age;back", *rows]))
    for options, target in {
        (): Target("back", tuple(range(11))),
        ("classes",): Target("back", tuple(range(11))),
        ("number",): Target("back", bounds=(0, 11)),
    }.items():
        (tmp_path / "schema.json").unlink(missing_ok=True)
        target_options = ["--target-type", *options] if options else []
        code, text = make_schema(tmp_path, "--from", str(tmp_path / "public.csv"), *target_options)
        assert code == 0, text
        assert Schema.read(tmp_path / "schema.json").target == target
        assert ("if they are amounts, --target-type number" in " ".join(text.split())) is (options == ())


def test_a_sample_with_decimal_commas_is_read_with_them_or_refused(tmp_path):
    rows = [f"{i % 90};{i % 100 // 10},{i % 10};{'yes' if i % 3 else 'no'}" for i in range(300)]
    (tmp_path / "private.csv").write_text("age;dose;back\n")
    (tmp_path / "public.csv").write_text("\n".join(["age;dose;back", *rows]))
    code, text = make_schema(tmp_path, "--from", str(tmp_path / "public.csv"))
    assert code == 2
    assert "column 'dose' of the table" in text
    assert "looks like numbers with decimal commas, such as 7,5 for 7.5; say that it is (--decimal ,)" in text
    assert make_schema(tmp_path, "--from", str(tmp_path / "public.csv"), "--decimal", ",", out="comma.json")[0] == 0
    schema = Schema.read(tmp_path / "comma.json")
    assert (schema.columns["dose"].bounds, schema.decimal) == ((0, 10.9), ",")
    assert make_schema(tmp_path, "--from", str(tmp_path / "public.csv"), "--decimal", ".", out="point.json")[0] == 0
    assert isinstance(Schema.read(tmp_path / "point.json").columns["dose"], Category)


def test_columns_of_dates_in_a_typed_sample_are_left_out(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    days = pa.array([0, 1, 2, 3] * 20, pa.date32())
    pq.write_table(
        pa.table({"when": days, "age": [1.5, 2, 3, 4] * 20, "back": ["a", "b"] * 40}), tmp_path / "b.parquet"
    )
    (tmp_path / "private.csv").write_text("when,age,back\n")
    code, text = make_schema(tmp_path, "--from", str(tmp_path / "b.parquet"))
    assert code == 0, text
    assert Schema.read(tmp_path / "schema.json").columns["when"] == Ignore()
    assert "neither numbers nor texts nor booleans: dates, say" in text


def test_a_template_keeps_how_the_table_is_written_and_what_is_left_out(folder):
    assert (
        make_schema(folder, "--decimal", ",", "--encoding", "cp1252", "--ignore", "name", out="mine too.json")[0] == 0
    )
    content = json.loads((folder / "mine too.json").read_text())
    assert (content["decimal"], content["encoding"]) == (",", "cp1252")
    assert content["columns"]["name"] == {"type": "ignore"}
    code, text = make_schema(folder, "--ignore", "nam", out="no.json")
    assert code == 2
    assert "has no column 'nam'" in text


def test_a_template_of_text_has_names_alone_and_is_refused_by_what_it_lacks(folder, tmp_path):
    assert make_schema(folder, out="template.json")[0] == 0
    content = json.loads((folder / "template.json").read_text())
    assert content["columns"] == {name: {"type": None} for name in ("age", "ward", "name")}
    assert content["target"] == {"column": "back", "classes": None, "bounds": None}
    code, text = observed(lambda: main(words(folder, "template.json", out=str(tmp_path / "run"))))
    assert code == 2
    assert "column 'age', 'ward', 'name', 'back' is not declared yet (null)" in text
    assert not (tmp_path / "run").exists()


def test_a_template_of_typed_tables_has_names_and_types_and_no_values(tmp_path):
    (tmp_path / "a.arff").write_text(
        "@relation r\n@attribute age real\n@attribute ward {a,b}\n@attribute back {no,yes}\n@data\n"
    )
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"age": [1.5], "ward": ["a"], "back": ["no"]}), tmp_path / "b.parquet")
    for data in ("a.arff", "b.parquet"):
        assert make_schema(tmp_path, out=f"{data}.json", data=data)[0] == 0
        content = json.loads((tmp_path / f"{data}.json").read_text())
        assert content["columns"] == {
            "age": {"type": "number", "bounds": None},
            "ward": {"type": "category", "values": None},
        }
        assert content["target"] == {"column": "back", "classes": None}
        assert '"a"' not in (tmp_path / f"{data}.json").read_text()


def test_a_schema_is_never_overwritten(folder):
    (folder / "mine.json").write_text("mine")
    code, text = make_schema(folder, out="mine.json")
    assert code == 2
    assert "is there already" in text
    assert (folder / "mine.json").read_text() == "mine"


def test_a_dry_run_plans_what_the_schema_declares_and_opens_no_table(tmp_path):
    schema = declared("no", "yes")
    schema.write(tmp_path / "schema.json")
    os.mkfifo(tmp_path / "private.csv")  # whoever opened it would wait for ever
    args = words(tmp_path, "schema.json", out=str(tmp_path / "run"), protector=None, model="square")
    code, text = observed(lambda: main([*args, "--dry-run", "--rows", "1500"]))
    assert code == 0, text
    assert default_protector("square") in text
    assert f"{len(Encoding(schema).names)} features" in text
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("classes", "model"), [((), "square"), (("no", "yes"), "square"), (("a", "b", "c"), "softmax")]
)
def test_python_takes_the_default_for_the_declared_target_and_checks_it_before_it_reads(
    tmp_path, monkeypatch, classes, model
):
    admitted = []
    named = SimpleNamespace(sources=None, protector=SimpleNamespace(reads_in_order=False))
    monkeypatch.setattr(api, "admit", lambda name, *_, **__: admitted.append(name) or named)
    with pytest.raises(InputError, match="nosuch"):
        l2p.private_train(tmp_path / "nosuch.csv", budget=BUDGET, model=model, schema=declared(*classes))
    assert admitted == [default_protector(model)]


@pytest.mark.slow
def test_a_table_without_a_header_is_named_by_an_option(folder, tmp_path):
    (tmp_path / "bare.data").write_text("\n".join(lines(300, 3)))
    schema = changed(columns=WARD.columns | {"ward": Category(("a", "b"), missing=Missing(indicator=True))})
    schema.write(tmp_path / "schema.json")
    args = words(tmp_path, "schema.json", data="bare.data", out=str(tmp_path / "run"), columns="age,ward,name,back")
    assert main([*args, "--no-header", "--separator", ";"]) == 0


def test_rows_are_null_where_the_schema_says_so_and_refused_otherwise():
    data = {"age": [1, None, "x"], "ward": ["a", "a", "a"], "name": "abc", "back": ["no", "yes", "yes"]}
    data["name"] = list(data["name"])
    assert read_rows(data, Encoding(WARD), "null").mask.tolist() == [1, 1, 0]
    with pytest.raises(InputError, match="column 'age'"):
        read_rows(data, Encoding(WARD))


def test_a_table_that_is_public_makes_its_own_schema(folder, tmp_path):
    out = tmp_path / "public.json"
    args = ["schema", "--from", str(folder / "public.csv.gz"), "--target", "back", "--out"]
    assert main([*args, str(out)]) == 0
    assert Schema.read(out).target.classes == ("no", "yes")
    code, text = observed(lambda: main(["schema", "--target", "back", "--out", str(tmp_path / "none.json")]))
    assert code == 2
    assert "neither a private table nor a public sample is named" in text
