"""The command line: help, exit codes, the list of protectors, and options that reach what they are for."""

import json
import re
import subprocess
import sys
import types
from pathlib import Path

import jax
import pytest

from l2p.checkpoints import checkpoint
from l2p.checkpoints.defaults import default_protector
from l2p.checkpoints.epsilon_curve import EPSILONS
from l2p.commands.cli import COMMANDS, main
from l2p.models import NAMES
from l2p.protectors import HAND_DESIGNED
from l2p.tables.reading import Format
from meta_train.training.untrained import BUILDERS


def test_help_comes_without_jax_and_at_once():
    code = (
        "import sys; from l2p.commands.cli import main; main(['--help']); "
        "print('jax' in sys.modules, 'numpy' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines()[-1] == "False False"
    assert all(name in process.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    assert main([name, "--help"]) == 0
    assert f"usage: l2p {name}" in capsys.readouterr().out


@pytest.mark.slow
def test_a_process_exits_with_the_codes_that_are_promised(tmp_path, options):
    def process(*args):
        return subprocess.run([sys.executable, "-m", "l2p", *args], capture_output=True, text=True, check=False)

    bad = process("apply", *(word for pair in (options | {"--epsilon": "-1"}).items() for word in pair))
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)
    assert process("protectors", "--json").returncode == 0


@pytest.mark.parametrize(
    ("args", "phrase"),
    [
        *(([], "subcommand"), (["aply"], "no command 'aply'; did you mean 'apply'?"), (["account"], "--card")),
        (["apply", "--protecter", "noisygd"], "Unrecognized options: --protecter noisygd; see l2p apply --help"),
    ],
)
def test_a_wrong_command_line_costs_one_sentence(refused, args, phrase):
    assert phrase in refused(main, args)


def test_protectors_are_listed_for_machines_and_people(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path,))
    card = {"sources": ["adult"], "range": {"log_signal": [0.7, 8.7], "num_features": [24, 104]}}
    checkpoint.save(BUILDERS["control"](jax.random.key(0)), tmp_path / "census.safetensors", card)
    assert main(["protectors", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert {*HAND_DESIGNED, "census"} == set(listed)
    assert listed["census"]["sources"] == ["adult"]
    assert listed["noisygd"]["models"] == list(NAMES)
    assert main(["protectors", "--all"]) == 0
    assert "0.7 to 8.7" in " ".join(capsys.readouterr().out.split())


def test_protectors_that_users_need_fit_a_screen(capsys):
    assert main(["protectors"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80
    first = checkpoint.first_floor()
    assert len(first) <= 17
    listed = {line.strip("* ").split("  ")[0].split()[0]: line for line in lines if "  " in line}
    controls = {f"control-{name}" for name in first}
    learned = [name for name in first if name not in controls]
    assert list(listed) == [*learned, *HAND_DESIGNED]
    assert all(listed[name].endswith(checkpoint.about(name)) for name in learned)
    assert not any(line.endswith("...") for line in lines)
    defaults = {default_protector(model) for model in NAMES}
    assert {name for name, line in listed.items() if line.startswith("*")} == defaults - set(HAND_DESIGNED)
    assert not any("-no-" in line or "-tuned-" in line for line in lines)


def test_plan_prints_what_a_budget_buys(capsys):
    words = ["plan", "--rows", "30000", "--features", "100", "--epsilon", "0.5", "--delta", "1e-6"]
    assert main(words) == 0
    assert "universal" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    assert {"universal", "control-universal"} <= {
        entry["name"] for entry in json.loads(capsys.readouterr().out)["forecasts"]
    }


@pytest.mark.slow
def test_plan_draws_what_each_epsilon_buys(tmp_path, capsys, refused):
    words = ["plan", "--rows", "30000", "--features", "100", "--epsilon", "0.5", "--delta", "1e-6"]
    page = tmp_path / "plan.html"
    assert main([*words, "--curve", "--out", str(page)]) == 0
    out = capsys.readouterr().out
    gains = [int(gain) for gain in re.findall(r"(-?\d+) +-?\d+ to \d+ *$", out, re.MULTILINE)]
    assert len(gains) == len(EPSILONS)
    assert gains == sorted(gains)
    text = page.read_text()
    assert "epsilon 0.5</text>" in text
    assert "logistic on 30,000 rows x 100 features, delta 1e-06, zero_out neighbours, by universal." in text
    assert "add --curve" in refused(main, [*words, "--out", str(page)])


def stand_in(monkeypatch, name, recorded):
    module = types.ModuleType(name)
    module.main = lambda *args, **options: recorded.extend([*args, *(value for value in options.values() if value)])
    monkeypatch.setitem(sys.modules, name, module)


def test_compare_splits_methods_at_commas(monkeypatch, tmp_path):
    recorded = []
    stand_in(monkeypatch, "l2p.compare.runner", recorded)
    words = ["--methods", "census,paper", "agd:tuned", "--epsilon", ".05", ".1", "--data", "adult", "--seeds", "3"]
    assert main(["compare", *words, "--out", str(tmp_path)]) == 0
    config = recorded[0]
    assert config.methods == ("census", "paper", "agd:tuned")
    assert (config.epsilon, config.data, config.seeds, config.out) == ((0.05, 0.1), "adult", 3, tmp_path)


@pytest.mark.parametrize(
    ("module", "args", "expected"),
    [
        ("l2p.commands.demo", ["demo"], [None]),
        ("l2p.commands.demo", ["demo", "--out", "o"], [Path("o")]),
        (
            "meta_train.__main__",
            ["meta-train", "--config", "c", "--out", "o", "--resume"],
            [Path("o"), Path("c"), True, Format()],
        ),
        (
            "meta_train.__main__",
            ["meta-train", "--recipe", "universal", "--without", "adult", "--out", "o"],
            [Path("o"), "universal", "adult", Format()],
        ),
        (
            "meta_train.__main__",
            ["meta-train", "--recipe", "universal", "--fold", "2", "--out", "o"],
            [Path("o"), "universal", 2, Format()],
        ),
        (
            "meta_train.__main__",
            ["meta-train", "--recipe", "universal", "--folds", "--out", "o"],
            [Path("o"), "universal", True, Format()],
        ),
    ],
)
def test_demo_and_meta_train_are_called_with_their_options(monkeypatch, module, args, expected):
    recorded = []
    stand_in(monkeypatch, module, recorded)
    assert main(args) == 0
    assert recorded == expected


def test_the_help_of_meta_train_groups_options_by_what_says_what_to_train(capsys):
    assert main(["meta-train", "--help"]) == 0
    groups = {}
    for line in capsys.readouterr().out.splitlines():
        if match := re.fullmatch(r"\W*([\w-]*) ?options \W*", line):
            options = groups.setdefault(match[1], set())
        elif match := re.match(r"\W* --(\w[\w-]*)", line):
            options.add(match[1])
    assert groups["own-tables"] == {"data", "schema", "start"}
    assert groups["recipe"] == {"recipe", "without", "fold", "folds"}
    assert groups["tuned-method"] == {"method", "model", "source"}
    assert groups["card-or-file"] == {"like", "config"}
    assert groups[""] == {"out", "minutes", "show", "resume"}
