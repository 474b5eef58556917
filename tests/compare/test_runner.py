import csv
import dataclasses
import math
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import l2p.compare.runner as compare_module
from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint, lookup
from l2p.compare import cells, hindsight, results, runs
from l2p.compare.auxiliary import Auxiliary, public_geometry, public_solution
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import load_rows, resolve_methods
from l2p.compare.methods import find_method
from l2p.compare.runner import compare, curves, gather, main
from l2p.compare.summary import report
from l2p.models import MODELS
from l2p.privacy import Adjacency
from l2p.privacy.budget import Budget
from l2p.privacy.cost import sampling
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.by_hand.gradient_descent import noisygd
from l2p.protectors.hand_designed import HandDesigned
from l2p.run.simulate import mean_loss, simulate, split
from l2p.tables.schema import Number, Schema, Target


@pytest.fixture
def config(tmp_path):
    methods = ("noisygd", "nonprivate")
    return CompareConfig("breast_cancer", tmp_path, methods=methods, epsilon=(0.5, 2.0), delta=1e-5, seeds=2)


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
    assert (config.out / "figure.png").stat().st_size > 0


def test_resumes_without_running_again(config, monkeypatch):
    before = compare(dataclasses.replace(config, seeds=1))
    rows = compare(config)
    assert [row for row in rows if row["seed"] == 0] == before
    monkeypatch.setattr("l2p.compare.runs.simulate", None)
    assert compare(config) == rows
    # From cells only, and from the committed files only.
    (config.out / "results.csv").unlink()
    assert compare(config) == rows
    shutil.rmtree(config.out / "cells")
    assert compare(config) == rows
    assert len(list((config.out / "cells").rglob("seed-*.json"))) == len(rows)


def test_a_cell_that_was_deleted_is_run_again_and_no_other(config, monkeypatch):
    config = dataclasses.replace(config, methods=("noisygd",))
    rows = compare(config)
    path = cells.path_of(config.out, ("noisygd", 2.0, 1))
    path.unlink()
    ran = []
    run = compare_module.scored_runs
    monkeypatch.setattr(compare_module, "scored_runs", lambda *args: ran.append(args[1:3]) or run(*args))
    again = compare(config)
    assert [([budget.epsilon for budget in budgets], seeds) for budgets, seeds in ran] == [([2.0], [1])]
    for one, other in zip(again, rows, strict=True):
        assert one["test_accuracy"] == pytest.approx(other["test_accuracy"], abs=1e-3)
    assert [row for row in again if results.cell(row) != ("noisygd", 2.0, 1)] == [
        row for row in rows if results.cell(row) != ("noisygd", 2.0, 1)
    ]


@pytest.mark.slow
def test_what_an_interrupted_comparison_ran_is_kept(config, monkeypatch):
    simulate = runs.simulate

    def until_the_second_method(protectors, *args, **kwargs):
        if type(protectors[0]).__name__ == "NonPrivate":
            raise KeyboardInterrupt
        return simulate(protectors, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "simulate", until_the_second_method)
        with pytest.raises(KeyboardInterrupt):
            compare(config)
    assert not (config.out / "results.csv").exists()
    partial = gather(config)
    assert {row["method"] for row in partial} == {"noisygd"}
    assert compare(config)[:4] == partial


def test_shards_come_to_what_one_process_does(config, tmp_path, capsys):
    whole = compare(dataclasses.replace(config, out=tmp_path / "whole"))
    parts = [dataclasses.replace(config, out=tmp_path / name) for name in ("one", "two")]
    first = compare(parts[0], (1, 2))
    assert [row["method"] for row in first] == ["noisygd"] * 4
    assert not (parts[0].out / "results.csv").exists()
    merged = dataclasses.replace(config, out=tmp_path / "merged")
    main(merged, folders=[parts[0].out])
    said = "Missing are 4 of 8 cells: nonprivate at epsilon 0.5; nonprivate at epsilon 2."
    assert said in capsys.readouterr().out.replace("\n", " ")
    assert said in (merged.out / "summary.md").read_text()
    main(parts[1], (2, 2))
    assert "4 of 8 cells are shard 2/2" in capsys.readouterr().out
    rows = gather(merged, [part.out for part in parts])
    timeless = [[row | {"seconds": 0} for row in found] for found in (rows, whole)]
    assert timeless[0] == timeless[1]
    assert results.read(merged.out / "results.csv") == rows
    with pytest.raises(InputError, match=r"comparison with delta 1e-05, not 1e-06"):
        gather(dataclasses.replace(merged, delta=1e-6))


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"delta": 1e-6}, {"adjacency": "replace_one"}, {"accountant": "zcdp"}])
def test_refuses_to_mix_two_comparisons(config, change):
    once = dataclasses.replace(config, methods=("noisygd",), epsilon=(0.5,), seeds=1)
    compare(once)
    with pytest.raises(InputError, match="choose another folder"):
        compare(dataclasses.replace(once, **change))


