"""Meta-training on a user's own tables: from files to a checkpoint."""

import hashlib
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import meta_train
from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint, lookup
from l2p.checkpoints.control import control_of
from l2p.checkpoints.ranges import range_warnings
from l2p.checkpoints.set_up import set_up
from l2p.commands import cli
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import resolve_methods
from l2p.models import find_model
from l2p.privacy.budget import Budget
from l2p.tables.own import source_of_file
from l2p.tables.schema import Schema
from l2p.task.rows import Rows
from meta_train import fine_tuning, planning
from meta_train.recipes import own
from meta_train.tasks import own_tables
from meta_train.tasks.sources import families
from meta_train.training import gradients
from tests.meta_train.own_files import COLUMNS, TARGETS, write

pytestmark = pytest.mark.long
#: Compiled sooner than `control-universal`.
START = "control-minibatch"
#: A training of two steps of three queries each, on eight tasks.
SMALL = {"steps": 2, "tasks": 8, "rows": 64, "num_steps": 3, "eval_every": 1, "eval_tasks": 16}


@pytest.fixture(scope="module")
def small():
    """Trainings are small, and their step is compiled once."""
    real, compiled, compiled_by_config = own.config_for, gradients.compiled, {}

    def once(tasks, resolved, *parts):
        return compiled_by_config.setdefault((tasks, *parts), compiled(tasks, resolved, *parts))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own, "config_for", lambda *args: real(*args).but(gain_rounds=1, **SMALL))
        patch.setattr(planning, "steps_for", lambda minutes: SMALL["steps"])
        patch.setattr(fine_tuning, "OWN_TASKS", 2)
        patch.setattr(gradients, "compiled", once)
        yield patch


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    return write(folder, "north"), write(folder, "south", rows=300, seed=1)


@pytest.fixture(scope="module")
def trained(small, tables, tmp_path_factory):
    """The folder of a training on two tables, and what it said."""
    lines, out = [], tmp_path_factory.mktemp("mine")
    data, schemas = zip(*tables, strict=True)
    path = meta_train.fine_tune(data, schemas, out, start=START, minutes=60, say=lines.append)
    assert path == out / "minibatch-own.safetensors"
    return path, lines


def test_the_card_names_every_table_by_its_content(trained, tables):
    card = checkpoint.load(trained[0]).card
    for (data, _), rows in zip(tables, (200, 300), strict=True):
        assert source_of_file(data) in card["sources"]
        (entry,) = [entry for entry in card["tables"] if entry["name"] == data.stem]
        assert entry["sha256"] == hashlib.sha256(data.read_bytes()).hexdigest()
        assert (entry["rows"], entry["left_out"], entry["features"]) == (rows, 0, 4)
    # What it started from has sources, too.
    assert set(checkpoint.load(START).card["sources"]) < set(card["sources"])
    assert card["warm_start_arrays_sha256"] == checkpoint.load(START).arrays_sha256
    assert card["config"]["log_signal"] == card["range"]["log_signal"] == [0.7, 8.7]
    # The tables have 4 columns: those of twice as many will do, but not of half, since the start serves 4 to 128.
    assert card["range"]["num_features"] == [4, 8]
    assert card["held_out"]["gains"]["by_source"].keys() == set("+".join(card["config"]["sources"]).split("+"))


def test_a_training_says_how_long_it_will_take_before_it_begins_and_what_it_gained_after(trained):
    _, lines = trained
    assert lines[:3] == ["north: 200 rows, 4 features", "south: 300 rows, 4 features", fine_tuning.PUBLIC]
    (estimate,) = [number for number, line in enumerate(lines) if line.startswith("about ")]
    assert "2 steps of" in lines[estimate]
    *gain_lines, made_for = lines[estimate + 1 :]
    if made_for.startswith("gains are those on rows of these tables: "):
        assert "universal is the better choice there" in made_for
        made_for = gain_lines.pop()
    if made_for.startswith("it applies"):
        assert "tables of 5 to 10 features" in made_for
        assert 6 <= sum(line.startswith("  epsilon") for line in gain_lines) <= 8
    else:
        assert f"{START} " in made_for
        assert " kept" in made_for


@pytest.mark.parametrize("rows", [190, 240, 20_000])
def test_the_next_extract_of_its_tables_is_in_its_range(trained, rows):
    """No warning says that it was not trained for such a table, whatever was gained."""
    budget = Budget(1.0, 1e-6)
    method = lookup.resolve(str(trained[0]), budget, "logistic")
    _, _, setup, warnings = set_up(method, budget, find_model("logistic", 2), 5, rows)
    assert not range_warnings(method.range, setup, 5, budget)
    assert not [warning for warning in warnings if "not trained for this range" in warning]


def test_it_is_not_scored_on_its_own_tables(trained, tables, tmp_path):
    path, _ = trained
    copy = shutil.copy(tables[0][0], tmp_path / "renamed.csv")
    rows = Rows(np.zeros((200, 5)), np.zeros(200), np.ones(200))
    options = {"out": tmp_path, "methods": (str(path),), "delta": 1e-5}
    for data in (tables[0][0], copy):
        with pytest.raises(InputError, match="was made from table:north:"):
            resolve_methods(CompareConfig(str(data), schema=Path(tables[0][1]), **options), rows)
    east, schema = write(tmp_path, "east", seed=2)
    (method,) = resolve_methods(CompareConfig(str(east), schema=Path(schema), **options), rows)
    assert method.name == str(path)


