"""Ledgers on the command line: reservations, interrupts, and what an interrupted run leaves behind."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.privacy.card.card import Card
from l2p.release import private_run
from l2p.tables.schema import Target
from tests.commands.small_tables import NUM_ROWS, SCHEMA, apply


def shown(path, capsys):
    """The output of `l2p ledger show`."""
    capsys.readouterr()
    assert main(["ledger", "show", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def assert_says_what_stays(message, run, path):
    assert message.startswith(f"Interrupted. The reservation of epsilon 1.77 at delta 1e-05 for this run ({run['id']})")
    assert "stays in the" in message
    assert f"ledger of ward and counts as spent: l2p ledger show {path} lists it" in message
    assert "l2p ledger release may give it back only if no query was answered" in message


@pytest.mark.slow
def test_ctrl_c_says_that_the_reservation_stays_and_how_to_look_at_it(options, tmp_path, capsys):
    path = tmp_path / "ward.ledger"
    assert main(["ledger", "create", str(path), "--name", "ward", "--epsilon", "3", "--delta", "1e-5"]) == 0
    # After the reservation the run never ends, so that the signal cannot come too late; meanwhile JAX computes in
    # threads that Python would wait for or crash on. It sleeps in short pieces: a signal that comes just before a sleep
    # begins does not shorten it. The watch ends a test that hangs; it is too long to decide on a slow machine.
    code = """
import time, jax
from l2p.commands import cli
from l2p.release import private_run
spin = jax.jit(lambda x: jax.lax.fori_loop(0, 10**9, lambda _, y: y @ y, x))
def train(*_):
    spin(jax.numpy.eye(200))
    print("computing", flush=True)
    while True:
        time.sleep(0.1)
