"""A fine-tuned checkpoint in use: it runs where it gains and nowhere else, and its tables are known again."""

import dataclasses
import gzip
import shutil

import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint, lookup, other_tables
from l2p.checkpoints.control import control_of
from l2p.checkpoints.forecast import plan
from l2p.checkpoints.set_up import set_up
from l2p.commands import cli
from l2p.models import find_model
from l2p.privacy.budget import Budget
from l2p.release.planned_run import plan_run
from l2p.tables.own import source_of_file
from l2p.tables.schema import Number, Schema
from l2p.task.rows import Rows
from meta_train.evaluation import held_out, resolved
from meta_train.recipes import resolve
from meta_train.tasks import own_tables
from meta_train.training.starting_points import starting_point
from tests.meta_train.own_files import write


@pytest.fixture
def north(tmp_path):
    """A table and its schema, as files."""
    return write(tmp_path, "north")


def test_a_packed_table_is_the_same_and_one_called_as_a_public_set_is_that_set(north, tmp_path):
    packed = tmp_path / "north.csv.gz"
    packed.write_bytes(gzip.compress(north[0].read_bytes()))
    assert source_of_file(packed) == source_of_file(north[0])
    adult = shutil.copy(north[0], tmp_path / "adult.csv")
    args = (Budget(1.0, 1e-5), "logistic")
    with pytest.raises(InputError, match="was made from adult"):
        lookup.resolve(str(checkpoint.find("universal")), *args, avoid=(source_of_file(adult),))
    # By its name, a hold-out without that set takes its place; on any other table it runs itself.
    method = lookup.resolve("universal", *args, avoid=(source_of_file(adult),))
    assert method.sha256 == checkpoint.digest("universal-fold-1")
    assert lookup.resolve("universal", *args, avoid=(source_of_file(north[0]),)).hold_out is None


def fine_tuned(folder, gains, start="universal", table=None):
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


@pytest.mark.parametrize(("epsilon", "expected"), [(3.0, "own"), (0.1, "universal"), (0.01, "control-universal")])
def test_where_nothing_was_gained_the_start_runs_as_it_is_deployed(tmp_path, epsilon, expected):
    path = fine_tuned(tmp_path, gains=[0.0] * 4 + [1.0] * 4)
    budget = Budget(epsilon, 1e-6)
    method = lookup.resolve(str(path), budget, "logistic")
    ran, *_ = set_up(method, budget, find_model("logistic", 2), 10, 5_000)
    assert ran.name == (str(path) if expected == "own" else expected)


def test_a_start_that_gives_way_on_narrow_tables_is_no_fault_of_what_was_made_for_them(tmp_path):
    """Nothing was gained, and `universal` itself serves no table of four columns."""
    path, budget = fine_tuned(tmp_path, [0.0] * 8), Budget(1.0, 1e-6)
    method = lookup.resolve(str(path), budget, "logistic")
    ran, _, _, warnings = set_up(method, budget, find_model("logistic", 2), 4, 5_000)
    assert ran.name == "control-universal"
    (warning,) = warnings
    assert warning.startswith("At this budget universal runs: ")
    assert warning.endswith(" universal gives way to control-universal here, in turn.")


def test_who_applies_it_to_another_table_is_told_by_what_is_public_of_that(north, tmp_path, capsys):
    """The next extract of its table is not another one, in whatever order its columns are."""
    data, declared = north
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


@pytest.mark.slow
def test_gains_are_over_the_start_as_it_is_deployed():
    config = resolve.resolve("quick").but(warm_start="universal")
    control, protector = held_out.stand_in("universal", config.tasks.rows)
    assert control == control_of(checkpoint.load("universal").card)
    assert held_out.stand_in("control-universal", config.tasks.rows) is None

    evaluator = held_out.Evaluator.__new__(held_out.Evaluator)
    evaluator._resolved = resolved.resolve(config.tasks, config.simulated, starting_point(config))
    evaluator._start, evaluator._stand_in = "start", (control, protector)
    ran = {"start": 1.0}
    evaluator._results = lambda protector, *_: {
        "score": np.full(4, ran.get(protector, 2.0) if isinstance(protector, str) else 2.0)
    }
    batch = dataclasses.make_dataclass("Batch", ["log_signal"])(np.array([1.0, 2.0, 3.0, 5.0]))
    # `universal` is known to gain nothing up to 4.025.
    assert evaluator._start_results(config.shapes[0], batch, 0)["score"].tolist() == [2.0, 2.0, 2.0, 1.0]
