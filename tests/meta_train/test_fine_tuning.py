"""Meta-training on a user's own tables: from files to a checkpoint that is used where it gains, and nowhere else."""

import dataclasses
import gzip
import hashlib
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import meta_train
from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint, lookup, other_tables
from l2p.checkpoints.control import control_of
from l2p.checkpoints.forecast import plan
from l2p.checkpoints.ranges import range_warnings
from l2p.checkpoints.set_up import set_up
from l2p.commands import cli
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import resolve_methods
from l2p.models import find_model
from l2p.privacy.budget import Budget
from l2p.release.planned_run import plan_run
from l2p.tables.own import source_of_file
from l2p.tables.schema import Category, Number, Schema, Target
from l2p.task.rows import Rows
from meta_train import __main__, fine_tuning, planning
from meta_train.evaluation import held_out, resolved
from meta_train.recipes import own, resolve
from meta_train.tasks import own_tables
from meta_train.tasks.sources import families
from meta_train.training import gradients
from meta_train.training.starting_points import starting_point

#: Compiled sooner than `control-universal`.
START = "control-plain-adult"
#: A training of two steps of three queries each, on eight tasks.
SMALL = {"steps": 2, "tasks": 8, "rows": 64, "num_steps": 3, "eval_every": 1, "eval_tasks": 16}
COLUMNS = {"age": Number(0, 100), "dose": Number(0, 1), "ward": Category(("a", "b"))}
TARGETS = {
    "binary": Target("back", classes=("no", "yes")),
    "multiclass": Target("back", classes=("no", "yes", "maybe")),
    "regression": Target("back", bounds=(0, 10)),
}


def write(folder, name, rows=200, kind="binary", seed=0):
    """A table and its schema as files."""
    draw = np.random.default_rng(seed)
    labels = TARGETS[kind].classes or tuple(range(10))
    lines = [
        f"{draw.integers(0, 100)},{draw.random():.3f},{draw.choice(['a', 'b'])},{labels[i % len(labels)]}"
        for i in range(rows)
    ]
    data, schema = folder / f"{name}.csv", folder / f"{name}.json"
    data.write_text("\n".join(["age,dose,ward,back", *lines, ""]))
    Schema(COLUMNS, TARGETS[kind]).write(schema)
    return data, schema


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
    assert path == out / "plain-adult-own.safetensors"
    return path, lines


@pytest.mark.slow
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
    # The tables have 4 columns: those of twice as many will do, but not of half, since the start serves 8 to 104.
    assert card["range"]["num_features"] == [4, 8]
    assert card["held_out"]["gains"]["by_source"].keys() == set("+".join(card["config"]["sources"]).split("+"))


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("rows", [190, 240, 20_000])
def test_the_next_extract_of_its_tables_is_in_its_range(trained, rows):
    """No warning says that it was not trained for such a table, whatever was gained."""
    budget = Budget(1.0, 1e-6)
    method = lookup.resolve(str(trained[0]), budget, "logistic")
    _, _, setup, warnings = set_up(method, budget, find_model("logistic", 2), 5, rows)
    assert not range_warnings(method.range, setup, 5, budget)
    assert not [warning for warning in warnings if "not trained for this range" in warning]


@pytest.mark.slow
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


def test_a_packed_table_is_the_same_and_one_called_as_a_public_set_is_that_set(tables, tmp_path):
    packed = tmp_path / "north.csv.gz"
    packed.write_bytes(gzip.compress(tables[0][0].read_bytes()))
    assert source_of_file(packed) == source_of_file(tables[0][0])
    adult = shutil.copy(tables[0][0], tmp_path / "adult.csv")
    args = (Budget(1.0, 1e-5), "logistic")
    with pytest.raises(InputError, match="was made from adult"):
        lookup.resolve(str(checkpoint.find("universal-logistic")), *args, avoid=(source_of_file(adult),))
    # By its name, a hold-out without that set takes its place; on any other table it runs itself.
    method = lookup.resolve("universal-logistic", *args, avoid=(source_of_file(adult),))
    assert method.sha256 == checkpoint.digest("universal-logistic-no-adult")
    assert lookup.resolve("universal-logistic", *args, avoid=(source_of_file(tables[0][0]),)).hold_out is None


