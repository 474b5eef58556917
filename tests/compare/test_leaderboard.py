"""The leaderboard page: the committed one, and the results that are refused."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest

from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.compare import results
from l2p.compare.config import CompareConfig
from l2p.compare.leaderboard import command, page, read_all, read_comparison
from l2p.compare.runner import compare

COMMITTED = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "ipums_br"


@pytest.fixture
def folder(tmp_path):
    """A folder with one comparison, to be damaged."""
    (tmp_path / "ours").mkdir()
    for name in ("results.csv", "inputs.json"):
        shutil.copy(COMMITTED / name, tmp_path / "ours")
    return tmp_path


def spoil(folder, **changes):
    """Change the first row."""
    path = folder / "ours" / "results.csv"
    first, *others = results.read(path)
    results.write(path, [first | changes, *others])


def relabel(folder, **changes):
    path = folder / "ours" / "inputs.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        (lambda f: spoil(f, epsilon_certified=0.013), "is certified for epsilon 0.013, which is not within its budget"),
        (lambda f: spoil(f, epsilon_certified=None), "is certified for epsilon None"),
        (lambda f: spoil(f, seed=1), "seed 1 occurs twice"),
        (lambda f: spoil(f, method="unknown"), "inputs.json does not say which protector ran"),
        (lambda f: spoil(f, data="adult"), "data is 'adult', but inputs.json says 'ipums_br'"),
        (lambda f: relabel(f, delta=1e-6), "delta is 1e-08, but inputs.json says 1e-06"),
        (lambda f: results.write(f / "ours" / "results.csv", []), "has no rows"),
        (lambda f: (f / "ours" / "inputs.json").unlink(), "does not say what the results beside it depend on"),
        (lambda f: (f / "ours" / "results.csv").unlink(), "holds no folder with a results.csv"),
        (lambda f: (f / "ours" / "results.csv").write_text("a,b\n1,2\n"), "not a comparison's results"),
    ],
)
def test_results_that_do_not_hold_together_are_refused(folder, capsys, change, phrase):
    change(folder)
    assert main(["leaderboard", str(folder), "--out", str(folder / "page.md")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert phrase in err
    assert not (folder / "page.md").exists()


def test_two_comparisons_of_one_set_must_share_table_and_splits(folder):
    shutil.copytree(folder / "ours", folder / "theirs")
    assert len(read_all(folder)) == 2
    relabel(folder, splits_sha256="0" * 64)
    with pytest.raises(InputError, match=r"ours differ in splits_sha256|theirs and .*ours differ in splits_sha256"):
        read_all(folder)


def test_oracles_and_paper_forms_are_marked_and_not_ranked(folder):
    path = folder / "ours" / "results.csv"
    rows = results.read(path)
    ours = [row for row in rows if row["method"] == "universal"]
    rows += [
        row | {"method": "universal:oracle", "epsilon_certified": float("inf"), "test_accuracy": 0.99} for row in ours
    ]
    rows += [row | {"method": "form", "adjacency": "add_remove", "test_accuracy": 0.98} for row in ours]
    results.write(path, rows)
    relabel(folder, protectors=dict.fromkeys(row["method"] for row in rows))
    text = page(folder)
    assert "| universal:oracle † | oracle | gdp | 0.9900" in text
    assert "| form ‡ | learned | gdp | 0.9800" in text
    lines = [line for line in text[text.index("| method | form") :].splitlines() if line.startswith("| ")]
    assert re.match(r"\| [a-z_-]+ \| (learned|control) \| gdp \|", lines[2])  # not one of those with higher accuracy
    assert all("| – | [ours]" in line for line in lines if "†" in line or "‡" in line or "nonprivate" in line)
    assert "universal has the best test accuracy" in text
    assert "certified for other neighbours than zero_out" in text


@pytest.mark.slow
def test_what_compare_writes_can_be_submitted(tmp_path):
    config = CompareConfig(
        "breast_cancer", tmp_path / "mine", methods=("noisygd",), epsilon=(2.0,), delta=1e-5, seeds=2
    )
    rows = compare(config)
    comparison = read_comparison(config.out)
    assert comparison.rows == rows
    assert comparison.inputs["versions"].keys() >= {"l2p", "jax", "numpy"}
    assert comparison.inputs["protectors"] == {"noisygd": None}
    assert command(comparison) == (
        "l2p compare --data breast_cancer --model logistic --methods noisygd --epsilon 2 --delta 1e-05 --seeds 2 "
        "--adjacency zero_out --out runs/mine"
    )
    stricter = dataclasses.replace(config, delta=1e-6, out=tmp_path / "other")
    compare(stricter)
    text = page(tmp_path)
    assert "δ = 1e-05" in text
    assert "δ = 1e-06" in text
