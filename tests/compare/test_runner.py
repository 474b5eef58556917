"""Comparisons: results, empty cells, notes, and input that is refused before anything runs."""

import csv
import dataclasses

import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint, lookup
from l2p.compare import results
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import load_rows, resolve_methods
from l2p.compare.runner import compare, curves, main
from l2p.compare.summary import report
from l2p.privacy import Adjacency
from l2p.privacy.budget import Budget
from l2p.privacy.cost import sampling
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.by_hand.gradient_descent import noisygd
from l2p.protectors.hand_designed import HandDesigned
from l2p.tables.schema import Number, Schema, Target


@pytest.mark.slow
def test_results_and_summary(config, capsys):
    main(config)
    with (config.out / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == results.COLUMNS
    assert [(row["method"], row["seed"]) for row in rows] == [
        (m, s) for m in config.methods for _ in "ab" for s in "01"
    ]
    assert {row["accountant"] for row in rows} == {"gdp", "none"}
    assert {row["epsilon_certified"] for row in rows if row["method"] == "nonprivate"} == {"inf"}
    for row in rows:
        assert 0.5 < float(row["test_accuracy"]) <= 1
        assert 0.5 < float(row["test_auc"]) <= 1
        if row["method"] == "noisygd":
            assert float(row["epsilon_certified"]) <= float(row["epsilon"])
    assert "Test accuracy" in capsys.readouterr().out
    assert "| method | ε = 0.5 | ε = 2 |" in (config.out / "summary.md").read_text()
    assert (config.out / "figure.svg").stat().st_size > 0


def test_a_method_that_cannot_certify_gives_empty_cells(config):
    config = dataclasses.replace(config, methods=("noisygd", "agd"), epsilon=(2.0,), accountant="gdp", seeds=1)
    noisygd, agd = compare(config)
    assert results.is_scored(noisygd)
    assert "cannot price" in agd["note"]
    assert agd["test_accuracy"] is agd["epsilon_certified"] is None
    assert results.against_first([noisygd, agd], "test_accuracy") == {"agd": {2.0: None}}


def test_an_accountant_without_a_theorem_for_a_method_gives_empty_cells(config):
    (agd,) = compare(dataclasses.replace(config, methods=("agd",), epsilon=(2.0,), accountant="pld", seeds=1))
    assert "no theorem for full batch" in agd["note"]
    assert agd["test_accuracy"] is agd["epsilon_certified"] is None


@pytest.mark.long
def test_dpsgd_is_compared_where_its_accountant_has_a_theorem_and_noted_where_not(config, tmp_path):
    config = dataclasses.replace(config, methods=("noisygd", "dpsgd"), epsilon=(2.0,), seeds=1)
    noisygd, dpsgd = compare(config)
    assert results.is_scored(noisygd)
    assert (dpsgd["accountant"], dpsgd["steps"], dpsgd["note"]) == ("rdp", 200, "")
    assert dpsgd["test_accuracy"] > 0.8
    assert 0.98 * 2.0 < dpsgd["epsilon_certified"] <= 2.0
    by_gdp = dataclasses.replace(config, out=tmp_path / "gdp", accountant="gdp")
    noisygd, dpsgd = compare(by_gdp)
    assert results.is_scored(noisygd)
    assert "no theorem for Poisson sampling" in dpsgd["note"]
    assert dpsgd["test_accuracy"] is dpsgd["epsilon_certified"] is None


def test_batches_set_up_for_another_table_are_not_scored(config, tmp_path):
    protector = dataclasses.replace(
        HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5)), sampler=sampling.FixedSize(50, 999), num_steps=5
    )
    checkpoint.save(protector, tmp_path / "batches.safetensors", {"sources": []})
    methods = (str(tmp_path / "batches.safetensors"),)
    rows = compare(dataclasses.replace(config, methods=methods, epsilon=(2.0,), adjacency="replace_one"))
    assert all(row["test_accuracy"] is row["epsilon_certified"] is None for row in rows)
    assert all("set up for 999 rows, but the table has" in row["note"] for row in rows)


