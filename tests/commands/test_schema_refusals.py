"""Tables and schemas that do not fit are refused before anything is spent, without a word of a cell."""

import gzip

import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.tables.own import content_sha256, own_source
from l2p.tables.same_table import TEST, refuse_own, refuse_shared
from l2p.tables.schema import Category, Ignore, Missing, Number, Target, Unit
from l2p.task.rows import Rows
from tests.canaries import COUNT, NUMBER, WORD, N, leaks, observed
from tests.commands.raw_tables import BUDGET, HEADER, WARD, changed, lines, make_schema, words

REFUSED = [
    (changed(unit=Unit("person", 2)), "logistic", "has no column 'person'"),
    (changed(target=Target("back", ("no", "yes", "maybe"))), "logistic", "choose softmax, or leave the model out"),
    (changed(target=Target("back", bounds=(0, 1))), "logistic", "choose square or quadratic"),
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
