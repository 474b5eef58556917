"""`l2p schema` and `l2p apply --schema`: from a raw table to a model."""

import gzip
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.checkpoints.defaults import default_protector
from l2p.commands.cli import main
from l2p.release import api
from l2p.release.prediction import saved
from l2p.tables.own import content_sha256, own_source
from l2p.tables.same_table import TEST, refuse_own, refuse_shared
from l2p.tables.schema import Category, Encoding, Ignore, Missing, Number, Schema, Target, Unit, read_rows
from l2p.task.rows import Rows
from tests.canaries import COUNT, NUMBER, WORD, N, leaks, observed

HEADER = "age;ward;name;back"
BUDGET = l2p.Budget(2.0, 1e-6)


def lines(count, seed, dotted=False):
    """Ages, wards of which one is rare and some are missing, names that are all different, and words for labels."""
    rng = np.random.default_rng(seed)
    for place, (age, ward) in enumerate(
        zip(rng.integers(0, 100, count), rng.choice(["a", "b", "?"], count), strict=True)
    ):
        back = "yes" if age + 40 * (ward == "a") > 70 else "no"
        yield f"{age if age % 9 else '?'}; {ward}; person {seed} {place}; {back}{'.' if dotted else ''}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ward")
    (folder / "private.csv").write_text("\n".join([HEADER, *lines(1500, 0)]))
    sample = [*lines(299, 1), "7; a; somebody; yes."]
    (folder / "public.csv.gz").write_bytes(gzip.compress("\n".join([HEADER, *sample]).encode()))
    (folder / "test.csv").write_text("\n".join([HEADER, *lines(500, 2, dotted=True)]))
    return folder


def make_schema(folder, *options, out="schema.json", data="private.csv"):
    return observed(
        lambda: main(["schema", str(folder / data), "--target", "back", "--out", str(folder / out), *options])
    )


def words(folder, declared, data="private.csv", **changes):
    options = {
        "--protector": "noisygd",
        "--data": str(folder / data),
        "--schema": str(folder / declared),
        "--epsilon": "2",
        "--delta": "1e-6",
    } | {"--" + name: value for name, value in changes.items()}
    return ["apply", *(word for pair in options.items() for word in pair if pair[1] is not None)]


@pytest.mark.slow
def test_a_public_sample_completes_a_schema_that_apply_runs_unedited(folder, tmp_path):
    code, text = make_schema(folder, "--from", str(folder / "public.csv.gz"), out="public.json")
    assert code == 0, text
    assert "2 columns to learn from, 1 ignored (name)" in text
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
    "age": (lambda i: 20 + i * 7 % 41, Number, "bounds 16 to 64"),
    "visits": (lambda i: i % 5, Number, "bounds 0 to 4.4"),
    "weight": (lambda i: f"{50 + i * 17 % 60}.{i}", Number, "bounds"),
    "ward": (lambda i: "nse"[i % 3], Category, "3 values"),
    "grid": (lambda i: f"field {i % 7}", Category, "7 values"),
}


def test_a_sample_says_of_every_column_what_it_gave_or_why_nothing(tmp_path):
    names = [*KINDS_OF_COLUMNS, "back"]
    rows = [[str(value(i)) for value, _, _ in KINDS_OF_COLUMNS.values()] + [("No", "apple")[i % 2]] for i in range(60)]
    (tmp_path / "public.csv").write_text("\n".join(";".join(row) for row in [names, *rows]))
    (tmp_path / "private.csv").write_text(";".join([*names, "lacking"]))
    code, text = make_schema(tmp_path, "--from", str(tmp_path / "public.csv"), "--ignore", "grid")
    assert code == 0, text
    schema, output = Schema.read(tmp_path / "schema.json"), " ".join(["", *text.split()])
    for name, (_, kind, why) in KINDS_OF_COLUMNS.items():
        kind, why = (Ignore, "as was asked") if name == "grid" else (kind, why)
        assert isinstance(schema.columns[name], kind), name
        word = {Ignore: "ignored", Number: "number", Category: "category"}[kind]
        assert why in output.partition(f" {name} {word} ")[2][:170], name
    assert "lacking ignored not in the sample" in output
    assert "4 columns to learn from, 12 ignored (name, note, " in output
    assert schema.target == Target("back", ("No", "apple"))  # without "No." and "apple."
    assert not any(word in (tmp_path / "schema.json").read_text() for word in ("Person", "P-0", "2024", "text 3"))


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


WARD = Schema(
    {"age": Number(0, 100, Missing(50)), "ward": Category(("a", "b")), "name": Ignore()}, Target("back", ("no", "yes"))
)


