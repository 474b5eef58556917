"""Runs that are reserved in a ledger: what counts after a crash, an interrupt or a withheld result."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base import struct
from l2p.base.errors import InputError
from l2p.privacy import Adjacency, Budget, Filter
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.release import private_run
from l2p.tables.schema import Number, Schema, Target
from tests.release.tables import BUDGET, Echo, Unread, read_card, table


def ledger_at(path, unit="gdp", epsilon=3.0, delta=1e-5, adjacency=Adjacency.ZERO_OUT):
    budget = Budget(epsilon, delta, adjacency)
    return Ledger.create(path / "ward.ledger", "ward", budget, unit, limit_of(unit, budget))


def test_a_run_is_reserved_in_its_ledger_and_settled(tmp_path):
    ledger = ledger_at(tmp_path)
    card = l2p.private_train(table(), "noisygd", BUDGET, ledger=ledger.path).card
    (entry,) = ledger.entries()
    spent = Filter("gdp", ledger.budget).spent(card.answered())
    assert (entry.state, entry.counted.amount) == ("settled", spent)
    assert spent <= entry.reserved.amount
    assert entry.reserved.amount == pytest.approx(Filter("gdp", BUDGET).limit, rel=1e-6)
    assert card.composition == {
        "data_set": "ward",
        "unit": "gdp: mu^2",
        "reservation": entry.id,
        "spent_before": 0.0,
        "counted": spent,
        "limit": ledger.limit.amount,
        "earlier": [],
    }
    assert read_card(card, tmp_path) == card
    # Another run of this size does not fit and is refused before it reads a row; a smaller one fits.
    with pytest.raises(InputError, match="it must not start"):
        l2p.private_train(Unread(), "noisygd", Budget(3.0, 1e-6), ledger=ledger)
    second = l2p.private_train(table(), "noisygd", Budget(1.0, 1e-6), ledger=ledger).card
    assert second.composition["spent_before"] == spent
    assert second.composition["earlier"] == [
        {
            "reservation": entry.id,
            "run": entry.what,
            "state": "settled",
            "counted": spent,
            "delta": 0.0,
            "reserved_on": entry.created[:10],
        }
    ]
    assert [entry.state for entry in ledger.entries()] == ["settled", "settled"]


def test_a_ledger_that_cannot_be_opened_is_refused_before_the_table_is_read(tmp_path):
    schema = Schema({"age": Number(0, 9)}, Target("back", classes=("no", "yes")))
    simulated = {"ledger": ledger_at(tmp_path), "key": jax.random.key(0)}
    for options in ({"ledger": tmp_path / "nosuch.ledger"}, simulated):
        with pytest.raises(InputError, match=r"there is no ledger|a ledger cannot count"):
            l2p.private_train(tmp_path / "nosuch.csv", "noisygd", BUDGET, schema=schema, **options)


@pytest.mark.parametrize(("unit", "accountant"), [("zcdp", "zcdp"), ("gdp", "zcdp"), ("rdp", "gdp"), ("zcdp", "gdp")])
def test_a_ledger_counts_runs_of_other_accountants_in_its_own_unit(tmp_path, unit, accountant):
    ledger = ledger_at(tmp_path, unit)
    card = l2p.private_train(table(), "noisygd", BUDGET, accountant=accountant, ledger=ledger).card
    (entry,) = ledger.entries()
    assert card.composition["counted"] == entry.counted.amount == Filter(unit, ledger.budget).spent(card.answered())
    assert 0.999 * entry.reserved.amount < entry.counted.amount <= entry.reserved.amount < ledger.limit.amount


def test_a_basic_ledger_counts_runs_on_batches_by_their_epsilon_and_other_units_refuse_them(tmp_path):
    ledger = ledger_at(tmp_path, "basic")
    card = l2p.private_train(table(), "dpsgd", BUDGET, ledger=ledger).card
    (entry,) = ledger.entries()
    assert entry.counted == (card.epsilon_certified, BUDGET.delta)
    with pytest.raises(InputError, match="must not start"):
        l2p.private_train(Unread(), "dpsgd", BUDGET, ledger=ledger)
    (tmp_path / "sums").mkdir()
    sums = ledger_at(tmp_path / "sums", "rdp")
    with pytest.raises(InputError, match="does not convert to"):
        l2p.private_train(Unread(), "dpsgd", BUDGET, ledger=sums)
    assert sums.entries() == []


def test_a_run_that_crashes_counts_in_full(tmp_path, monkeypatch):
    ledger = ledger_at(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(private_run, "_train", lambda *_: (_ for _ in ()).throw(MemoryError("out of memory")))
        with pytest.raises(MemoryError) as caught:
            l2p.private_train(table(), "noisygd", BUDGET, ledger=ledger)
    (entry,) = ledger.entries()
    (note,) = caught.value.__notes__
    assert (
        f"({entry.id}) stays in the ledger of ward and counts as spent: l2p ledger show {ledger.path} lists it" in note
    )
    assert (entry.state, entry.counted) == ("reserved", entry.reserved)
    with pytest.raises(InputError, match="must not start"):
        l2p.private_train(Unread(), "noisygd", Budget(3.0, 1e-6), ledger=ledger)
    ledger.release(entry.id, "the machine had no memory, before its first query")
    assert l2p.private_train(table(), "noisygd", BUDGET, ledger=ledger).card.composition["spent_before"] == 0.0


def test_an_interrupt_passes_on_with_a_note_on_what_stays_reserved_and_only_on_that(tmp_path, monkeypatch):
    ledger, interrupt = ledger_at(tmp_path), KeyboardInterrupt
    reserve, settle = Ledger.reserve, Ledger.settle
    noted = {}
    for name, method, change in (
        ("before it is reserved", "reserve", lambda *_: (_ for _ in ()).throw(interrupt)),
        ("once it is reserved", "reserve", lambda *args: (reserve(*args), (_ for _ in ()).throw(interrupt))),
        ("before it is settled", "settle", lambda *_: (_ for _ in ()).throw(interrupt)),
        ("once it is settled", "settle", lambda *args: (settle(*args), (_ for _ in ()).throw(interrupt))),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, method, change)
            with pytest.raises(interrupt) as caught:
                l2p.private_train(table(), "noisygd", Budget(0.5, 1e-6), ledger=ledger)
        noted[name] = [
            entry.id in note for note in getattr(caught.value, "__notes__", []) for entry in ledger.entries()[-1:]
        ]
    assert noted == {
        "before it is reserved": [],
        "once it is reserved": [True],
        "before it is settled": [True],
        "once it is settled": [],
    }
    assert [entry.state for entry in ledger.entries()] == ["reserved", "reserved", "settled"]
    with pytest.raises(InputError, match="must not start") as caught:
        l2p.private_train(Unread(), "noisygd", Budget(4.0, 1e-6), ledger=ledger)
    assert not hasattr(caught.value, "__notes__")


def test_a_result_that_is_withheld_counts_in_full(tmp_path, monkeypatch):
    ledger = ledger_at(tmp_path)
    monkeypatch.setattr("l2p.privacy.cap.filter.Filter.spent", lambda self, answered: np.inf)
    with pytest.raises(RuntimeError, match="withhold the result"):
        l2p.private_train(table(), "noisygd", BUDGET, ledger=ledger)
    (entry,) = ledger.entries()
    assert (entry.state, entry.counted) == ("reserved", entry.reserved)


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({"key": jax.random.key(0)}, "a ledger cannot count it as private"),
        ({"budget": Budget(2.0, 1e-6, Adjacency.REPLACE_ONE)}, "counts zero_out neighbours"),
        ({"protector": "agd"}, "exponential"),
        ({"budget": Budget(50.0, 1e-6)}, "must not start"),
        ({"ledger": "nowhere/ward.ledger"}, "there is no ledger"),
    ],
    ids=["simulation", "adjacency", "no price in its unit", "more than there is", "no file"],
)
def test_a_ledger_refuses_what_it_cannot_count_before_rows_are_read(tmp_path, options, phrase):
    ledger = ledger_at(tmp_path)
    arguments = {"protector": "noisygd", "budget": BUDGET, "ledger": ledger} | options
    with pytest.raises(InputError, match=phrase):
        l2p.private_train(Unread(), arguments.pop("protector"), arguments.pop("budget"), **arguments)
    assert ledger.entries() == []


def test_a_ledger_s_delta_must_mean_something_for_the_rows_of_its_runs(tmp_path):
    ledger = ledger_at(tmp_path, delta=1e-3)
    with pytest.raises(InputError, match="below 1/N"):
        l2p.private_train(Unread(), "noisygd", BUDGET, ledger=ledger)
    assert ledger.entries() == []


def test_what_cannot_be_traced_is_refused_before_anything_is_reserved(tmp_path):
    @struct.dataclass
    class Undeclared(Echo):
        mechanisms = ("exponential",)

    ledger = ledger_at(tmp_path, "rdp")
    with pytest.raises(TypeError, match="does not declare"):
        l2p.private_train(
            Unread(), Undeclared(jnp.float32(9.0), jnp.float32(1.0)), BUDGET, accountant="rdp", ledger=ledger
        )
    assert ledger.entries() == []
