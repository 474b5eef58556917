"""Comparisons that go on from a folder, in shards or after an interrupt, and folders that are not mixed."""

import dataclasses
import shutil

import jax.numpy as jnp
import pytest

import l2p.compare.runner as compare_module
from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.compare import cells, results, runs
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import load_rows
from l2p.compare.runner import compare, gather, main
from l2p.privacy.budget import Budget
from l2p.protectors import HAND_DESIGNED


@pytest.mark.slow
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


@pytest.mark.slow
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
    for row, earlier in zip(again, rows, strict=True):
        assert row["test_accuracy"] == pytest.approx(earlier["test_accuracy"], abs=1e-3)
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
    in_one_process = compare(dataclasses.replace(config, out=tmp_path / "whole"))
    parts = [dataclasses.replace(config, out=tmp_path / name) for name in ("one", "two")]
    first = compare(parts[0], (1, 2))
    assert [row["method"] for row in first] == ["noisygd"] * 4
    assert not (parts[0].out / "results.csv").exists()
    merged = dataclasses.replace(config, out=tmp_path / "merged")
    main(merged, folders=[parts[0].out])
    missing = "Missing are 4 of 8 cells: nonprivate at epsilon 0.5; nonprivate at epsilon 2."
    assert missing in capsys.readouterr().out.replace("\n", " ")
    assert missing in (merged.out / "summary.md").read_text()
    main(parts[1], (2, 2))
    assert "4 of 8 cells are shard 2/2" in capsys.readouterr().out
    rows = gather(merged, [part.out for part in parts])
    timeless = [[row | {"seconds": 0} for row in table_rows] for table_rows in (rows, in_one_process)]
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


def test_a_protector_outside_its_range_is_scored_with_a_note(tmp_path):
    folder = tmp_path / "made"
    folder.mkdir()
    path = folder / "narrow.safetensors"
    checkpoint.save(
        HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5)), path, {"sources": [], "range": {"num_features": [2, 3]}}
    )
    config = CompareConfig("breast_cancer", tmp_path / "out", methods=(str(path),), epsilon=(1.0,), delta=1e-5, seeds=1)
    (row,) = compare(config)
    assert row["test_accuracy"] is not None
    assert "30 features are outside the protector's range, 2 to 3" in row["note"]


def test_a_folder_is_not_resumed_with_another_table_or_protector(tmp_path, monkeypatch):
    path = tmp_path / "made.safetensors"
    start = HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5))
    checkpoint.save(start, path, {"sources": []})
    config = CompareConfig("breast_cancer", tmp_path / "out", methods=(str(path),), epsilon=(1.0,), delta=1e-5, seeds=1)
    compare(config)
    checkpoint.save(dataclasses.replace(start, averaging=jnp.zeros(1)), path, {"sources": []})
    with pytest.raises(InputError, match=r"made.safetensors differed"):
        compare(config)
    checkpoint.save(start, path, {"sources": []})
    rows = load_rows(config)
    monkeypatch.setattr("l2p.compare.runner.load_rows", lambda _: dataclasses.replace(rows, y=1.0 - rows.y))
    with pytest.raises(InputError, match="table_sha256"):
        compare(config)