@pytest.mark.slow
def test_python_takes_a_path_a_frame_and_an_array_and_trains_alike(folder):
    schema = Schema(WARD.columns | {"ward": Category(("a", "b"), missing=Missing(indicator=True))}, WARD.target)
    import jax

    def trained(data):
        return l2p.private_train(data, "noisygd", BUDGET, key=jax.random.key(0), schema=schema)

    cells = [[cell.strip() for cell in line.split(";")] for line in lines(1500, 0)]
    first = trained(folder / "private.csv")
    columns = dict(zip(HEADER.split(";"), zip(*cells, strict=True), strict=True))
    for data in ([str(folder / "private.csv")], np.array(cells), columns):
        np.testing.assert_array_equal(trained(data).params, first.params)
    assert first.schema == schema
    assert first.card.table == {"name": "private.csv", "target": "back"}
    assert trained(columns).card.table == {"name": None, "target": "back"}
    pd = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    np.testing.assert_array_equal(trained(pd.DataFrame(columns)).params, first.params)
    pl = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    np.testing.assert_array_equal(trained(pl.DataFrame(columns)).params, first.params)


def changed(**changes):
    fields = {"columns": WARD.columns, "target": WARD.target} | changes
    return Schema(**fields)


REFUSED = [
    (changed(unit=Unit("person", 2)), "logistic", "has no column 'person'"),
    (changed(target=Target("back", ("no", "yes", "maybe"))), "logistic", "choose --model softmax"),
    (changed(target=Target("back", bounds=(0, 1))), "logistic", "choose --model square or quadratic"),
    (changed(target=Target("Back", ("no", "yes"))), "logistic", "has no column 'Back'; did you mean 'back'?"),
    (
        changed(columns={"age": Number(0, 100, Missing(50)), "name": Ignore()}),
        "logistic",
        "columns that the schema does not declare: 'ward'",
    ),
    (WARD, "logistic", "column 'ward' has cells that are missing"),
    (
        changed(columns=WARD.columns | {"ward": Ignore()}, target=Target("back", ("yes", "perhaps"))),
        "logistic",
        "labels other than 'yes', 'perhaps'",
    ),
    (
        changed(columns=WARD.columns | {"ward": Ignore(), "name": Number(0, 1)}),
        "logistic",
        "column 'name' has cells that are missing, infinite or no numbers",
    ),
]


@pytest.mark.parametrize(("schema", "model", "phrase"), REFUSED, ids=range(len(REFUSED)))
def test_what_does_not_fit_the_schema_is_refused_before_anything_is_spent(folder, tmp_path, schema, model, phrase):
    schema.write(tmp_path / "schema.json")
    args = words(folder, tmp_path / "schema.json", out=str(tmp_path / "run"), model=model)
    code, text = observed(lambda: main(args))
    assert code == 2
    assert phrase in text
    assert "person 0" not in text
    assert text.strip().count("\n") == 0
    with pytest.raises(InputError):
        l2p.private_train(folder / "private.csv", "noisygd", BUDGET, schema=schema, model=model)


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({"schema": None}, "write one with l2p schema DATA --target COLUMN --out schema.json"),
        ({"columns": "a,b"}, "--no-header"),
        ({"separator": "ab"}, "must be one character"),
    ],
)
def test_options_that_contradict_each_other_are_refused(folder, tmp_path, options, phrase):
    WARD.write(folder / "ward.json")
    code, text = observed(lambda: main(words(folder, "ward.json", out=str(tmp_path / "run"), **options)))
    assert code == 2
    assert phrase in text


def declared(*classes):
    target = Target("back", classes=classes) if classes else Target("back", bounds=(0.0, 9.0))
    return Schema({"age": Number(0, 99), "ward": Category(("a", "b"))}, target)


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
    monkeypatch.setattr(api, "admit", lambda name, *_, **__: admitted.append(name) or SimpleNamespace(sources=None))
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


CANARIES = {
    "a word for a number": f"{WORD}; a; n; yes",
    "a number out of bounds": f"{NUMBER}; a; n; yes",
    "a word for a label": f"{NUMBER}; a; n; {WORD}",
    "a value in no category": f"7; {WORD}; n; yes",
    "a row too long": f"7; a; n; yes; {WORD}",
    "an open quote": f'7; a; "{WORD}; yes',
}


@pytest.mark.slow(cases=["refuse-a number out of bounds"])
@pytest.mark.parametrize("name", CANARIES)
@pytest.mark.parametrize("on_invalid", ["refuse", "null"])
def test_nothing_of_a_cell_is_told(tmp_path, name, on_invalid):
    rows = [CANARIES[name], *(line for line, _ in zip(lines(COUNT - 1, 0), range(COUNT - 1), strict=True))]
    (tmp_path / "private.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    changed(columns=WARD.columns | {"ward": Category(("a", "b"), missing=Missing(indicator=True))}).write(
        tmp_path / "s.json"
    )
    args = words(tmp_path, "s.json", out=str(tmp_path / "run"), adjacency="add_remove", rows=str(N))
    code, text = observed(lambda: main([*args, "--on-invalid", on_invalid]), tmp_path / "run")
    assert code in (0, 2), text
    assert (code == 2) == (name in ("a row too long", "an open quote") or (on_invalid == "refuse" and "word" in name))
    assert leaks(text) == []
    assert WORD not in text


