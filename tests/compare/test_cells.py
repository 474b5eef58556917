"""Cells: names, atomic writes, claims of a folder, and merges."""

import dataclasses
import math
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2p.base.errors import InputError
from l2p.compare import cells, results
from l2p.compare.cells import FACTS, StoredCell
from l2p.compare.config import CompareConfig

FACTS_HERE = dict.fromkeys(FACTS, "same") | {"delta": 1e-5, "accountant": None, "aux": None}
SCORES = {"test_accuracy": 0.75, "train_loss": 0.5, "test_loss": 0.6, "steps": 50, "epsilon_certified": 0.1}


def cell(method="agd", epsilon=0.1, seed=0, facts=FACTS_HERE, protector=None, **changes):
    names = {"data": "same", "model": "same", "delta": 1e-5, "adjacency": "zero_out", "accountant": "gdp", "note": ""}
    row = dict.fromkeys(results.COLUMNS) | names | SCORES | {"seconds": 0.1} | changes
    return StoredCell(row | {"method": method, "epsilon": epsilon, "seed": seed}, facts, protector)


def folder_of(path, *stored):
    for stored_cell in stored:
        cells.claim(path, stored_cell.facts, {"l2p": "0"})
        cells.write(path, stored_cell)
    return path


@pytest.mark.parametrize(
    "method",
    ["census", "noisygd:tuned", "noisygd-tuned", "NoisyGD", "../../../etc", "..", "a/b.safetensors", "c\\d", "x" * 300],
)
def test_a_cell_lies_in_its_folder_whatever_its_method_is_called(tmp_path, method):
    stored = cell(method, seed=3)
    path = cells.path_of(tmp_path, results.cell(stored.row))
    assert path.parts[: len(tmp_path.parts) + 1] == (*tmp_path.parts, "cells")
    assert len(path.relative_to(tmp_path).parts) == 4
    folder_of(tmp_path, stored)
    assert cells.read(tmp_path) == {(method, 0.1, 3): stored}


def test_names_that_look_alike_have_cells_of_their_own():
    names = ["a:b", "a-b", "A-B", "x/a:b", "a.b"]
    assert len({str(cells.path_of(Path("out"), (name, 0.1, 0))).lower() for name in names}) == len(names)


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon_certified": math.inf},
        {"test_accuracy": None, "test_mse": 0.25},
        {"note": "a note, “quoted”\nover lines", "test_accuracy": None, "train_loss": None},
    ],
)
def test_a_cell_reads_as_it_was_written(tmp_path, changes):
    stored = cell(**changes)
    folder_of(tmp_path, stored)
    assert cells.read(tmp_path) == {("agd", 0.1, 0): stored}
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"inputs.json", "seed-0.json"}


def test_a_loss_that_diverged_survives(tmp_path):
    folder_of(tmp_path, cell(train_loss=math.nan))
    (diverged,) = cells.read(tmp_path).values()
    assert math.isnan(diverged.row["train_loss"])


def test_a_cell_that_is_damaged_or_out_of_place_is_refused(tmp_path):
    folder_of(tmp_path, cell(), cell(seed=1))
    path = cells.path_of(tmp_path, ("agd", 0.1, 1))
    text = path.read_text()
    for spoilt in (text[:-20], "[]", text.replace('"seed": 1', '"seed": 2'), text.replace('"aux"', '"other"')):
        path.write_text(spoilt)
        with pytest.raises(InputError, match=r"seed-1\.json is not the cell that its place says"):
            cells.read(tmp_path)


def test_a_cell_copied_from_another_comparison_is_refused(tmp_path):
    here = folder_of(tmp_path / "here", cell())
    there = folder_of(tmp_path / "there", cell(seed=1, facts=FACTS_HERE | {"table_sha256": "other"}))
    path = cells.path_of(here, ("agd", 0.1, 1))
    path.write_text(cells.path_of(there, ("agd", 0.1, 1)).read_text())
    with pytest.raises(InputError, match=r"differs in table_sha256 .*choose another folder"):
        cells.read(here)


def test_of_many_comparisons_that_claim_a_folder_at_once_one_has_it(tmp_path):
    outcome, barrier = [], threading.Barrier(8)

    def claim(number):
        barrier.wait()
        try:
            cells.claim(tmp_path, FACTS_HERE | {"model": number % 4}, {})
            outcome.append(number % 4)
        except InputError:
            outcome.append(None)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = {number for number in outcome if number is not None}
    assert outcome.count(winner) == 2
    assert cells.read_inputs(tmp_path)["model"] == winner
    assert [path.name for path in tmp_path.iterdir()] == ["inputs.json"]


