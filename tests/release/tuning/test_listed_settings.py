"""METHOD[NAME=VALUE,VALUE]:private, from the command line: every candidate's plan, what is charged, and refusals."""

import json
from pathlib import Path

import jax.numpy as jnp
import pytest

from l2p.commands.cli import main
from l2p.privacy.card.card import Card
from l2p.protectors import BoltOn
from l2p.release.tuning import split_tuning as module
from tests.commands.small_tables import NUM_ROWS, apply

LISTS = "num_passes=1,2 ridge=0,.01 batch_size=20"


@pytest.fixture
def options(options):
    return options | {"--protector": "bolt_on:private", "--set": LISTS}


def ledger(folder, unit="basic"):
    path = str(folder / f"{unit}.ledger")
    create = ["ledger", "create", path, "--name", "ward", "--epsilon", "3", "--delta", "1e-5", "--unit", unit]
    assert main(create) == 0
    return path


def runs(path, capsys):
    capsys.readouterr()
    assert main(["ledger", "show", path, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["runs"]


def test_every_candidate_is_planned_for_its_part_and_the_choice_is_charged_once(options, tmp_path, capsys, monkeypatch):
    planned, plan_run, private_train = [], module.plan_run, module.private_train

    def recorded(*args, **keywords):
        planned.append(plan_run(*args, **keywords))
        return planned[-1]

    def first_alone(data, protector, budget, **keywords):
        """All candidates but the first are skipped, and the first is chosen: each would be compiled."""
        if isinstance(protector, module.Choice) or trained:
            return private_train(data, protector, budget, **keywords) if not trained else trained[0]
        trained.append(private_train(data, protector, budget, **keywords))
        return trained[0]

    trained = []
    monkeypatch.setattr(module, "plan_run", recorded)
    monkeypatch.setattr(module, "private_train", first_alone)
    path = ledger(tmp_path)
    assert apply(options | {"--ledger": path}) == 0
    part = NUM_ROWS // 5
    protectors = [run.named.protector for run in planned[:-1]]
    assert [run.num_rows for run in planned] == [part] * 5
    assert [protector.num_rows for protector in protectors] == [part] * 4
    chosen = [(protector.num_passes, protector.ridge, protector.batch_size) for protector in protectors]
    assert chosen == [(1, 0.0, 20), (1, 0.01, 20), (2, 0.0, 20), (2, 0.01, 20)]
    (run,) = runs(path, capsys)
    assert (run["state"], run["counted"]) == ("settled", {"amount": 2.0, "delta": 1e-6})
    card = Card.from_json(Path(options["--out"], "card.json"))
    assert (card.protector["name"], card.num_rows) == ("bolt_on[num_passes=1 ridge=0 batch_size=20]", NUM_ROWS)
    assert "by disjoint parts: each of 4 candidates" in card.theorem
    assert main(["account", "--card", str(Path(options["--out"], "card.json")), "--verify"]) == 0


@pytest.mark.slow
def test_a_pure_choice_prefers_the_candidate_that_learns(options, tmp_path, capsys):
    path = ledger(tmp_path)
    pure = {"--set": "margin_noise=.4,1e-6", "--delta": "0", "--ledger": path, "--model": "logistic"}
    assert apply(options | pure) == 0
    (run,) = runs(path, capsys)
    assert run["counted"] == {"amount": 2.0, "delta": 0.0}
    card = Card.from_json(Path(options["--out"], "card.json"))
    assert card.protector["name"] == "bolt_on[margin_noise=.4]"


def test_a_dry_run_checks_every_part_and_says_what_is_charged(options, tmp_path, capsys):
    dry = options | {"--ledger": ledger(tmp_path), "--rows": str(NUM_ROWS)}
    capsys.readouterr()
    assert main([*words(dry), "--dry-run"]) == 0
    assert "epsilon 1 at delta 9e-06" in " ".join(capsys.readouterr().out.split())


def words(options):
    return ["apply", *(word for option, value in options.items() for word in (option, *value.split(" ")))]


REFUSED = {
    "nothing to vary": ({"--set": "", "--protector": "bolt_on:private"}, "list values to choose among"),
    "no choice": ({"--protector": "bolt_on"}, ":private alone chooses"),
    "no lists": ({"--set": "num_passes=1"}, "given and, by :private, to be chosen"),
    "no value": ({"--set": "num_passes=1,many"}, "num_passes=many is no setting"),
    "an empty value": ({"--set": "num_passes=1,"}, "write NAME=VALUE"),
    "no setting": ({"--set": "passes=1,2"}, "has no setting 'passes'"),
    "too many": ({"--set": f"num_passes={','.join(map(str, range(1, 66)))}"}, "make 65 candidates"),
    "a learned one": ({"--protector": "universal:private"}, "is no hand-designed method"),
    "an accountant": ({"--accountant": "basic"}, "leave it out"),
    "another N": ({"--rows": "1400"}, "leave N out"),
    "a private N": ({"--adjacency": "add_remove", "--rows": "1500"}, "add_remove"),
    "a large delta": ({"--delta": "7e-4"}, "delta"),
    "large batches": ({"--set": "batch_size=301,302,303,304"}, "no larger than the table"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_chosen_among_is_refused_and_spends_nothing(case, options, refused, tmp_path, capsys):
    changes, phrase = REFUSED[case]
    path = ledger(tmp_path)
    capsys.readouterr()
    arguments = {option: value for option, value in (options | {"--ledger": path} | changes).items() if value}
    assert phrase in refused(apply, arguments)
    assert runs(path, capsys) == []
    assert not (tmp_path / "run").exists()


def test_ledgers_that_add_up_queries_and_public_rows_are_refused(options, refused, tmp_path, capsys):
    sums = ledger(tmp_path, "gdp")
    capsys.readouterr()
    assert "unit basic" in refused(apply, options | {"--ledger": sums})
    assert "read no others" in refused(apply, options | {"--public": str(tmp_path / "other.csv")})
    assert runs(sums, capsys) == []


def test_a_protector_that_was_planned_for_all_rows_is_refused(monkeypatch):
    rows = module.Rows(jnp.ones((600, 2)), jnp.ones(600), jnp.ones(600))
    monkeypatch.setattr(module, "private_train", lambda *_, **__: pytest.fail("a run began"))
    with pytest.raises(module.InputError, match="planned for 600 rows, but is trained on a part of 300"):
        module.split_tuning(rows, [BoltOn(600)], module.Budget(1.0, 1e-6))