def test_a_table_given_for_a_schema_is_not_quoted(folder, tmp_path):
    for text in (
        f"{NUMBER}\n",
        f'{{"{WORD}": 1, "{WORD}": 2}}',
        f"[{NUMBER}, {{]",
        f"{HEADER}\n{WORD}",
        f'{{"{WORD}": NaN}}',
    ):
        (tmp_path / "schema.json").write_text(text)
        code, output = observed(lambda: main(words(folder, tmp_path / "schema.json", out=str(tmp_path / "run"))))
        assert code == 2
        assert leaks(output) == []


def rewritten(folder, name):
    """The private table under another name: its bytes, packed, its rows in another format, or a part of them."""
    path = folder / "private.csv"
    head, *rows = path.read_text().splitlines()
    turned = [",".join(cell.strip() for cell in row.split(";")[::-1]) for row in rows[::-1]]
    (folder / "copy.csv").write_bytes(path.read_bytes())
    (folder / "copy.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    (folder / "turned.csv").write_text("\n".join([",".join(head.split(";")[::-1]), *turned]))
    (folder / "part.csv").write_text("\n".join([head, *rows[100:400], *(f"{place}.5;a;n;no" for place in range(60))]))
    return folder / name


@pytest.mark.parametrize("name", ["private.csv", "copy.csv", "copy.csv.gz", "turned.csv", "part.csv"])
def test_a_private_table_is_no_public_sample_of_itself_nor_its_own_test_table(folder, tmp_path, name):
    rng = np.random.default_rng(3)
    table = [
        f"{age:.6f};{ward};n;{back}"
        for age, ward, back in zip(
            rng.uniform(0, 99, 600), rng.choice(["a", "b"], 600), rng.choice(["no", "yes"], 600), strict=True
        )
    ]
    (tmp_path / "private.csv").write_text("\n".join([HEADER, *table]))
    sample = rewritten(tmp_path, name)
    code, text = make_schema(tmp_path, "--from", str(sample), out="exact.json")
    assert code == 2
    assert "the public sample holds the private table's own rows" in text
    assert "l2p schema --from FILE" in text
    assert not (tmp_path / "exact.json").exists()
    WARD.write(tmp_path / "s.json")
    code, text = observed(lambda: main(words(tmp_path, "s.json", out=str(tmp_path / "run"), test=str(sample))))
    assert code == 2
    assert "the test table holds the private table's own rows" in text
    assert not (tmp_path / "run").exists()


def test_tables_that_agree_by_accident_are_others():
    """Rows of few values are the same in any two tables."""
    rng = np.random.default_rng(0)
    for values in (3, 200, 1000, 100_000):
        drawn = [Rows(rng.integers(0, values, n)[:, None] / values, np.ones(n), np.ones(n)) for n in (1000, 300)]
        refuse_shared(drawn[:1], drawn[1], TEST)
        for other_rows in (drawn[0], drawn[0].replace(x=drawn[0].x[::-1])):
            with pytest.raises(InputError, match="own rows"):
                refuse_shared(drawn[:1], other_rows, TEST)


def test_a_table_that_is_public_makes_its_own_schema(folder, tmp_path):
    out = tmp_path / "public.json"
    args = ["schema", "--from", str(folder / "public.csv.gz"), "--target", "back", "--out"]
    assert main([*args, str(out)]) == 0
    assert Schema.read(out).target.classes == ("no", "yes")
    code, text = observed(lambda: main(["schema", "--target", "back", "--out", str(tmp_path / "none.json")]))
    assert code == 2
    assert "neither a private table nor a public sample is named" in text


def test_a_protector_that_learned_from_the_private_table_is_refused(tmp_path):
    path = tmp_path / "ward.csv"
    path.write_text("a,b\n1,2\n")
    refuse_own([path], ["adult", "table:ward:0123456789abcdef"])
    with pytest.raises(InputError, match="meta-trained on the private table itself"):
        refuse_own([str(path)], ["adult", own_source("bank", content_sha256(path))])


def test_a_headerless_table_is_not_quoted_by_l2p_schema(tmp_path):
    (tmp_path / "private.csv").write_text(f"{WORD};yes;no\n" * COUNT)
    (tmp_path / "public.csv").write_text(f"{HEADER}\n61;a;n;yes\n7;b;m;no\n")
    for options in ([], ["--from", str(tmp_path / "public.csv")]):
        code, text = make_schema(tmp_path, *options)
        assert code == 2
        assert leaks(text) == []