private_run._train = train
cli.run_process()
"""
    words = ["apply", "--ledger", str(path), *(word for pair in options.items() for word in pair)]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"},  # reading from it once hung
    )
    watch = threading.Timer(3600, process.kill)
    watch.start()
    try:
        assert process.stdout.readline() == "computing\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    finally:
        watch.cancel()
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, "")
    (run,) = shown(path, capsys)["runs"]
    assert run["state"] == "reserved"
    *before, message = err.splitlines()  # XLA may have printed something about its cache before
    assert not any("Traceback" in line or "Interrupted" in line for line in before)
    assert_says_what_stays(message, run, path)


def test_a_command_without_a_reservation_is_interrupted_in_a_word(options, capsys, monkeypatch):
    monkeypatch.setattr(private_run, "_train", lambda *_: signal.raise_signal(signal.SIGINT))
    assert apply(options) == 130
    message = (
        f"Interrupted. Nothing was written to {options['--out']}; no ledger counts what its queries may have spent.\n"
    )
    assert capsys.readouterr() == ("", message)


def test_bad_input_that_is_found_after_a_reservation_does_not_count_as_nothing_spent(
    options, tmp_path, capsys, monkeypatch
):
    path = tmp_path / "ward.ledger"
    assert main(["ledger", "create", str(path), "--name", "ward", "--epsilon", "3", "--delta", "1e-5"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(private_run, "_train", lambda *_: (_ for _ in ()).throw(InputError("the source ended early.")))
    assert apply(options | {"--ledger": str(path)}) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("the source ended early. The reservation of epsilon")


def test_a_ledger_is_kept_from_the_command_line(options, refused, tmp_path, capsys, monkeypatch):
    path = str(tmp_path / "ward.ledger")
    create = ["ledger", "create", path, "--name", "ward", "--epsilon", "3", "--delta", "1e-5"]
    assert main(create) == 0
    assert "ward has" in capsys.readouterr().out
    assert "would lose what was spent" in refused(main, create)

    first = options | {"--ledger": path, "--out": str(tmp_path / "first")}
    assert apply(first) == 0
    card = Card.from_json(tmp_path / "first" / "card.json")
    assert card.composition["data_set"] == "ward"
    facts = shown(path, capsys)
    (run,) = facts["runs"]
    assert (run["state"], run["id"]) == ("settled", card.composition["reservation"])
    assert facts["spent"]["amount"] == card.composition["counted"] > 0
    assert facts["left"]["amount"] == pytest.approx(facts["limit"]["amount"] - facts["spent"]["amount"])

    second = options | {"--ledger": path, "--out": str(tmp_path / "second")}
    assert "must not start" in refused(apply, second | {"--epsilon": "3"})
    assert "counts zero_out neighbours" in refused(
        apply, second | {"--adjacency": "add_remove", "--rows": str(NUM_ROWS), "--out": str(tmp_path / "b")}
    )
    assert "a ledger cannot count it" in refused(apply, second | {"--seed": "3", "--out": str(tmp_path / "c")})
    assert "no theorem" not in refused(
        apply, second | {"--protector": "dpsgd", "--out": str(tmp_path / "d")}
    )  # has an accountant, but none that adds up mu^2
    assert shown(path, capsys) == facts

    with monkeypatch.context() as patch:
        patch.setattr(private_run, "_train", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        assert apply(second | {"--out": str(tmp_path / "e")}) == 143
    (message,) = capsys.readouterr().err.splitlines()
    killed = shown(path, capsys)["runs"][1]
    assert killed["state"] == "reserved"
    assert_says_what_stays(message, killed, path)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    release = ["ledger", "release", path, killed["id"], "--reason", "stopped before its first query"]
    assert "--no-query-was-answered" in refused(main, release)
    assert main([*release, "--no-query-was-answered"]) == 0
    assert shown(path, capsys)["spent"] == facts["spent"]
    assert "is released" in refused(main, [*release, "--no-query-was-answered"])
    assert main(["ledger", "show", path]) == 0
    assert killed["id"] in capsys.readouterr().out


@pytest.mark.slow
def test_a_method_tuned_on_the_private_rows_is_reserved_as_a_whole(options, refused, tmp_path, capsys, monkeypatch):
    sums, wholes = str(tmp_path / "sums.ledger"), str(tmp_path / "wholes.ledger")
    for path, unit in ((sums, "gdp"), (wholes, "basic")):
        create = ["ledger", "create", path, "--name", "ward", "--epsilon", "3", "--delta", "1e-5", "--unit", unit]
        assert main(create) == 0
    capsys.readouterr()
    tuned = options | {"--protector": "noisygd:private", "--ledger": wholes}
    assert "unit rdp or basic" in refused(apply, tuned | {"--ledger": sums, "--out": str(tmp_path / "a")})
    assert "leave it out" in refused(apply, tuned | {"--accountant": "gdp", "--out": str(tmp_path / "b")})
    assert "one order only" in refused(apply, tuned | {"--protector": "dpsgd:private", "--out": str(tmp_path / "c")})
    dataclasses.replace(SCHEMA, target=Target("readmit", bounds=(0, 1))).write(tmp_path / "numbers.json")
    numbers = {"--schema": str(tmp_path / "numbers.json"), "--model": "square", "--out": str(tmp_path / "e")}
    assert "has no labels" in refused(apply, tuned | numbers)
    assert shown(wholes, capsys)["runs"] == []
    monkeypatch.setattr("l2p.privacy.cost.selection.NegativeBinomial.draw", lambda *_: 2)
    assert apply(tuned) == 0
    (run,) = shown(wholes, capsys)["runs"]
    assert (run["state"], run["reserved"], run["counted"]) == ("settled", *[{"amount": 2.0, "delta": 1e-6}] * 2)
    card = Card.from_json(Path(options["--out"], "card.json"))
    assert (card.protector["name"], card.composition["reservation"]) == ("noisygd:private", run["id"])
    assert "Papernot & Steinke 2022, Theorem 2" in card.theorem
    assert main(["account", "--card", str(Path(options["--out"], "card.json")), "--verify"]) == 0
    capsys.readouterr()
    assert "must not start" in refused(apply, tuned | {"--out": str(tmp_path / "d")})


@pytest.mark.parametrize(
    ("args", "phrase"),
    [
        (["ledger"], "subcommand"),
        (["ledger", "show", "nowhere.ledger"], "there is no ledger"),
        (["ledger", "create", "new.ledger", "--name", "ward", "--epsilon", "0", "--delta", "1e-5"], "epsilon is 0.0"),
        (["ledger", "create", "new.ledger", "--name", "ward", "--epsilon", "1"], "--delta"),
        (
            ["ledger", "create", "no/new.ledger", "--name", "ward", "--epsilon", "1", "--delta", "1e-5"],
            "/no to hold a ledger",
        ),
        (["ledger", "release", "nowhere.ledger", "a1", "--reason", "none"], "--no-query-was-answered"),
        (["plan", "--rows", "1000", "--features", "10", "--epsilon", "1"], "--delta"),
        (["plan", "--rows", "1000", "--features", "10", "--epsilon", "-1", "--delta", "1e-6"], "epsilon is -1.0"),
        (["plan", "--rows", "1000", "--features", "10", "--epsilon", "1", "--delta", "1e-2"], "below 1/N"),
        (["plan", "--rows", "0", "--features", "10", "--epsilon", "1", "--delta", "1e-6"], "rows"),
    ],
)
def test_ledger_and_plan_refuse_with_one_sentence(refused, tmp_path, monkeypatch, args, phrase):
    monkeypatch.chdir(tmp_path)
    assert phrase in refused(main, args)
    assert list(tmp_path.iterdir()) == []
