"""A ledger's file: no statement gives budget back, and other changes are detected."""
# Statements are put together here as an attacker would.
# ruff: noqa: S608

import contextlib
import functools
import multiprocessing
import shutil
import sqlite3

import pytest

from l2p.base.errors import InputError
from l2p.commands.ledger import Show
from l2p.privacy import Budget
from l2p.privacy.ledger import ledger_file
from l2p.privacy.ledger.ledger import Cost, Ledger

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])

COLUMNS = "id, what, state, reserved_amount, reserved_delta, counted_amount, counted_delta, process, host, created, "
COLUMNS += "changed, reason, protects, hash"
#: An entry that counts nothing, under the id in braces.
NOTHING = "SELECT '{}', what, 'released', reserved_amount, reserved_delta, 0, 0, process, host, created, changed, 'x', "
NOTHING += "protects, {} FROM entry WHERE state = 'settled'"
RELEASE = "state = 'released', counted_amount = 0, counted_delta = 0, reason = 'why not'"
CHANGED = "was changed by something other than l2p"
NEWEST = "(SELECT hash FROM chain ORDER BY number DESC LIMIT 1)"


@functools.cache
def template(folder):
    """A ledger with a run in each state; "settled" and so on are their ids."""
    names = iter(("settled", "released", "reserved"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secrets.token_hex", lambda size: next(names) if size == 6 else "part")
        ledger = Ledger.create(folder / "template.ledger", "ward", Budget(1, 1e-6), "basic", Cost(1.0, 1e-6))
        ledger.settle(ledger.reserve(Cost(0.5, 1e-7), "a run that settled"), Cost(0.25, 1e-7))
        ledger.release(ledger.reserve(Cost(0.25, 1e-8), "a run that was released"), "no table")
        ledger.reserve(Cost(0.375, 2e-7), "a run that goes on")
    return ledger.path


@pytest.fixture
def ledger(tmp_path, tmp_path_factory):
    shutil.copyfile(template(tmp_path_factory.getbasetemp()), tmp_path / "ward.ledger")
    return Ledger.open(tmp_path / "ward.ledger")


@pytest.fixture
def empty(tmp_path):
    return Ledger.create(tmp_path / "empty.ledger", "ward", Budget(1, 1e-6), "basic", Cost(1.0, 1e-6))


@contextlib.contextmanager
def shell(path):
    """A connection like a SQLite shell's, with all settings that could disable constraints or triggers."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for pragma in ("recursive_triggers = OFF", "foreign_keys = OFF", "ignore_check_constraints = ON"):
            connection.execute(f"PRAGMA {pragma}")
        yield connection


def facts(path):
    """All that a ledger says."""
    ledger = Ledger.open(path)
    return ledger, ledger.entries(), ledger.spent(), ledger.left()


def insert(columns=COLUMNS, into="entry", verb="INSERT", **values):
    """A statement that inserts a run with a negative cost, or with `values`."""
    usual = {"id": "'new'", "what": "'x'", "state": "'settled'", "process": 1, "host": "'h'", "hash": NEWEST}
    usual |= dict.fromkeys(["created", "changed", "reason"], "'x'") | {"rowid": 1}
    values_of_row = [str((usual | values).get(name, "-0.25")) for name in columns.split(", ")]
    return f"{verb} INTO {into} ({columns}) VALUES ({', '.join(values_of_row)})"


TERMS = "VALUES ('ward', 9, 1e-6, 'zero_out', 'basic', 9, 1e-6, 'x')"
HOSTILE = [
    # A settled, reserved or released run deleted, sometimes through a conflict clause.
    "DELETE FROM entry",
    "DELETE FROM ENTRY WHERE ID = 'settled'",
    *(f"{verb} INTO entry {NOTHING.format('settled', 'hash')}" for verb in ("REPLACE", "INSERT OR REPLACE")),
    f"REPLACE INTO entry {NOTHING.format('settled', NEWEST)}",
    f"REPLACE INTO entry {NOTHING.format('other', 'hash')}",
    f"REPLACE INTO main.entry (rowid, {COLUMNS}) SELECT 1, * FROM ({NOTHING.format('other', NEWEST)})",
    *(insert(f"rowid, {COLUMNS}", verb=f"INSERT OR {clause}") for clause in ("REPLACE", "IGNORE", "FAIL", "ROLLBACK")),
    insert(f"oid, {COLUMNS}", verb="REPLACE", oid="'1'", id="'settled'"),
    "UPDATE OR REPLACE entry SET id = 'settled' WHERE state = 'reserved'",
    "UPDATE OR REPLACE entry SET rowid = 1 WHERE state = 'reserved'",
    f"UPDATE OR REPLACE entry SET hash = (SELECT min(hash) FROM entry), {RELEASE} WHERE id = 'reserved'",
    # Upserts.
    f"INSERT INTO entry {NOTHING.format('settled', NEWEST)} ON CONFLICT (id) DO UPDATE SET counted_amount = 0",
    f"INSERT INTO entry {NOTHING.format('settled', 'hash')} ON CONFLICT DO UPDATE SET id = 'x', {RELEASE}",
    f"INSERT INTO entry SELECT {COLUMNS} FROM entry WHERE true ON CONFLICT (hash) DO UPDATE SET {RELEASE}",
    # A run that counts less, in the same or in another state.
    *(f"UPDATE {clause} entry SET counted_amount = 0" for clause in ("", "OR IGNORE", "OR FAIL", "OR ROLLBACK")),
    "UPDATE entry SET counted_amount = counted_amount - 0.25, counted_delta = 0 WHERE id = 'settled'",
    *(f"UPDATE entry SET counted_amount = {value}" for value in ("-1", "'little'", "NULL", "x''", "-9e999", "0e0 / 0")),
    *(f"UPDATE entry SET {RELEASE} WHERE id = '{run}'" for run in ("settled", "reserved")),
    f"UPDATE entry SET {RELEASE}, hash = {NEWEST} WHERE id = 'settled'",
    f"UPDATE entry SET {RELEASE}, hash = 'x' WHERE id = 'reserved'",
    *(f"UPDATE entry SET state = 'settled', counted_amount = {value} WHERE id = 'reserved'" for value in (0, 0.1, -9)),
    "UPDATE entry SET state = 'reserved' WHERE id = 'settled'",
    "UPDATE entry SET state = 'SETTLED', counted_amount = 0 WHERE id = 'reserved'",
    "UPDATE entry SET reserved_amount = 0, reserved_delta = 0, counted_amount = 0, counted_delta = 0",
    *(f"UPDATE entry SET {column} = 'other'" for column in ("id", "what", "host", "created", "changed", "reason")),
    "UPDATE entry SET process = 1",
    "UPDATE entry SET rowid = rowid + 10",
    f"WITH one AS (SELECT 1) UPDATE entry SET {RELEASE} FROM one WHERE id = 'reserved'",
    # A run with a negative cost.
    insert(),
    insert(verb="INSERT OR IGNORE"),
    *(insert(counted_amount=value) for value in ("NULL", "'x'", "-9e999", "0e0 / 0")),
    insert(hash="'x'"),
    insert(hash="NULL"),
    # Other terms.
    *(f"UPDATE book SET {change}" for change in ("limit_amount = 9", "delta = 0.1", "unit = 'gdp'", "name = 'other'")),
    "UPDATE OR REPLACE book SET rowid = 2, limit_delta = 9",
    "DELETE FROM book",
    *(f"{verb} INTO book {TERMS}" for verb in ("INSERT", "REPLACE", "INSERT OR IGNORE")),
    f"REPLACE INTO book (rowid, name, epsilon, delta, adjacency, unit, limit_amount, limit_delta, created) {TERMS[:7]}"
    f"(1, {TERMS[8:]}",
    # The chain: deleted, rewritten, or continued.
    "DELETE FROM chain",
    "DELETE FROM chain WHERE number = (SELECT max(number) FROM chain)",
    "UPDATE chain SET content = replace(content, '0.25', '0.0')",
    "UPDATE OR REPLACE chain SET number = 1",
    "INSERT INTO chain VALUES (7, 'x', 'x')",
    "INSERT INTO chain SELECT number + 6, content, hash FROM chain WHERE number = 1",
    "REPLACE INTO chain SELECT number, content, hash FROM chain",
    "INSERT INTO chain SELECT 1, 'x', 'x' WHERE true ON CONFLICT DO UPDATE SET content = 'x'",
]


@pytest.mark.parametrize("statement", HOSTILE)
def test_no_statement_hands_budget_back(ledger, statement):
    before = facts(ledger.path)
    with shell(ledger.path) as connection, pytest.raises(sqlite3.DatabaseError) as caught:
        connection.execute(statement)
    assert isinstance(caught.value, sqlite3.IntegrityError) or "no such function: l2p_hash" in str(caught.value)
    assert facts(ledger.path) == before


@pytest.mark.parametrize("statement", [insert(), insert(f"rowid, {COLUMNS}"), insert(hash=f"coalesce({NEWEST}, 'x')")])
def test_no_statement_gives_an_empty_ledger_a_run(empty, statement):
    with shell(empty.path) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute(statement)
    assert (empty.entries(), Ledger.open(empty.path).left()) == ([], empty.limit)


def test_statements_through_another_database_are_refused_too(ledger, tmp_path):
    before = facts(ledger.path)
    with shell(tmp_path / "other.db") as connection:
        connection.execute("ATTACH ? AS victim", (str(ledger.path),))
        connection.execute("CREATE TEMP TRIGGER quiet BEFORE DELETE ON victim.entry BEGIN SELECT RAISE(IGNORE); END")
        connection.execute("DELETE FROM victim.entry")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(
                f"REPLACE INTO victim.entry {NOTHING.format('settled', 'hash').replace(' entry', ' victim.entry')}"
            )
    assert facts(ledger.path) == before


@pytest.mark.parametrize("statement", ["VACUUM", "REINDEX", "PRAGMA wal_checkpoint", "BEGIN; COMMIT"])
def test_what_changes_nothing_is_allowed(ledger, statement):
    before = facts(ledger.path)
    with shell(ledger.path) as connection:
        connection.executescript(statement)
    assert facts(ledger.path) == before


def test_who_reads_sees_one_state_of_the_file_whatever_others_write_meanwhile(ledger, monkeypatch):
    """A reader that saw entries from before a change and links from after it would take that for a broken chain."""
    before, messages, listing = ledger.entries(), [], ledger_file._listing

    def reserve():
        with pytest.raises(InputError, match="database is locked") as caught:
            ledger.reserve(Cost(0.01, 1e-9), "meanwhile")
        messages.append(caught.value)

    def traced(connection):
        connection.set_trace_callback(lambda statement: reserve() if "FROM chain" in statement else None)
        return listing(connection)

    monkeypatch.setattr(ledger_file, "_PATIENCE", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(ledger_file, "_listing", lambda connection: (patch.undo(), traced(connection))[1])
        assert ledger.entries() == before
    assert len(messages) == 1
    ledger.reserve(Cost(0.01, 1e-9), "afterwards")


def assert_noticed(ledger, *phrases):
    """Opening it, and a ledger that was open before, both refuse; the file stays as it is."""
    content = ledger.path.read_bytes()
    for use in (
        lambda: Ledger.open(ledger.path),
        lambda: Show(ledger.path).run(),
        lambda: ledger.reserve(Cost(0.01, 1e-9), "a run"),
        lambda: ledger.release("reserved", "no table"),
        ledger.left,
    ):
        with pytest.raises(InputError, match=CHANGED) as caught:
            use()
        assert all(phrase in str(caught.value) for phrase in ("\n", *phrases)[1:])
        assert "\n" not in str(caught.value)
    with pytest.raises(RuntimeError, match=CHANGED):
        ledger.settle("reserved", Cost(0.0))
    assert ledger.path.read_bytes() == content


def triggers(connection):
    return connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name").fetchall()


def test_each_dropped_trigger_is_noticed(ledger):
    content = ledger.path.read_bytes()
    with shell(ledger.path) as connection:
        names = [name for name, _ in triggers(connection)]
    assert len(names) == 9
    for name in names:
        with shell(ledger.path) as connection:
            connection.execute(f"DROP TRIGGER {name}")
        assert_noticed(ledger, f"trigger '{name}'")
        ledger.path.write_bytes(content)
    assert ledger.left() == Ledger.open(ledger.path).left()


@pytest.mark.parametrize(
    ("script", "phrase"),
    [
        ("CREATE TRIGGER more AFTER INSERT ON entry BEGIN SELECT 1; END", "trigger 'more'"),
        ("CREATE TABLE more (x)", "table 'more'"),
        ("CREATE INDEX more ON entry (state)", "index 'more'"),
        ("CREATE VIEW more AS SELECT * FROM entry", "view 'more'"),
        ("ALTER TABLE entry ADD COLUMN more", "table 'entry'"),
        ("ALTER TABLE book RENAME TO other", "table 'other'"),
        ("ALTER TABLE entry RENAME COLUMN what TO why", "table 'entry'"),
        ("DROP TABLE chain", "table 'chain'"),
        ("DROP TABLE entry; CREATE TABLE entry (id)", "trigger 'entry_is_kept'"),
        (
            "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, 'ABORT', 'FAIL') "
            "WHERE name = 'entry_is_kept'",
            "trigger 'entry_is_kept'",
        ),
        ("PRAGMA writable_schema = ON; DELETE FROM sqlite_master WHERE type = 'trigger'", "trigger 'book_is_fixed'"),
    ],
)
def test_a_changed_schema_is_noticed(ledger, script, phrase):
    with shell(ledger.path) as connection:
        connection.executescript(script)
    with pytest.raises(InputError, match=CHANGED) as caught:
        Ledger.open(ledger.path)
    assert phrase in str(caught.value)
    assert_noticed(ledger, phrase)


def tamper(path, script):
    """Run a script with all triggers dropped, then restore them."""
    with shell(path) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        dropped = triggers(connection)
        for name, _ in dropped:
            connection.execute(f"DROP TRIGGER {name}")
        connection.executescript(script)
        for _, statement in dropped:
            connection.execute(statement)


@pytest.mark.parametrize(
    "script",
    [
        "UPDATE entry SET counted_amount = 0 WHERE id = 'settled'",
        f"UPDATE entry SET {RELEASE} WHERE id = 'reserved'",
        "DELETE FROM entry",
        "DELETE FROM entry WHERE id = 'reserved'",
        f"REPLACE INTO entry {NOTHING.format('settled', 'hash')}",
        insert(reserved_amount=0, reserved_delta=0, counted_amount=0, counted_delta=0, hash="'x'"),
        "UPDATE entry SET rowid = 10 WHERE id = 'settled'",
        "UPDATE book SET limit_amount = 9",
        "UPDATE book SET delta = 0.1",
        f"INSERT INTO book {TERMS}",
        "DELETE FROM book",
        "DELETE FROM chain",
        "DELETE FROM chain WHERE number = 6",
        "DELETE FROM chain WHERE number = 3; UPDATE chain SET number = number - 1 WHERE number > 3",
        "UPDATE chain SET content = replace(content, '0.25,', '0.0,')",
        "UPDATE chain SET content = replace(content, '0.25,', '0.0,'); "
        "UPDATE entry SET counted_amount = 0 WHERE id = 'settled'",
        "UPDATE chain SET content = CAST(content AS BLOB)",
        "INSERT INTO chain VALUES (7, 'x', 'x')",
    ],
)
def test_what_is_done_with_the_triggers_gone_and_put_back_is_noticed(ledger, script):
    tamper(ledger.path, script)
    assert_noticed(ledger)


def test_no_value_in_the_file_can_change_unnoticed(ledger):
    content, noticed = ledger.path.read_bytes(), 0
    with shell(ledger.path) as connection:
        tables = {
            name: connection.execute(f"SELECT rowid, * FROM {name}").fetchall() for name in ("book", "entry", "chain")
        }
        names = {name: [line[1] for line in connection.execute(f"PRAGMA table_info({name})")] for name in tables}
    for table, rows in tables.items():
        for rowid, *values in rows:
            for column, value in zip(names[table], values, strict=True):
                altered = value + 40 if isinstance(value, (int, float)) else f"{value}x"
                literal = f"'{altered}'" if isinstance(altered, str) else repr(altered)
                tamper(ledger.path, f"UPDATE {table} SET {column} = {literal} WHERE rowid = {rowid}")
                with pytest.raises(InputError, match=CHANGED):
                    Ledger.open(ledger.path)
                ledger.path.write_bytes(content)
                noticed += 1
    assert noticed == 8 + 3 * 14 + 6 * 3
    assert Ledger.open(ledger.path) == ledger


def test_a_link_that_is_made_up_is_noticed(ledger):
    """Whoever brings a function of that name can write links, but only the true one makes links that hold."""
    with shell(ledger.path) as connection:
        connection.create_function("l2p_hash", 2, lambda *_: "made up")
        connection.execute("INSERT INTO chain VALUES (7, ?, 'made up')", ('["reserved", "x"]',))
        connection.execute(f"UPDATE entry SET {RELEASE}, hash = 'made up' WHERE id = 'reserved'")
    assert_noticed(ledger, "link 7")


def test_a_settled_run_stays_whatever_links_are_made_up(ledger):
    with shell(ledger.path) as connection:
        connection.create_function("l2p_hash", 2, lambda *_: "made up")
        connection.execute("INSERT INTO chain VALUES (7, ?, 'made up')", ('["settled", "x"]',))
        for statement in (
            f"UPDATE entry SET {RELEASE}, hash = 'made up' WHERE id = 'settled'",
            f"REPLACE INTO entry {NOTHING.format('settled', NEWEST)}",
            insert(f"rowid, {COLUMNS}", verb="REPLACE"),
        ):
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(statement)


def test_an_old_copy_put_back_cannot_be_noticed(ledger, tmp_path):
    """A limit that docs/threats.md states; whoever finds a way to notice changes both."""
    with shell(ledger.path) as connection:
        connection.execute("VACUUM INTO ?", (str(tmp_path / "copy.ledger"),))
    remaining = ledger.left()
    ledger.reserve(Cost(0.1, 1e-8), "a run that will be forgotten")
    shutil.move(tmp_path / "copy.ledger", ledger.path)
    assert Ledger.open(ledger.path).left() == remaining


def test_a_number_that_sqlite_stores_otherwise_is_not_taken_for_a_change(empty):
    """-0.0 is stored as 0.0, and whole numbers as integers."""
    empty.settle(empty.reserve(Cost(0.5, -0.0), "a run"), Cost(-0.0, -0.0))
    empty.reserve(Cost(1.0, 5e-324), "a run of odd numbers")
    assert [entry.counted for entry in Ledger.open(empty.path).entries()] == [Cost(0.0), Cost(1.0, 5e-324)]