@given(num_methods=st.integers(1, 6), num_epsilons=st.integers(1, 5), count=st.integers(1, 40))
def test_shares_are_even_and_cover_every_cell_once_with_few_methods_in_two(num_methods, num_epsilons, count):
    methods, epsilon = tuple(f"m{i}" for i in range(num_methods)), tuple(0.1 * (1 + i) for i in range(num_epsilons))
    config = CompareConfig("d", Path("o"), methods=methods, epsilon=epsilon)
    shares = [cells.share(config, (index, count)) for index in range(1, count + 1)]
    assert [pair for share in shares for pair in share] == cells.share(config, None)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    # Compilations: one per method and shard in which it has cells.
    met = sum(len({method for method, _ in share}) for share in shares)
    assert met <= num_methods + count - 1


def test_merging_brings_cells_together_and_takes_the_scored_one_of_two(tmp_path):
    empty = cell(seed=1, note="no", train_loss=None, test_accuracy=None)
    first = folder_of(tmp_path / "one", cell(), empty)
    second = folder_of(tmp_path / "second", cell(seconds=9.0, test_accuracy=0.7501), cell(seed=1), cell("sgd"))
    merged = cells.merge([first, second], tmp_path / "out")
    assert merged == cells.read(tmp_path / "out")
    assert merged[("agd", 0.1, 0)] == cell()
    assert merged[("agd", 0.1, 1)] == cell(seed=1)
    assert set(merged) == {("agd", 0.1, 0), ("agd", 0.1, 1), ("sgd", 0.1, 0)}
    # Again, with one more folder: the cells already in `out` count too.
    three = folder_of(tmp_path / "three", cell("third"))
    assert set(cells.merge([three], tmp_path / "out")) == {*merged, ("third", 0.1, 0)}


@pytest.mark.parametrize(
    ("second_cell", "phrase"),
    [
        (cell(test_accuracy=0.76), "differ in test_accuracy of agd at epsilon 0.1, seed 0"),
        (cell(steps=49), "differ in steps"),
        (cell(facts=FACTS_HERE | {"delta": 1e-6}), "differs in delta"),
        (cell("sgd", facts=FACTS_HERE | {"splits_sha256": "moved"}), "differs in splits_sha256"),
        (cell(seed=1, protector="other"), "the checkpoint of agd differed"),
        (cell(seed=1, accountant="rdp"), "the accountant of agd differed"),
    ],
)
def test_what_does_not_belong_together_is_not_merged(tmp_path, second_cell, phrase):
    first, second = folder_of(tmp_path / "one", cell()), folder_of(tmp_path / "second", second_cell)
    with pytest.raises(InputError, match=phrase):
        cells.merge([first, second], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_without_cells_is_not_merged(tmp_path):
    for folders in ([tmp_path / "none"], []):
        with pytest.raises(InputError, match="holds no cells"):
            cells.merge(folders, tmp_path)


def test_a_folder_gives_its_cells_back_from_its_table(tmp_path):
    config = CompareConfig("same", tmp_path, methods=("agd",), epsilon=(0.1,), seeds=2)
    by_key = {results.cell(stored.row): stored for stored in (cell(protector="abc"), cell(seed=1, protector="abc"))}
    folder_of(tmp_path, *by_key.values())
    assert cells.finish(config, by_key) == [stored.row for stored in by_key.values()]
    for path in (tmp_path / "cells").rglob("*.json"):
        path.unlink()
    assert cells.read(tmp_path) == {}
    for path in sorted((tmp_path / "cells").rglob("*"), reverse=True):
        path.rmdir()
    (tmp_path / "cells").rmdir()
    assert cells.read(tmp_path) == by_key


def test_a_table_without_its_inputs_is_refused(tmp_path):
    results.write(tmp_path / "results.csv", [cell().row])
    with pytest.raises(InputError, match="does not say what the results beside it depend on"):
        cells.read(tmp_path)


def test_tables_from_before_a_column_was_added_are_read(tmp_path):
    path = tmp_path / "results.csv"
    results.write(path, [cell().row])
    names = [name for name in results.COLUMNS if name not in results.LATER]
    values = [cell().row[name] for name in names]
    path.write_text(",".join(names) + "\n" + ",".join("" if v is None else str(v) for v in values) + "\n")
    assert results.read(path) == [cell().row]
    path.write_text(path.read_text().rsplit(",", 2)[0] + "\n")
    with pytest.raises(InputError, match="not a comparison's results"):
        results.read(path)


def test_nothing_is_missing_from_what_is_complete():
    config = CompareConfig("same", Path("o"), methods=("agd", "sgd"), epsilon=(0.1,), seeds=1)
    assert cells.missing_sentence(config, cells.wanted(config)) == ""
    sentence = cells.missing_sentence(dataclasses.replace(config, seeds=2), [("agd", 0.1, 0), ("agd", 0.1, 1)])
    assert sentence == "Missing are 2 of 4 cells: sgd at epsilon 0.1."
