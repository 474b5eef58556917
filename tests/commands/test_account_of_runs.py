"""`l2p account` on cards of real runs agrees with them and with an independent library."""

import dataclasses
from pathlib import Path

import pytest

from l2p.commands.cli import main
from l2p.privacy.card.card import Card
from tests.commands.small_tables import RUNS, apply


@pytest.mark.long(cases=["agd-rdp", "agd-zcdp"])
@pytest.mark.slow(but=["noisygd-ctcdp"])
@pytest.mark.parametrize(("protector", "accountant"), RUNS)
def test_account_agrees_with_the_card_and_with_an_independent_library(options, capsys, protector, accountant):
    assert apply(options | {"--protector": protector, "--accountant": accountant}) == 0
    capsys.readouterr()
    path = Path(options["--out"], "card.json")
    assert main(["account", "--card", str(path), "--verify"]) == 0
    printed = capsys.readouterr().out
    assert "the card holds" in printed
    independent = float(printed.split("dp-accounting: epsilon ")[1].split()[0])
    # All except ctcdp's simple conversion are as tight as dp-accounting; a run of AGD may leave a little unspent.
    assert (0.8 if accountant == "ctcdp" or protector == "agd" else 0.999) * 2 < independent <= 2 * (1 + 1e-6)


def less_noise(span):
    return {**span, "queries": [[mechanism, multiplier / 1.1] for mechanism, multiplier in span["queries"]]}


@pytest.mark.parametrize("verify", [[], ["--verify"]])
def test_account_exits_with_1_when_the_events_cost_more(options, tmp_path, capsys, verify):
    assert apply(options) == 0
    card = Card.from_json(Path(options["--out"], "card.json"))
    for name, change in {
        "less noise": {"events": [less_noise(span) for span in card.events]},
        "a lower target": {"epsilon": 1.9, "epsilon_certified": 1.9},
        "a lower claim": {"epsilon_certified": 1.0},
    }.items():
        path = tmp_path / f"{name}.json"
        path.write_text(dataclasses.replace(card, **change).to_json())
        assert main(["account", "--card", str(path), *verify]) == 1
        assert "DOES NOT HOLD" in capsys.readouterr().out


def test_account_refuses_what_is_no_card(options, refused):
    assert "does not hold the fields of a privacy card" in refused(main, ["account", "--card", options["--schema"]])
