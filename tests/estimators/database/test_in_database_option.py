"""`l2p apply --in-database`: trained where the rows lie, and refused before any of them is encoded or paid for."""

import pytest

from l2p.commands.cli import main
from l2p.privacy.budget import Budget
from l2p.privacy.card.card import Card
from l2p.privacy.ledger.ledger import Cost, Ledger
from tests.estimators.database.ward import THREE, N

pytestmark = pytest.mark.slow


@pytest.fixture
def apply(server, tmp_path):
    """A call of the command with these options changed; None leaves one out, True gives none a value."""
    THREE.write(tmp_path / "schema.json")
    usual = {"--schema": tmp_path / "schema.json", "--epsilon": 2, "--delta": 1e-5, "--out": tmp_path / "run"}
    usual |= {"--data": server.address("ward", key="id"), "--in-database": True, "--model": "softmax"}
    usual |= {"--on-invalid": "null"}

    def call(**changed):
        options = usual | {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
        words = [
            (name,) if value is True else (name, str(value)) for name, value in options.items() if value is not None
        ]
        return main(["apply", *(word for pair in words for word in pair)])

    return call


def test_a_table_is_trained_on_where_it_lies(server, apply, tmp_path, capsys, monkeypatch):
    from l2p.tables.reading.database import Database

    monkeypatch.setattr(Database, "blocks", lambda *_: pytest.fail("rows were read here"))
    assert apply(dry_run=True) == 0
    assert "bolt_on, for softmax:3" in capsys.readouterr().out
    assert apply(ledger=Ledger.create(tmp_path / "l", "ward", Budget(3.0, 1e-5), "basic", Cost(3.0, 1e-5)).path) == 0
    card = Card.from_json(tmp_path / "run/card.json")
    assert card.protector["name"] == "bolt_on"
    assert card.num_rows == N
    assert card.private_release
    assert "sesame" not in card.to_json()
    assert main(["account", "--card", str(tmp_path / "run/card.json"), "--verify"]) == 0
    assert Ledger.open(tmp_path / "l").spent().amount == pytest.approx(2, rel=1e-3)


REFUSED = {
    "rows that cannot be encoded": ({"on_invalid": None}, "--on-invalid null"),
    "public rows": ({"public": "public.csv"}, "but --public compares or reads"),
    "a table to score on": ({"test": "test.csv"}, "but --test compares or reads"),
    "a stream": ({"stream": "yes"}, "but --stream yes compares or reads"),
    "a choice among runs": (
        {"protector": "bolt_on:private", "set": "num_passes=1,10"},
        "but METHOD:private compares or reads",
    ),
    "a method that adds up": ({"protector": "noisygd"}, "bolt-on SGD's passes"),
    "averages": ({"set": "averaged=0.5"}, "bolt-on SGD's passes"),
    "a file": ({"data": "ward.csv"}, "one table in PostgreSQL"),
    "another database": ({"data": "duckdb://ward.db?table=ward"}, "a table in PostgreSQL"),
    "two classes where there are three": ({"model": "logistic"}, "softmax"),
    "add_remove": ({"adjacency": "add_remove", "rows": N}, "add_remove"),
    "another number of rows": ({"rows": N + 1}, "rows"),
    "a budget that is not there": ({"epsilon": 9}, "left"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_spent(apply, tmp_path, capsys, case):
    changed, phrase = REFUSED[case]
    ledger = Ledger.create(tmp_path / "ledger", "ward", Budget(3.0, 1e-5), "basic", Cost(3.0, 1e-5))
    assert apply(**{"ledger": ledger.path} | changed) == 2
    assert phrase in capsys.readouterr().err
    assert ledger.entries() == []
    assert not (tmp_path / "run").exists()


def test_an_address_without_a_key_is_refused(server, apply, capsys):
    assert apply(data=server.address("ward")) == 2
    assert "a unique column" in capsys.readouterr().err