def test_held_out_rows_are_in_no_task_of_the_training(tables):
    table = own_tables.read(*tables[1])
    train, test = families(own_tables.keep(table))
    assert (len(train.y), len(test.y)) == (240, 60)
    together = np.concatenate([train.x, test.x])
    assert np.array_equal(np.sort(together, axis=0), np.sort(table.x, axis=0))
    assert not {row.tobytes() for row in np.asarray(train.x)} & {row.tobytes() for row in np.asarray(test.x)}


def test_an_interrupted_training_says_what_is_kept_and_goes_on_to_the_same_bits(
    trained, small, tables, tmp_path, capsys, monkeypatch
):
    (data, schema), out = zip(*tables, strict=True), tmp_path / "mine"
    compiled = gradients.compiled

    def interrupted(*args):
        update, calls = compiled(*args), []

        def step(state, number):
            calls.append(number)
            # Two calls measure a step, then come the first and the second.
            if calls.count(1):
                raise KeyboardInterrupt
            return update(state, number)

        return step

    monkeypatch.setattr(gradients, "compiled", interrupted)
    words = ["--data", *map(str, data), "--schema", *map(str, schema), "--out", str(out), "--start", START]
    assert cli.main(["meta-train", *words]) == 130
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last == f"Interrupted. 1 of 2 steps are kept in {out}; go on with l2p meta-train --resume --out {out}"
    monkeypatch.setattr(gradients, "compiled", compiled)
    assert cli.main(["meta-train", "--resume", "--out", str(out)]) == 0
    ended = capsys.readouterr().out.strip()
    assert checkpoint.load(ended).arrays_sha256 == checkpoint.load(trained[0]).arrays_sha256


def test_few_minutes_evolve_constants_on_tables_of_two_kinds_by_what_judges_them(small, tables, tmp_path, monkeypatch):
    """Constants are evolved without a gradient, in one training, which can be resumed."""
    monkeypatch.setattr(planning, "has_networks", lambda *args: False)
    monkeypatch.setattr(gradients, "compiled", None)
    numbers = write(tmp_path, "numbers", kind="regression", seed=3)
    (data, schemas), lines, out = zip(tables[0], numbers, strict=True), [], tmp_path / "mine"
    path = meta_train.fine_tune(data, schemas, out, minutes=60, say=lines.append)
    loaded = checkpoint.load(path)
    assert any("do for constants alone" in line for line in lines)
    assert (loaded.card["config"]["kind"], loaded.card["config"]["protector"]) == ("own_constants", "control_line")
    assert loaded.card["models"] == ["logistic", "square"]
    assert loaded.card["held_out"]["gains"]["by_model"].keys() == {"logistic", "square"}
    assert loaded.card["held_out"]["gains"]["by_source"].keys() == {
        own_tables.read(*files).source for files in (tables[0], numbers)
    }
    assert loaded.card["held_out"]["steps"] == 2
    assert control_of(loaded.card).name == "universal"  # which runs where they gained nothing over it
    first = json.loads((out / "log.jsonl").read_text().splitlines()[0])
    assert first["finite"] == 1.0
    assert 0.0 < first["gradient_norm"] < np.inf


def test_frames_are_tables_too_and_rows_that_are_no_rows_are_left_out():
    columns = {"age": list(range(50)) * 5, "dose": [0.5] * 250, "ward": ["a"] * 250, "back": ["no", "yes"] * 125}
    columns["age"][0] = None
    table = own_tables.read(columns, Schema(COLUMNS, TARGETS["binary"]), "frame")
    assert (table.rows, table.left_out, len(table.y)) == (250, 1, 249)
    assert table.source.startswith("table:frame:")


@pytest.mark.parametrize("kind", TARGETS)
def test_what_is_judged_on_is_whole_tables_and_rows_that_no_run_has_read(tmp_path, kind):
    """Tasks of two tables of a kind, each at its place, hold the table's own rows, padded, with its own targets."""
    data, schemas = zip(*(write(tmp_path, name, rows, kind) for name, rows in (("a", 200), ("b", 300))), strict=True)
    tables = [own_tables.read(*pair) for pair in zip(data, schemas, strict=True)]
    source = "+".join(map(own_tables.keep, tables))
    _, held_out = families(source, fresh_rows=True)
    for place, table in enumerate(tables):
        read, scored = held_out.choose(place, False).draw_both(jax.random.key(0), 2, 50, 6)
        for part in (read, scored):
            assert all(lines(x, y, kind) <= lines(table.x, table.y, kind) for x, y in zip(part.x, part.y, strict=True))
        assert not lines(read.x[0], read.y[0], kind) & lines(scored.x[0], scored.y[0], kind)


def lines(x, y, kind):
    """Rows as sets of their values, since tasks have columns in another order; without classes, which are renamed."""
    table = np.pad(np.sort(x, axis=1), ((0, 0), (6 - x.shape[1], 0)))
    table = np.sort(table, axis=1).round(4)
    return {
        (*row, 0.0 if kind == "multiclass" else round(float(label), 4))
        for row, label in zip(table.tolist(), y, strict=True)
    }


def test_a_card_alone_does_not_find_the_tables_again():
    with pytest.raises(InputError, match="a table of its maker's"):
        families("table:gone:0123456789abcdef")
