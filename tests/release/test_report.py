"""The page of everything that a run left: each fact once, and nothing that is not in its folder."""

import re
import shutil

import jax
import numpy as np
import pytest

import l2p
from l2p.commands.cli import main
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.tables.schema import Category, Ignore, Missing, Number, Schema, Target
from tests.privacy.cards import Page

WARD = Schema(
    {"age": Number(0, 120, Missing(60)), "ward": Category(("a", "b")), "id": Ignore()},
    Target("back", classes=("goes home", "stays")),
)
BUDGET = l2p.Budget(1.0, 1e-5)


def table(count=400):
    random = np.random.default_rng(0)
    age, ward = random.uniform(0, 120, count), random.choice(["a", "b"], count)
    back = np.where(age + 20 * (ward == "a") > 70, "stays", "goes home")
    return {"age": age, "ward": ward, "id": np.arange(count), "back": back}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a simulation, which compiles nothing but its steps."""
    folder = tmp_path_factory.mktemp("run")
    l2p.private_train(table(), "noisygd", BUDGET, key=jax.random.key(0), schema=WARD).save(folder)
    return folder


@pytest.fixture
def run(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")


def test_a_report_has_everything_of_a_run_once(run, capsys, monkeypatch):
    (run / "metrics.json").write_text('{"accuracy": 0.875, "outside_guarantee": true}')
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["report", str(run), "--open"]) == 0
    assert str(run / "report.html") in capsys.readouterr().out
    assert opened == [(run / "report.html").as_uri()]
    text = (run / "report.html").read_text()
    titles = [title for tag, title in Page(text).titles if tag == "h2"]
    assert len(titles) == len(set(titles))
    assert titles[0] == "What it means"
    assert titles[-3:] == ["Model", "Encoding", "Scores on a test table"]  # nothing is foretold of noisygd
    for sentence in ("NOT A PRIVATE RELEASE", "0.875", "number, bounds 0, 120", "the target: classes goes home, stays"):
        assert text.count(sentence) == 1
    assert {"ward=a", "ward=b"} <= set(re.findall(r'<th scope="row">([^<]*)</th>', text))
    for figure in ("noise", "clipping", "spending"):
        assert text.count(f'id="{figure}-title"') == 1
    assert not re.search("<script|https?:|<link|src=", text)


def test_a_report_lists_the_runs_of_a_ledger_in_place_of_those_on_the_card(run, tmp_path):
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "gdp", limit_of("gdp", BUDGET))
    reservation = ledger.reserve(ledger.left(), "all of it, once")
    assert main(["report", str(run), "--ledger", str(ledger.path), "--out", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert text.count(reservation) == text.count("all of it, once") == 1
    assert "Other releases on these rows" not in text


@pytest.mark.parametrize(
    ("file", "content", "phrase"),
    [
        ("card.json", None, "cannot be read (No such file"),
        ("trace.csv", "step,query\n1,a\n", "trace.csv is not as a run leaves it"),
        ("model.safetensors", "{}", "model.safetensors is not as a run leaves it"),
        ("metrics.json", "[1", "metrics.json is not as a run leaves it"),
        ("schema.json", "{}", "schema.json"),
    ],
)
def test_what_no_run_wrote_is_refused_in_a_sentence(run, capsys, file, content, phrase):
    (run / file).unlink(missing_ok=True)
    if content is not None:
        (run / file).write_text(content)
    assert main(["report", str(run)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert phrase in err