def test_a_foreign_file_is_left_alone(config):
    path = config.out / "results.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="not a comparison's results"):
        compare(config)
    assert path.read_text() == "a,b\n1,2\n"


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


@pytest.mark.slow
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


@pytest.mark.slow
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
    ("change", "said"),
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
def test_bad_input_is_refused_before_anything_runs(config, change, said):
    with pytest.raises(InputError, match=said):
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


def test_a_protector_outside_its_range_is_scored_with_a_note(tmp_path):
    folder = tmp_path / "made"
    folder.mkdir()
    made = folder / "narrow.safetensors"
    checkpoint.save(
        HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5)), made, {"sources": [], "range": {"num_features": [2, 3]}}
    )
    config = CompareConfig("breast_cancer", tmp_path / "out", methods=(str(made),), epsilon=(1.0,), delta=1e-5, seeds=1)
    (row,) = compare(config)
    assert row["test_accuracy"] is not None
    assert "30 features are outside the protector's range, 2 to 3" in row["note"]


def test_a_folder_is_not_resumed_with_another_table_or_protector(tmp_path, monkeypatch):
    made = tmp_path / "made.safetensors"
    start = HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5))
    checkpoint.save(start, made, {"sources": []})
    config = CompareConfig("breast_cancer", tmp_path / "out", methods=(str(made),), epsilon=(1.0,), delta=1e-5, seeds=1)
    compare(config)
    checkpoint.save(dataclasses.replace(start, averaging=jnp.zeros(1)), made, {"sources": []})
    with pytest.raises(InputError, match=r"made.safetensors differed"):
        compare(config)
    checkpoint.save(start, made, {"sources": []})
    rows = load_rows(config)
    monkeypatch.setattr("l2p.compare.runner.load_rows", lambda _: dataclasses.replace(rows, y=1.0 - rows.y))
    with pytest.raises(InputError, match="table_sha256"):
        compare(config)


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


def frozen(tmp_path, name="still", **fields):
    """A checkpoint that stays where it starts: NoisyGD with a vanishing learning rate."""
    start = HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5))
    rates = {**start.projector.hyperparameters, "learning_rate": jnp.array([-40.0])}
    path = tmp_path / f"{name}.safetensors"
    projector = dataclasses.replace(start.projector, hyperparameters=rates)
    checkpoint.save(dataclasses.replace(start, projector=projector, **fields), path, {"sources": []})
    return str(path)


@pytest.mark.slow
def test_a_pretrained_run_starts_from_the_public_solution(tmp_path):
    still = frozen(tmp_path)
    centred = frozen(tmp_path, "centred", purchases=checkpoint.load("control-plain-adult").protector.purchases)
    methods = (still, f"{still}:pretrained", f"{centred}:pretrained")
    config = CompareConfig(
        "digits:3,5", tmp_path / "out", methods=methods, epsilon=(1.0,), delta=1e-5, seeds=1, aux="digits:4,6"
    )
    plain, raw, mapped = compare(config)
    model = MODELS["logistic"]
    public, rows = load_rows(dataclasses.replace(config, data="digits:4,6")), load_rows(config)
    solution = public_solution(model, public)
    assert float(mean_loss(solution, model, public)) < 0.01
    assert plain["test_loss"] == pytest.approx(math.log(2.0), rel=1e-5)
    expected = float(mean_loss(solution, model, split(rows, 0).test))
    assert expected > 1.0
    # The centred one runs in other coordinates, and starts at the same point in them.
    assert raw["test_loss"] == pytest.approx(expected, rel=1e-4)
    assert mapped["test_loss"] == pytest.approx(expected, rel=1e-2)