def test_held_out_rows_are_in_no_task_of_the_training(tables):
    table = own_tables.read(*tables[1])
    train, test = families(own_tables.keep(table))
    assert (len(train.y), len(test.y)) == (240, 60)
    together = np.concatenate([train.x, test.x])
    assert np.array_equal(np.sort(together, axis=0), np.sort(table.x, axis=0))
    assert not {row.tobytes() for row in np.asarray(train.x)} & {row.tobytes() for row in np.asarray(test.x)}


@pytest.mark.slow
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


@pytest.mark.slow
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


def fine_tuned(folder, gains, start="universal-logistic", table=None):
    """A start under another name, as if fine-tuning had gained so much over itself in eight bands."""
    shipped = checkpoint.load(start)
    gains_on_card = shipped.card["held_out"]["gains"]
    gains_on_card = {"log_signal": gains_on_card["log_signal"], "mean": gains, "standard_error": [0.1] * 8, "tasks": 64}
    card = {
        "name": "universal-own",
        "models": ["logistic"],
        "tables": [] if table is None else [table],
        "sources": [],
        "range": shipped.card["range"] | {"num_features": [3, 150]},
        "config": {"warm_start": start},
        "warm_start_arrays_sha256": shipped.arrays_sha256,
        "held_out": {"gains": gains_on_card},
    }
    path = folder / "universal-own.safetensors"
    checkpoint.save(shipped.protector, path, card)
    return path


@pytest.mark.parametrize(
    ("epsilon", "expected"), [(3.0, "own"), (0.1, "universal-logistic"), (0.01, "control-universal-logistic")]
)
def test_where_nothing_was_gained_the_start_runs_as_it_is_deployed(tmp_path, epsilon, expected):
    path = fine_tuned(tmp_path, gains=[0.0] * 6 + [1.0] * 2)
    budget = Budget(epsilon, 1e-6)
    method = lookup.resolve(str(path), budget, "logistic")
    ran, *_ = set_up(method, budget, find_model("logistic", 2), 10, 5_000)
    assert ran.name == (str(path) if expected == "own" else expected)


def test_a_start_that_gives_way_on_narrow_tables_is_no_fault_of_what_was_made_for_them(tmp_path):
    """Nothing was gained, and `universal` itself serves no table of four columns."""
    path, budget = fine_tuned(tmp_path, [0.0] * 8, start="universal"), Budget(1.0, 1e-6)
    method = lookup.resolve(str(path), budget, "logistic")
    ran, _, _, warnings = set_up(method, budget, find_model("logistic", 2), 4, 5_000)
    assert ran.name == "control-universal"
    (warning,) = warnings
    assert warning.startswith("At this budget universal runs: ")
    assert warning.endswith(" universal gives way to control-universal here, in turn.")


def test_who_applies_it_to_another_table_is_told_by_what_is_public_of_that(tables, tmp_path, capsys):
    """The next extract of its table is not another one, in whatever order its columns are."""
    data, declared = tables[0]
    table, budget, model = own_tables.read(data, declared), Budget(3.0, 1e-6), find_model("logistic", 2)
    path = str(fine_tuned(tmp_path, [1.0] * 8, table=table.card_entry))
    schema = Schema.read(declared)
    turned = dataclasses.replace(schema, columns=dict(reversed(schema.columns.items())))
    wider = dataclasses.replace(schema, columns=schema.columns | {"height": Number(0, 3)})
    target = dataclasses.replace(schema, target=dataclasses.replace(schema.target, column="died"))
    method = lookup.resolve(path, budget, "logistic")
    for features, by_schema, is_other in [
        (4, schema, False), (5, turned, False), (5, wider, True), (4, target, True), (4, None, False), (5, None, True)
    ]:  # fmt: skip
        _, _, _, warnings = set_up(method, budget, model, features, 2_000, schema=by_schema)
        assert [other_tables.ELSEWHERE in warning for warning in warnings] == [True] * is_other
    # Where the start runs there is nothing to warn of.
    level = lookup.resolve(str(fine_tuned(tmp_path, [0.0] * 8, table=table.card_entry)), budget, "logistic")
    assert not any(other_tables.ELSEWHERE in warning for warning in set_up(level, budget, model, 5, 2_000)[3])
    # Both of the ways to a run say so, before anything is spent.
    rows = Rows(np.zeros((900, 5)), np.zeros(900), np.ones(900))
    planned = plan_run(rows, method, budget, model, schema=wider)
    assert any("on no table with these columns" in warning for warning in planned.warnings)
    wider.write(tmp_path / "wider.json")
    words = ["--data", str(data), "--schema", str(tmp_path / "wider.json"), "--epsilon", "3", "--delta", "1e-6"]
    fine_tuned(tmp_path, [1.0] * 8, table=table.card_entry)
    assert (
        cli.main(["apply", *words, "--rows", "900", "--protector", path, "--dry-run", "--out", str(tmp_path / "run")])
        == 0
    )
    assert "was fine-tuned on no table with these columns" in " ".join(capsys.readouterr().err.split())
    assert plan(2_000, 5, budget, protector=path).forecasts[0].share is None