@pytest.mark.slow
def test_curves_end_where_runs_do_and_their_shares_are_the_budget(config):
    losses, shares = curves(config, 2.0)
    assert losses.keys() == shares.keys() == {"noisygd"}  # a run without privacy spends nothing
    assert losses["noisygd"].shape == shares["noisygd"].shape == (2, 50)
    np.testing.assert_allclose(shares["noisygd"].sum(1), 1.0, rtol=1e-3)
    ends = [
        float(row["train_loss"]) for row in compare(dataclasses.replace(config, methods=("noisygd",), epsilon=(2.0,)))
    ]
    np.testing.assert_allclose(losses["noisygd"][:, -1], ends, rtol=1e-3)
    assert (losses["noisygd"][:, -1] < losses["noisygd"][:, 0]).all()


@pytest.mark.long
def test_papers_forms_keep_their_neighbours_and_accountants_and_are_marked(config, capsys):
    config = dataclasses.replace(config, methods=("sgd_adv", "sgd_ma"), epsilon=(0.05, 2.0), delta=1e-8)
    config = dataclasses.replace(config, accountant="rdp", seeds=1)
    main(config)
    printed, summary = capsys.readouterr().out, (config.out / "summary.md").read_text()
    rows = compare(config)  # resumed: the existing cells agree with the config
    adv, ma = rows[:2], rows[2:]
    assert {(row["adjacency"], row["accountant"]) for row in adv} == {("replace_one", "strong_composition")}
    assert {(row["adjacency"], row["accountant"]) for row in ma} == {("add_remove", "moments")}
    assert [row["steps"] for row in adv] == [1, 2]  # N epsilon / 500
    assert all(results.is_scored(row) and row["epsilon_certified"] <= row["epsilon"] for row in [*adv, ma[1]])
    assert ma[0]["test_accuracy"] is ma[0]["epsilon_certified"] is None
    assert "no amount of noise (it cannot certify below ln(1/delta) / 32 = 0.576)" in ma[0]["note"]
    assert "\n| sgd_adv ‡ | 0." in summary
    assert "\n| sgd_ma ‡ | – | 0." in summary
    assert "sgd_ma at epsilon 0.05: accountant 'moments' certifies" in printed