@pytest.mark.slow
def test_a_projected_run_steps_along_the_directions_of_the_public_set(tmp_path):
    methods = ("noisygd", "noisygd:projected", "noisygd:projected:oracle", "noisygd:private:projected", "agd:projected")
    config = CompareConfig(
        "digits:3,5", tmp_path / "out", methods=methods, epsilon=(0.3,), delta=1e-5, seeds=4, aux="digits:4,6"
    )
    rows = compare(config)
    accuracy = {name: [row["test_accuracy"] for row in rows if row["method"] == name] for name in methods}
    assert all(None not in accuracy[name] for name in methods[:4])
    assert accuracy["noisygd:projected"] != accuracy["noisygd"]
    assert np.mean(accuracy["noisygd:projected:oracle"]) > np.mean(accuracy["noisygd:projected"])
    assert "cannot be run in other directions" in rows[-1]["note"]
    public, budget = load_rows(dataclasses.replace(config, data="digits:4,6")), Budget(0.3, 1e-5)
    found = public_geometry(public)
    lent = find_method("noisygd:projected", [budget], MODELS["logistic"], 292, auxiliary=Auxiliary(geometry=found))
    assert lent.protectors[budget].purchases == (found,)
    # It uses nothing of the compared set.
    np.testing.assert_allclose(found.center, np.asarray(public.x).mean(0), atol=1e-6)


@pytest.mark.slow
def test_a_pretrained_method_needs_the_same_features_and_other_rows(config, monkeypatch):
    methods = ("noisygd", "noisygd:pretrained", "noisygd:tuned:pretrained")
    config = dataclasses.replace(config, methods=methods, epsilon=(2.0,), seeds=1, aux="digits:3,5")
    noisygd, *others = compare(config)
    assert results.is_scored(noisygd)
    for row in others:
        assert "65 parameters, where this table needs 31" in row["note"]
        assert not results.is_scored(row)


@pytest.mark.slow
def test_oracle_settings_are_the_best_of_those_tried_and_are_not_certified(config):
    config = dataclasses.replace(config, methods=("noisygd", "noisygd:oracle"), epsilon=(0.5,), seeds=2)
    main(config)
    rows = compare(config)
    assert [row["epsilon_certified"] == math.inf for row in rows] == [False, False, True, True]
    assert sum(row["train_loss"] for row in rows[2:]) < sum(row["train_loss"] for row in rows[:2])
    summary = (config.out / "summary.md").read_text()
    assert "\n| noisygd:oracle † | 0." in summary
    assert "not honest" in summary
    assert "At ε = 0.5, noisygd has the best test accuracy of the private methods" in summary
    # The search's own objective, on its own splits and noise.
    table, model, budget = load_rows(config), MODELS["logistic"], Budget(0.5, 1e-5)
    honest = find_method("noisygd", [budget], model, 456).prepare(budget, model, table)
    found = find_method("noisygd:oracle", [budget], model, 456).prepare(budget, model, table)
    outcome = simulate([honest.protector, found.protector], [honest.setup, found.setup], table, hindsight.SEEDS)
    losses = [
        [float(mean_loss(params, model, split(table, seed).private)) for params in outcome.params[i]]
        for i, seed in enumerate(hindsight.SEEDS)
    ]
    before, after = np.mean(losses, 0)
    assert after < before - 0.01
    assert not set(hindsight.SEEDS) & set(range(1000))


@pytest.mark.slow(
    cases=["change5-the directions in which it reads rows are fixed", "change8-nothing for :pretrained to change"]
)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"methods": ("noisygd:pretrained",)}, "no auxiliary set is named"),
        ({"methods": ("noisygd:pretrained",), "aux": "breast_cancer"}, "shares rows with breast_cancer"),
        ({"methods": ("noisygd:pretrained",), "aux": "nosuch"}, "nosuch"),
        ({"methods": ("noisygd:pretrained",), "aux": "digits"}, "multiclass"),
        ({"methods": ("noisygd:projected",)}, "METHOD:projected takes something from a public set"),
        (
            {"methods": ("control-plain-adult:projected",), "aux": "digits:3,5"},
            "the directions in which it reads rows are fixed",
        ),
        ({"methods": ("nosuch:oracle",)}, "'nosuch' is unknown"),
        ({"methods": ("nonprivate:oracle",)}, "nothing for :oracle to change"),
        ({"methods": ("nonprivate:pretrained",), "aux": "digits:3,5"}, "nothing for :pretrained to change"),
    ],
)
def test_variants_that_make_no_sense_are_refused_before_anything_runs(config, change, said):
    with pytest.raises(InputError, match=said):
        compare(dataclasses.replace(config, **change))
    assert list(config.out.iterdir()) == []


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