def test_gains_are_over_the_start_as_it_is_deployed():
    config = resolve.resolve("quick").but(warm_start="universal-logistic")
    control, protector = held_out.stand_in("universal-logistic", config.tasks.rows)
    assert control == control_of(checkpoint.load("universal-logistic").card)
    assert held_out.stand_in("control-universal-logistic", config.tasks.rows) is None

    evaluator = held_out.Evaluator.__new__(held_out.Evaluator)
    evaluator._resolved = resolved.resolve(config.tasks, config.simulated, starting_point(config))
    evaluator._start, evaluator._stand_in = "start", (control, protector)
    ran = {"start": 1.0}
    evaluator._results = lambda protector, *_: {
        "score": np.full(4, ran.get(protector, 2.0) if isinstance(protector, str) else 2.0)
    }
    batch = dataclasses.make_dataclass("Batch", ["log_signal"])(np.array([1.0, 2.0, 3.0, 5.0]))
    # `universal-logistic` is known to gain nothing from 1.7625 to 3.8875.
    assert evaluator._start_results(config.shapes[0], batch, 0)["score"].tolist() == [1.0, 2.0, 2.0, 1.0]


def test_frames_are_tables_too_and_rows_that_are_no_rows_are_left_out():
    columns = {"age": list(range(50)) * 5, "dose": [0.5] * 250, "ward": ["a"] * 250, "back": ["no", "yes"] * 125}
    columns["age"][0] = None
    table = own_tables.read(columns, Schema(COLUMNS, TARGETS["binary"]), "frame")
    assert (table.rows, table.left_out, len(table.y)) == (250, 1, 249)
    assert table.source.startswith("table:frame:")


