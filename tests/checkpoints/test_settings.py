"""Settings of a hand-designed method in its name: they reach it, stand on its card, and verify; others do not."""

import json

import numpy as np
import pytest

from l2p import Budget, InputError, Rows, private_train
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.method_name import MethodName
from l2p.checkpoints.settings import settings_of, with_settings
from l2p.commands.cli import main
from l2p.models import Logistic
from l2p.privacy.sensitivity.passes import Passes
from l2p.protectors import HAND_DESIGNED
from l2p.tables.schema import Number, Schema, Target

BUDGET, N = Budget(1.0, 1e-6), 400
NAME = "bolt_on[num_passes=3 batch_size=10 ridge=.01 averaged=1 radius=none]"


def test_settings_in_a_name_reach_the_method_whatever_its_number_of_rows():
    named = resolve(NAME, BUDGET, "logistic")
    for protector in (named.protector, named.for_rows(N).protector):
        chosen = protector.num_passes, protector.batch_size, protector.ridge, protector.averaged, protector.radius
        assert chosen == (3, 10, 0.01, 1.0, None)
    assert named.for_rows(N).protector.num_rows == N
    assert named.name == NAME
    assert MethodName.parse("bolt_on").with_settings(NAME[8:-1].split()) == MethodName.parse(NAME)


def test_a_release_names_its_settings_and_verifies_by_them(tmp_path, capsys):
    random = np.random.default_rng(0)
    x = random.uniform(size=(N, 3)).astype(np.float32)
    rows = Rows(x, (x[:, 0] > 0.5).astype(np.float32), np.ones(N, np.float32))
    card = private_train(rows, NAME, BUDGET).card
    assert card.protector["name"] == NAME
    settled = resolve(NAME, BUDGET, "logistic", num_rows=N).protector.for_table(Logistic(), 3)
    plan = Passes(N, 0.25, 3, 10, step_size=settled.step_size, ridge=0.01, averaged=1.0)
    assert card.mechanisms[0]["clip_norm"][0] == pytest.approx(plan.sensitivity(), rel=1e-4)

    def verified(fields):
        (tmp_path / "card.json").write_text(json.dumps(fields))
        code = main(["account", "--card", str(tmp_path / "card.json"), "--verify", "--json"])
        return code, json.loads(capsys.readouterr().out)

    fields = json.loads(card.to_json())
    code, report = verified(fields)
    assert (code, report["known_by"], report["rehearsed"]) == (0, "name", True)
    fields["protector"]["name"] = NAME.replace("num_passes=3", "num_passes=30")
    code, report = verified(fields)
    assert code == 1
    assert any("bounds a row's contribution" in problem for problem in report["problems"])


def test_every_method_takes_its_own_settings_back():
    for name, method in HAND_DESIGNED.items():
        protector = method(Budget(1.0, 1e-6), num_rows=N)
        settings = settings_of(protector)
        assert "num_rows" not in settings
        again = with_settings(protector, {key: setting.text for key, setting in settings.items()}, name)
        assert settings_of(again) == settings
        assert all(setting.choices for setting in settings.values())


REFUSED = {
    "no such setting": ("bolt_on[passes=3]", "has no setting 'passes'"),
    "no whole number": ("bolt_on[num_passes=2.5]", "num_passes=2.5 is no setting"),
    "no number": ("bolt_on[ridge=much]", "give a number"),
    "no such word": ("bolt_on[order=mine]", "give fresh or same or with_replacement"),
    "not yes": ("bolt_on[snapshots=1]", "give yes or no"),
    "below 1": ("bolt_on[batch_size=0]", "batch_size=0 is no setting"),
    "not finite": ("bolt_on[ridge=nan]", "settings that fit no run"),
    "no course": ("bolt_on[rule=strongly_convex]", "settings that fit no run"),
    "long rows": ("bolt_on[norm_bound=1e200]", "settings that fit no run"),
    "steps of no length": ("bolt_on[rule=inverse_power power=400]", "choose a smaller power"),
    "long steps": ("bolt_on[step_size=9]", "exceeds 2 / beta"),
    "the number of rows": ("bolt_on[num_rows=5]", "has no setting 'num_rows'"),
    "twice": ("bolt_on[ridge=1 ridge=2]", "given twice"),
    "two lists": ("bolt_on[ridge=1][ridge=2]", "asked for twice"),
    "tuned": ("noisygd[num_steps=5]:tuned", "given and, by :tuned, to be chosen"),
    "chosen": ("noisygd[num_steps=5]:private", "given and, by :private, to be chosen"),
    "a checkpoint": ("universal[num_steps=5]", "is no hand-designed method"),
    "half a list": ("bolt_on[ridge]", "bolt_on"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_no_method_has_are_refused_in_a_sentence(case):
    name, words = REFUSED[case]
    with pytest.raises(InputError, match=words) as refused:
        resolve(name, BUDGET, "logistic", num_rows=N)
    assert str(refused.value).endswith(".")


def test_the_command_lists_settings_and_takes_them(tmp_path, capsys):
    assert main(["protectors", "bolt_on"]) == 0
    out = capsys.readouterr().out
    assert "  num_passes          10" in out
    assert "fresh or same or with_replacement" in out
    assert max(map(len, out.splitlines())) <= 80
    assert main(["protectors", "paper-adult"]) == 0
    assert "It has no settings" in capsys.readouterr().out
    assert main(["protectors", "nothing"]) == 2
    Schema({"age": Number(0, 120)}, Target("back", classes=("no", "yes"))).write(tmp_path / "schema.json")
    (tmp_path / "ward.csv").write_text("age,back\n" + "30,no\n70,yes\n" * 50)
    words = ["apply", "--data", str(tmp_path / "ward.csv"), "--schema", str(tmp_path / "schema.json"), "--delta", "0"]
    words += ["--epsilon", "1", "--out", str(tmp_path / "run"), "--protector", "bolt_on", "--rows", "100"]
    assert main([*words, "--dry-run", "--set", "num_passes=2", "batch_size=5"]) == 0
    assert "bolt_on[num_passes=2 batch_size=5]" in capsys.readouterr().out
    for bad in ("num_passes", "passes=2"):
        assert main([*words, "--set", bad]) == 2
        assert "l2p protectors" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
