"""`l2p apply --public` and the estimators: rows that anybody may see, beside a private table."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from l2p import Budget, private_train
from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.estimators import PrivateClassifier
from l2p.privacy.card.card import Card
from l2p.tables.public_data import on_card
from l2p.tables.reading.delimited import Delimited
from l2p.tables.schema import Encoding, Number, Schema, Target, read_rows
from l2p.task.rows import Rows
from tests import canaries

SCHEMA = Schema({"age": Number(0, 120), "dose": Number(-1, 1)}, Target("readmit", (0, 1)))
PUBLIC = ["age,dose,readmit", *(f"{3 * place},{place / 40:g},{place % 2}" for place in range(40))]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ward.csv").write_text(canaries.GOOD)
    Path("public.csv").write_text("\n".join(PUBLIC) + "\n")
    SCHEMA.write("schema.json")
    return tmp_path


def words(public="public.csv", protector="noisygd:pretrained", data="ward.csv", out="run", **more):
    options = {"schema": "schema.json", "data": data, "epsilon": "1", "delta": "1e-6", "protector": protector}
    options |= {"out": out, "public": public} | more
    return ["apply", *(word for name, value in options.items() if value is not None for word in (f"--{name}", value))]


def test_a_file_of_public_rows_trains_with_the_table_and_is_on_the_card_and_each_is_read_once(here, monkeypatch):
    swapped = [",".join(line.split(",")[::-1]) for line in PUBLIC]  # columns in another order
    Path("public.csv").write_text("\n".join(swapped) + "\n")
    reads, blocks = [], Delimited.blocks
    monkeypatch.setattr(Delimited, "blocks", lambda self, *args: reads.append(self.path.name) or blocks(self, *args))
    assert main(words(seed="0")) == 0
    assert reads == ["public.csv", "ward.csv"]  # public rows are checked before a private one is read
    monkeypatch.undo()
    monkeypatch.chdir(here)
    card = Card.from_json("run/card.json")
    cells = np.array([line.split(",") for line in PUBLIC[1:]]).T
    columns = dict(zip(("age", "dose", "readmit"), cells, strict=True))
    assert card.public == on_card(read_rows(columns, Encoding(SCHEMA)))
    assert card.public["num_rows"] == 40
    assert main(["account", "--verify", "--card", "run/card.json"]) == 0
    Path("public.csv").unlink()  # predictions need no public rows
    assert main(["predict", "--model", "run", "--data", "ward.csv", "--out", "out.csv"]) == 0


def test_a_dry_run_reads_the_public_rows_and_not_the_table(here, capsys):
    Path("ward.csv").unlink()
    assert main([*words(), "--dry-run", "--rows", "1000"]) == 0
    out = capsys.readouterr().out
    assert "40 public rows" in out
    assert max(map(len, out.splitlines())) <= 80
    Path("public.csv").write_text("age,dose,readmit\n1,0.5,2\n")
    assert main([*words(), "--dry-run"]) == 2


def write(text, name="public.csv"):
    return lambda: Path(name).write_text(text)


def copies():
    Path("copy.csv.gz").write_bytes(gzip.compress(Path("ward.csv").read_bytes()))
    Path("twice.csv").symlink_to("ward.csv")
    head, *lines = canaries.GOOD.splitlines()
    rows = [line.split(",") for line in lines]
    order = [head.split(",").index(name) for name in ("readmit", "dose", "age")]
    turned = [[f"{float(row[place]):.17g}" for place in order] for row in rows[::-1]]
    Path("turned.csv").write_text("\n".join(["readmit;dose;age", *map(";".join, turned)]))


BAD = {
    "none": ({"public": None}, None, "learns from public rows too, and none are given; name a file"),
    "the table": ({"public": "ward.csv"}, None, "the public rows are the private table itself"),
    "a copy": ({"public": "copy.csv.gz"}, copies, "the public rows are the private table itself"),
    "a link": ({"public": "twice.csv"}, copies, "the public rows are the private table itself"),
    "its rows": ({"public": "turned.csv"}, copies, "the public rows are the private table itself"),
    "other columns": ({}, write("age,weight,readmit\n1,2,0\n"), "dose"),
    "more columns": ({}, write("age,dose,weight,readmit\n1,1,2,0\n"), "weight"),
    "no rows": ({}, write("age,dose,readmit\n"), "no rows"),
    "an empty cell": ({}, write("age,dose,readmit\n1,,0\n2,1,1\n"), "dose"),
    "an infinite one": ({}, write("age,dose,readmit\n1,inf,0\n2,1,1\n"), "dose"),
    "another class": ({}, write("age,dose,readmit\n1,1,7\n2,1,1\n"), "readmit"),
    "all alike": ({"protector": "noisygd:projected"}, write("age,dose,readmit\n1,1,0\n1,1,1\n"), "all alike"),
    "no file": ({"public": "nosuch.csv"}, None, "nosuch.csv"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_public_files_cost_one_sentence_and_nothing_else(here, name, capsys):
    change, prepare, phrase = BAD[name]
    if prepare is not None:
        prepare()
    assert main(words(**change)) == 2
    err = capsys.readouterr().err
    assert phrase in err
    assert len(err.strip().splitlines()) == 1
    assert not Path("run").exists()
    # A cell of a public row may be null nowhere: it can be corrected.
    if name == "an empty cell":
        assert main([*words(**change), "--on-invalid", "null"]) == 2


def test_what_apply_prints_does_not_depend_on_whether_a_row_is_public(here):
    lines = canaries.GOOD.splitlines()
    own, public = lines[5], lines[6].replace(lines[6].split(",")[0], "61.25", 1)
    Path("public.csv").write_text("\n".join([*PUBLIC, own]) + "\n")
    observations = []
    for name, line in (("with", own), ("without", public)):
        Path("ward.csv").write_text("\n".join([*lines[:5], line, *lines[6:]]) + "\n")
        # One noise for both: by chance, one of two releases may stand out from it, and its card says so.
        code, text = canaries.observed(lambda out=name: main(words(out=out, seed="0")))
        assert code == 0, text
        card = json.loads(Path(name, "card.json").read_text())
        printed = [line for line in text.splitlines() if not line.startswith(("Created", "written to"))]
        observations.append((printed, card | {"created": None}, sorted(path.name for path in Path(name).iterdir())))
    assert observations[0] == observations[1]


def test_private_choice_reads_public_rows_too(here):
    assert main(words(protector="noisygd:pretrained:private", public=None)) == 2
    assert main([*words(protector="noisygd:pretrained:private", seed="3"), "--dry-run"]) == 0


# ----------------------------------------------------------------------------------------------------------- estimators
def problem():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 9, (300, 2))
    return x, np.where(x[:, 0] > 4, "yes", "no")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:simulation_seed is set")
def test_estimators_take_public_rows_and_refuse_what_they_cannot_use():
    x, y = problem()
    declared = {"bounds": (0, 9), "classes": ["no", "yes"], "simulation_seed": 0}
    classifier = PrivateClassifier(5.0, protector="noisygd:pretrained", public=(x[:20], y[:20]), **declared).fit(x, y)
    assert classifier.card_.public["num_rows"] == 20
    for public, phrase in (
        (None, "learns from public rows too"),
        ((x, y), "the private table itself"),
        (x[:20], r"pass public=\(X, y\)"),
        ((x[:20], np.full(20, "maybe")), "labels other than"),
    ):
        with pytest.raises(InputError, match=phrase):
            PrivateClassifier(5.0, protector="noisygd:pretrained", public=public, **declared).fit(x, y)


def test_encoded_rows_say_where_public_ones_belong():
    rows = Rows(np.ones((900, 1)), np.ones(900), np.ones(900))
    with pytest.raises(InputError, match="Task takes public rows"):
        private_train(rows, "noisygd", Budget(1.0, 1e-5), public=rows.replace(x=rows.x / 2))