def edit(path, change):
    """A schema file with something changed."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


BAD = {
    "no schema": (lambda t, s: ([t], []), "1 tables and 0 schemas"),
    "a schema too many": (lambda t, s: ([t], [s, s]), "1 tables and 2 schemas"),
    "no such table": (lambda t, s: ([t.with_name("none.csv")], [s]), "there is no file"),
    "no such schema": (lambda t, s: ([t], [s.with_name("none.json")]), "cannot be read"),
    "a kind of file that nobody reads": (lambda t, s: ([t.rename(t.with_suffix(".xlsx"))], [s]), "of no kind"),
    "a schema that is a table": (lambda t, s: ([t], [t]), "cannot be read as JSON"),
    "one table twice": (lambda t, s: ([t, t], [s, s]), "given twice"),
}
BAD_SCHEMAS = {
    "a column that is not declared": (lambda c: c["columns"].pop("age"), "not declare"),
    "bounds not filled in": (lambda c: c["columns"]["age"].update(bounds=None), "not declared yet"),
    "private bounds": (lambda c: c["columns"]["age"].update(bounds="private"), "are private"),
    "class weights": (lambda c: c["target"].update(weights=[1, 2]), "class weights"),
    "labels of another table": (lambda c: c["target"].update(classes=["left", "right"]), "0 rows that are valid"),
    "a class that no row has": (lambda c: c["target"]["classes"].append("never"), "0 rows of class 'never'"),
}


@pytest.fixture
def no_training(monkeypatch):
    """Nothing is compiled."""

    def begun(*_):
        raise AssertionError("a training began")

    monkeypatch.setattr(fine_tuning, "train", begun)


def refusal(data, schemas, out, **options):
    """The sentence that a fine-tuning is refused with."""
    with pytest.raises(InputError) as caught:
        __main__.main(out, data=data, schema=schemas, **options)
    assert "\n" not in str(caught.value)
    assert not (out / "config.json").exists()
    return str(caught.value)


@pytest.mark.parametrize("case", BAD)
def test_tables_and_schemas_that_make_no_pairs_are_refused(no_training, tmp_path, case):
    make, phrase = BAD[case]
    assert phrase in refusal(*make(*write(tmp_path, "ward")), tmp_path / "out")


@pytest.mark.parametrize("case", BAD_SCHEMAS)
def test_a_schema_that_does_not_fit_is_refused(no_training, tmp_path, case):
    change, phrase = BAD_SCHEMAS[case]
    data, schema = write(tmp_path, "ward")
    edit(schema, change)
    assert phrase in refusal([data], [schema], tmp_path / "out")


@pytest.mark.parametrize(
    ("kind", "options", "phrase"),
    [
        ("regression", {"start": "probe"}, "start from universal (--start universal)"),
        ("multiclass", {"start": "regression"}, "start from universal (--start universal)"),
        ("binary", {"start": "probe"}, "start from universal (--start universal)"),
        ("binary", {"start": "universall"}, "no shipped protector 'universall'"),
        ("binary", {"start": "noisygd"}, "no shipped protector 'noisygd'"),
        ("binary", {"start": "mine/mine.safetensors"}, "no shipped protector"),
        ("binary", {"start": "../universal"}, "no shipped protector"),
        ("binary", {"start": "directions-mnist-rest-3,5"}, "cannot start from yours"),
        ("binary", {"start": "noisygd-tuned-logistic-adult"}, "cannot start from yours"),
        ("binary", {"start": "paper-adult"}, "cannot start from yours"),
        ("binary", {"minutes": 0}, "minutes is 0"),
        ("binary", {"minutes": -3.0}, "minutes is -3.0"),
    ],
)
def test_a_start_that_does_not_fit_is_refused_with_one_that_does(no_training, tmp_path, kind, options, phrase):
    data, schema = write(tmp_path, "ward", kind=kind)
    assert phrase in refusal([data], [schema], tmp_path / "out", **options)


def test_few_rows_and_kinds_that_the_start_does_not_learn_are_refused(no_training, tmp_path):
    few = write(tmp_path, "few", rows=199)
    assert "has 199 rows" in refusal([few[0]], [few[1]], tmp_path / "out")
    many = [write(tmp_path, kind, kind=kind) for kind in ("regression", "multiclass")]
    message = refusal(*map(list, zip(*many, strict=True)), tmp_path / "out", start="regression")
    assert "multiclass, which is one of several classes" in message


def test_minutes_that_leave_no_time_are_refused_before_anything_is_done(no_training, tmp_path):
    data, schema = write(tmp_path, "ward")
    assert "leave no time to train" in refusal([data], [schema], tmp_path / "out", minutes=0.1)


def test_a_recipe_that_minutes_leave_no_time_for_is_refused_before_anything_is_done(tmp_path):
    with pytest.raises(InputError, match="leave no time to train"):
        fine_tuning.train(resolve.resolve("paper-adult"), tmp_path / "out", fine_tuning.Watch(0.1))
    assert not (tmp_path / "out").exists()


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


@pytest.mark.slow
def test_what_cannot_be_resumed_is_refused(monkeypatch, tmp_path):
    (data, schema), out = write(tmp_path, "ward"), tmp_path / "out"
    monkeypatch.setattr(
        fine_tuning,
        "train",
        lambda config, out, watch: (out / "config.json").write_text(json.dumps(config.flat())) and out,
    )
    meta_train.fine_tune([data], [schema], out)
    second_table = write(tmp_path, "other", seed=5)
    with pytest.raises(InputError, match="holds a training on other tables"):
        meta_train.fine_tune([second_table[0]], [second_table[1]], out)
    data.write_text(data.read_text() + "1,0.5,a,no\n")
    with pytest.raises(InputError, match="is not what it was"):
        __main__.main(out, resume=True)
    (out / "tables.json").write_text("{}")
    with pytest.raises(InputError, match="are not known"):
        __main__.main(out, resume=True)
    with pytest.raises(InputError, match="minutes bound trainings by meta-gradients"):
        __main__.train(resolve.resolve("noisygd-tuned-logistic-adult"), out, fine_tuning.Watch(1.0))


@pytest.mark.slow
def test_a_card_alone_does_not_find_the_tables_again():
    with pytest.raises(InputError, match="a table of its maker's"):
        families("table:gone:0123456789abcdef")
