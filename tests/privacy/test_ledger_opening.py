"""Files of ledgers: what is refused when one is created or opened, and what the file itself refuses."""

import contextlib
import math
import os
import sqlite3
import stat

import pytest

from l2p.commands.cli import main
from l2p.privacy import Adjacency, Budget
from l2p.privacy.ledger import ledger_file
from l2p.privacy.ledger.ledger import Cost, Ledger
from tests.privacy.ledgers import BUDGET, sentence, sql


def test_an_existing_file_is_never_replaced(ledger):
    ledger.reserve(Cost(0.5), "run")
    with sentence("exists"):
        Ledger.create(ledger.path, "ward", BUDGET, "gdp", Cost(1.0))
    assert ledger.spent() == Cost(0.5)
    assert len(list(ledger.path.parent.iterdir())) == 1


def test_a_folder_that_is_missing_is_refused(tmp_path):
    with sentence("there is no folder"):
        Ledger.create(tmp_path / "no" / "ward.ledger", "ward", BUDGET, "gdp", Cost(1.0))


@pytest.mark.parametrize(
    ("unit", "limit"),
    [
        ("dp", Cost(1)),
        ("gdp", Cost(0)),
        ("zcdp", Cost(1, 1e-6)),
        ("rdp", Cost(math.inf)),
        ("basic", Cost(1, 1)),
        ("gdp", Cost(math.nan)),
    ],
)
def test_terms_that_make_no_sense_are_refused(tmp_path, unit, limit):
    with sentence():
        Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, unit, limit)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_refused(tmp_path):
    with sentence("create it with l2p ledger create"):
        Ledger.open(tmp_path / "ward.ledger")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a ledger at all\n" * 99, b"SQLite format 3\x00" + b"\x07" * 4096])
def test_a_file_that_is_not_ours_is_refused(tmp_path, content):
    path = tmp_path / "ward.ledger"
    path.write_bytes(content)
    with sentence(str(path)):
        Ledger.open(path)
    assert path.read_bytes() == content


def test_another_database_is_refused(tmp_path):
    path = tmp_path / "ward.ledger"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE book (name TEXT)")
    with sentence("is not a ledger"):
        Ledger.open(path)


def test_a_name_cannot_steer_a_terminal(tmp_path, ledger, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    create = ["ledger", "create", str(tmp_path / "new.ledger"), "--epsilon", "1", "--delta", "1e-6", "--name"]
    assert main([*create, "ward\x1b[2J"]) == 2
    ledger.reserve(Cost(0.5), "a run", unit="per\x1b]0;son")
    assert main(["ledger", "show", str(ledger.path)]) == 0
    forged = tmp_path / "forged.ledger"
    ledger_file.create(forged, ("ward\x1b[2J", 1.0, 1e-6, "zero_out", "basic", 1.0, 1e-6, "2026-01-01"))
    assert main(["ledger", "show", str(forged)]) == 2
    (tmp_path / "a\x1b[2Jb.csv").write_text("age\n")
    assert main(["schema", str(tmp_path / "a\x1b[2Jb.csv"), "--target", "b\x9b2J", "--out", str(tmp_path / "s")]) == 2
    printed = "".join(capsys.readouterr())
    assert "\\x1b]0;son" in printed
    assert not {"\x1b", "\x9b"} & set(printed)


def test_another_format_is_refused(ledger):
    for version, phrase in ((4, "a newer l2p"), (2, "an older l2p"), (0, "an older l2p")):
        sql(ledger, f"PRAGMA user_version = {version}")
        with sentence(phrase):
            Ledger.open(ledger.path)


def test_a_file_that_vanished_is_not_made_again(ledger):
    run = ledger.reserve(Cost(0.5), "run")
    ledger.path.unlink()
    with sentence("unable to open"):
        ledger.reserve(Cost(0.5), "run")
    with sentence("unable to open", error=RuntimeError):
        ledger.settle(run, Cost(0.5))
    assert not ledger.path.exists()


def test_another_ledger_in_its_place_is_not_held_to_the_old_limit(ledger):
    run = ledger.reserve(Cost(0.1), "a run")
    ledger.path.rename(ledger.path.with_suffix(".archived"))
    new = Ledger.create(ledger.path, "ward", Budget(0.1, 1e-6, Adjacency.REPLACE_ONE), "zcdp", Cost(0.01))
    for use in (
        lambda: ledger.reserve(Cost(0.5), "a run"),
        lambda: ledger.release(run, "it never began"),
        ledger.entries,
        ledger.left,
    ):
        with sentence("another ledger lies at"):
            use()
    with sentence("another ledger lies at", error=RuntimeError):
        ledger.settle(run, Cost(0.1))
    assert new.spent() == Cost(0.0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_can_be_read(ledger):
    ledger.path.chmod(stat.S_IRUSR)
    assert Ledger.open(ledger.path).left() == Cost(1.0)
    with sentence("readonly"):
        ledger.reserve(Cost(0.5), "run")


def test_a_locked_file_is_given_up_with_a_sentence(ledger, monkeypatch):
    run = ledger.reserve(Cost(0.5), "run")
    monkeypatch.setattr(ledger_file, "_PATIENCE", 0.05)
    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with sentence("database is locked", "0.05 seconds"):
            ledger.reserve(Cost(0.5), "run")
        with sentence("database is locked", error=RuntimeError):
            ledger.settle(run, Cost(0.5))
        assert ledger.left() == Cost(0.5)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entry",
        "UPDATE entry SET counted_amount = 0",
        "UPDATE entry SET counted_amount = 0.5 WHERE state = 'settled'",
        "UPDATE entry SET counted_amount = reserved_amount / 2 WHERE state = 'reserved'",
        "UPDATE entry SET state = 'released', counted_amount = 0, reason = 'why not' WHERE state = 'settled'",
        "UPDATE entry SET state = 'released', counted_amount = 0 WHERE state = 'reserved'",
        "UPDATE entry SET state = 'settled', reserved_amount = 9, counted_amount = 9 WHERE state = 'reserved'",
        "UPDATE entry SET state = 'settled', counted_amount = 0.3 WHERE state = 'reserved'",
        "UPDATE entry SET state = 'settled', counted_amount = -1 WHERE state = 'reserved'",
        "UPDATE entry SET state = 'settled', counted_amount = NULL WHERE state = 'reserved'",
        "UPDATE entry SET state = 'settled', counted_amount = 'little' WHERE state = 'reserved'",
        "UPDATE entry SET state = 'gone' WHERE state = 'reserved'",
        "UPDATE book SET limit_amount = 9",
    ],
)
def test_the_file_itself_refuses_to_hand_budget_back(ledger, statement):
    ledger.settle(ledger.reserve(Cost(0.5), "settled"), Cost(0.25))
    ledger.reserve(Cost(0.25), "reserved")
    before = ledger.entries()
    with pytest.raises(sqlite3.IntegrityError):
        sql(ledger, statement)
    assert ledger.entries() == before
    assert Ledger.open(ledger.path).limit == Cost(1.0)
