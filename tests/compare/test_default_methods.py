"""Methods that `l2p compare` runs if none is named, from a checkout and from what a wheel carries."""

import shutil
import tomllib
from pathlib import Path

import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.checkpoints.lookup import resolve
from l2p.commands.cli import main
from l2p.compare import default_methods, results
from l2p.compare.config import CompareConfig
from l2p.compare.default_methods import HAND_DESIGNED, candidates, with_methods
from l2p.compare.inputs import kind_of, load_rows, model_of, title_of
from l2p.privacy.budget import Budget
from l2p.tables.schema import Category, Number, Schema, Target
from l2p.tables.schema.target import Unit
from l2p.task.rows import Rows

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {"age": Number(0, 100), "ward": Category(("north", "south"))}
TABLE = "ward;age;back\n" + "north;61;yes\nsouth;24;no\nsouth;35;no\nnorth;70;yes\n" * 10


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """The checkpoints that a wheel carries, as the only folder of them."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    carried = tmp_path / "l2p/_checkpoints"
    for source, target in patterns["sources"].items():
        for path in (ROOT / source).rglob("*.*"):
            inner = path.relative_to(ROOT)
            if not any(part.match(pattern) for pattern in patterns["exclude"] for part in (inner, *inner.parents)):
                place = tmp_path / target / path.relative_to(ROOT / source)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
    monkeypatch.setattr(checkpoint, "CARRIED", carried)
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path / "nowhere", carried))


def raw(folder, schema=None):
    """A small raw table and its schema, as `l2p compare` takes them."""
    (folder / "ward.csv").write_text(TABLE)
    (schema or Schema(COLUMNS, Target("back", classes=("no", "yes")))).write(folder / "ward.json")
    return ["compare", "--data", str(folder / "ward.csv"), "--schema", str(folder / "ward.json")]


def test_candidates_are_the_learned_ones_for_the_model_and_the_strongest_rivals():
    names = candidates(CompareConfig("ipums_br", Path("cmp")))
    assert names == ["universal", "control-universal", "paper-adult", *HAND_DESIGNED]
    pairs = {model: candidates(CompareConfig("ipums_br", Path("cmp"), model=model))[2] for model in ("svm", "mlp")}
    assert pairs == {"svm": "paper-svm-adult", "mlp": "paper-mlp-adult"}
    assert "paper-ipums_br" in candidates(CompareConfig("adult", Path("cmp")))  # the other one was made from it


def test_those_that_do_not_fit_are_left_out_with_a_sentence(tmp_path, monkeypatch):
    config = CompareConfig("diabetes", tmp_path, model="square", epsilon=(1.0,), delta=1e-5)
    names = ["noisygd", "agd:tuned"]
    monkeypatch.setattr(default_methods, "candidates", lambda config: names)
    rows = load_rows(config)
    config, left_out = with_methods(config, rows)
    assert config.methods == ("noisygd",)
    assert [reason.partition(" is left out: ")[0] for reason in left_out] == ["agd:tuned", "a pair of LSTMs"]
    monkeypatch.setattr(default_methods, "candidates", lambda config: ["paper-adult"])
    narrow = CompareConfig("breast_cancer", tmp_path, epsilon=(1.0,), delta=1e-5)
    _, (reason,) = with_methods(narrow, Rows(rows.x[:, :4], (rows.y > 0.5) * 1.0, rows.mask))
    assert reason.startswith("paper-adult is left out: 4 features are outside the protector's range, 8 to 104")


@pytest.mark.parametrize("data", ["adult", "ipums_br", "breast_cancer"])
def test_a_wheel_carries_all_of_them(wheel, data):
    for name in candidates(CompareConfig(data, Path("cmp"))):
        assert resolve(name, Budget(1.0, 1e-6), "logistic", avoid=(data,), num_rows=400).name == name
    with pytest.raises(InputError, match="in a clone type `python -m l2p` in place"):
        resolve("control-universal-narrow", Budget(1.0, 1e-6), "logistic")


def test_a_raw_table_is_encoded_by_its_schema(tmp_path):
    raw(tmp_path)
    files = {"data": str(tmp_path / "ward.csv"), "schema": tmp_path / "ward.json", "out": tmp_path, "separator": ";"}
    rows, config = load_rows(CompareConfig(**files)), CompareConfig(**files, model="square")
    assert rows.x[:2].tolist() == [pytest.approx([0.61, 1.0, 0.0]), pytest.approx([0.24, 0.0, 1.0])]
    assert rows.y[:4].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert (str(model_of(config)), kind_of(config)) == ("square", "binary")
    assert title_of(config, "square") == "ward.csv, target back, model square, delta 1e-08, 10 seeds"


@pytest.mark.slow
def test_a_raw_table_is_compared_by_its_schema(tmp_path, capsys):
    words = [*raw(tmp_path), "--separator", ";", "--epsilon", "5", "--delta", "1e-5", "--seeds", "1"]
    assert main([*words, "--methods", "noisygd,no_features", "--out", str(tmp_path / "cmp")]) == 0
    (private, constant) = results.read(tmp_path / "cmp" / "results.csv")
    assert private["test_loss"] < constant["test_loss"]
    assert (private["method"], private["model"], private["test_auc"]) == ("noisygd", "logistic", 1.0)
    assert main([*words, "--methods", "noisygd,no_features", "--out", str(tmp_path / "cmp")]) == 0  # it resumes


@pytest.mark.parametrize(
    ("schema", "words", "phrase"),
    [
        ({}, ["--model", "quadratic"], "which model quadratic does not learn"),
        ({"unit": Unit("person", 2)}, [], "a unit whose rows are protected together"),
        ({"target": Target("back", classes=("no", "yes"), weights=(1.0, 2.0))}, [], "weights of classes"),
        ({"columns": {**COLUMNS, "age": Number.private()}}, [], "bounds that are bought with the budget"),
    ],
)
def test_a_schema_that_a_comparison_cannot_follow_is_refused(tmp_path, capsys, schema, words, phrase):
    fields = {"columns": COLUMNS, "target": Target("back", classes=("no", "yes"))} | schema
    words = [*raw(tmp_path, Schema(**fields)), "--separator", ";", "--epsilon", "5", "--delta", "1e-5", *words]
    assert main([*words, "--methods", "noisygd", "--seeds", "1", "--out", str(tmp_path / "cmp")]) == 2
    assert phrase in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["--data", "ward.csv"], "write a schema with l2p schema ward.csv --target COLUMN --out schema.json"),
        (["--data", "nosuch.arff", "--schema", "nosuch.json"], "nosuch.json"),
        (["--data", "duckdb://a.db?table=t", "--schema", "ward.json"], "export the table to a file"),
    ],
)
def test_a_table_that_is_not_declared_costs_a_sentence(tmp_path, monkeypatch, capsys, words, phrase):
    raw(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *words, "--methods", "noisygd", "--out", "cmp"]) == 2
    assert phrase in capsys.readouterr().err
    assert not Path("cmp").exists()