def test_a_protector_made_from_the_data_is_refused(config, tmp_path):
    path = tmp_path / "mine.safetensors"
    protector = HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5))
    checkpoint.save(protector, path, {"sources": ["breast_cancer"]})
    with pytest.raises(InputError, match=r"mine\.safetensors.*breast_cancer"):
        compare(dataclasses.replace(config, methods=("noisygd", str(path))))
    assert not (config.out / "results.csv").exists()


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"methods": ("noisygd", "nosuch")}, "nosuch"),
        ({"epsilon": ()}, "epsilon names no budget"),
        ({"methods": ("agd", "agd")}, "methods"),
        ({"epsilon": (-1.0,)}, "epsilon"),
        ({"delta": 0.01}, "1/N"),
        ({"seeds": 0}, "seeds"),
        ({"model": "nosuch"}, "nosuch"),
        ({"accountant": "nosuch"}, "nosuch"),
        ({"data": "digits"}, "multiclass"),
        ({"data": "table.csv"}, "l2p schema table.csv --target COLUMN"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(config, change, phrase):
    with pytest.raises(InputError, match=phrase):
        compare(dataclasses.replace(config, **change))
    assert not (config.out / "results.csv").exists()


@pytest.mark.slow
def test_a_file_is_compared_like_a_set(config, tmp_path):
    table, schema = tmp_path / "ward.csv", tmp_path / "schema.json"
    table.write_text("age,readmit\n" + "".join(f"{20 + i},{int(i > 30)}\n" for i in range(60)))
    Schema({"age": Number(0, 120)}, Target("readmit", classes=(0, 1))).write(schema)
    file = {"data": str(table), "schema": schema}
    rows = compare(dataclasses.replace(config, **file, methods=("nonprivate",), epsilon=(1.0,)))
    assert min(row["test_accuracy"] for row in rows) > 0.8


def steps_by_budget(problem):
    """A method for some budgets only, with more steps at larger ones."""
    if problem.budget.epsilon > 3.0:
        raise InputError("this method needs a smaller epsilon.")
    return dataclasses.replace(noisygd(problem), num_steps=50 if problem.budget.epsilon < 1.0 else 20)


@pytest.mark.slow
def test_budgets_may_differ_in_steps_and_one_that_fails_is_empty(config, monkeypatch):
    monkeypatch.setitem(HAND_DESIGNED, "varying", HandDesigned(steps_by_budget))
    rows = compare(dataclasses.replace(config, methods=("varying",), epsilon=(0.5, 2.0, 4.0)))
    assert [(row["epsilon"], row["steps"]) for row in rows] == [
        (e, s) for e, s in ((0.5, 50), (2.0, 20), (4.0, None)) for _ in "ab"
    ]
    assert {row["note"] for row in rows[4:]} == {"this method needs a smaller epsilon."}
    assert results.is_scored(rows[0])


@pytest.mark.slow
def test_a_paper_form_keeps_its_neighbours_is_marked_and_does_not_compete(config, monkeypatch):
    monkeypatch.setitem(HAND_DESIGNED, "form", HandDesigned(noisygd, "zcdp", Adjacency.REPLACE_ONE))
    config = dataclasses.replace(config, methods=("noisygd", "form"), epsilon=(2.0,))
    main(config)
    rows = compare(config)  # resumes, although the rows differ in adjacency
    assert [row["adjacency"] for row in rows] == ["zero_out"] * 2 + ["replace_one"] * 2
    summary = (config.out / "summary.md").read_text()
    assert "\n| form ‡ | 0." in summary
    assert "‡ its paper's own form, certified for other neighbours than zero_out: not ranked." in summary
    assert "noisygd has the best test accuracy of the private methods" in summary
    by_gdp = compare(dataclasses.replace(config, out=config.out / "gdp", accountant="gdp"))
    assert [row["accountant"] for row in by_gdp] == ["gdp"] * 2 + ["zcdp"] * 2


@pytest.mark.slow
def test_a_regression_is_judged_by_its_error(config):
    row = dict.fromkeys(results.COLUMNS) | {
        "adjacency": "zero_out",
        "accountant": "gdp",
        "model": "square",
        "note": "",
        "train_loss": 0.1,
        "test_loss": 0.1,
    }
    rows = [
        row | {"method": method, "epsilon": 0.5, "seed": seed, "test_mse": error + 0.01 * seed}
        for method, error in (("noisygd", 0.1), ("agd", 0.2))
        for seed in range(2)
    ]
    report(rows, dataclasses.replace(config, methods=("noisygd", "agd"), epsilon=(0.5,)))
    summary = (config.out / "summary.md").read_text()
    assert "## Test mean squared error (mean ± standard error)" in summary
    assert "noisygd has the best test mean squared error of the private methods, 0.1050 ± 0.0050" in summary
    assert "accuracy" not in summary.lower()
    assert "| noisygd | 2 of 2 |\n| agd | 0 of 2 |" in summary


def test_a_comparison_looks_each_name_up_once(tmp_path, monkeypatch):
    loaded, load = [], lookup.load
    monkeypatch.setattr(lookup, "load", lambda name: loaded.append(name) or load(name))
    config = CompareConfig(
        "breast_cancer", tmp_path, methods=("universal", "agd:tuned", "noisygd"), delta=1e-5, seeds=1
    )
    assert [method.name for method in resolve_methods(config, load_rows(config))] == list(config.methods)
    assert len(loaded) == 2  # of `universal` and `agd:tuned`
