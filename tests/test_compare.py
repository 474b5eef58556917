import csv
import dataclasses

import jax.numpy as jnp
import pytest

from l2p import checkpoint, results
from l2p.compare import compare, load_rows, main
from l2p.compare_config import CompareConfig
from l2p.errors import InputError
from l2p.privacy import sampling
from l2p.privacy.budget import Budget
from l2p.protectors import HAND_DESIGNED


@pytest.fixture
def config(tmp_path):
    methods = ("noisygd", "nonprivate")
    return CompareConfig("breast_cancer", tmp_path, methods=methods, epsilon=(0.5, 2.0), delta=1e-5, seeds=2)


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
        if row["method"] == "noisygd":
            assert float(row["epsilon_certified"]) <= float(row["epsilon"])
    assert "Test accuracy" in capsys.readouterr().out
    assert "| ε | noisygd | nonprivate |" in (config.out / "summary.md").read_text()
    assert (config.out / "figure.png").stat().st_size > 0


def test_resumes_without_running_again(config, monkeypatch):
    before = compare(dataclasses.replace(config, seeds=1))
    rows = compare(config)
    assert [row for row in rows if row["seed"] == 0] == before
    monkeypatch.setattr("l2p.compare.simulate", None)
    assert compare(config) == rows


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


def test_papers_forms_keep_their_neighbours_and_accountants_and_are_marked(config, capsys):
    config = dataclasses.replace(config, methods=("sgd_adv", "sgd_ma"), epsilon=(0.05, 2.0), delta=1e-8)
    config = dataclasses.replace(config, accountant="rdp", seeds=1)
    main(config)
    printed, summary = capsys.readouterr().out, (config.out / "summary.md").read_text()
    rows = compare(config)  # resumed: what is there agrees with what was asked for
    adv, ma = rows[:2], rows[2:]
    assert {(row["adjacency"], row["accountant"]) for row in adv} == {("replace_one", "strong_composition")}
    assert {(row["adjacency"], row["accountant"]) for row in ma} == {("add_remove", "moments")}
    assert [row["steps"] for row in adv] == [1, 2]  # N epsilon / 500
    assert all(results.is_scored(row) and row["epsilon_certified"] <= row["epsilon"] for row in [*adv, ma[1]])
    assert ma[0]["test_accuracy"] is ma[0]["epsilon_certified"] is None
    assert "no amount of noise (it cannot certify below ln(1/delta) / 32 = 0.576)" in ma[0]["note"]
    assert "| ε | sgd_adv (replace_one) | sgd_ma (add_remove) |" in summary
    assert "sgd_ma (add_remove) at epsilon 0.05: accountant 'moments' certifies" in printed


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
        ({"methods": ()}, "methods"),
        ({"methods": ("agd", "agd")}, "methods"),
        ({"epsilon": (-1.0,)}, "epsilon"),
        ({"delta": 0.01}, "1/N"),
        ({"seeds": 0}, "seeds"),
        ({"model": "nosuch"}, "nosuch"),
        ({"accountant": "nosuch"}, "nosuch"),
        ({"data": "digits"}, "multiclass"),
        ({"data": "table.csv"}, "bounds"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(config, change, said):
    with pytest.raises(InputError, match=said):
        compare(dataclasses.replace(config, **change))
    assert not (config.out / "results.csv").exists()


def test_a_file_is_compared_like_a_set(config, tmp_path):
    table, bounds = tmp_path / "ward.csv", tmp_path / "bounds.json"
    table.write_text("age,readmit\n" + "".join(f"{20 + i},{int(i > 30)}\n" for i in range(60)))
    bounds.write_text('{"age": [0, 120]}')
    file = {"data": str(table), "target": "readmit", "bounds": bounds}
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
    assert "num_features is 30, outside [2, 3]" in row["note"]


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
    monkeypatch.setattr("l2p.compare.load_rows", lambda _: dataclasses.replace(rows, y=1.0 - rows.y))
    with pytest.raises(InputError, match="table_sha256"):
        compare(config)
