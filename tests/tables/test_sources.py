"""Rows where they live: files, DuckDB and PostgreSQL give the same run, and fail with a sentence."""

import dataclasses
import json
import os
import subprocess
import sys
from urllib.parse import quote

import duckdb
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import l2p
from l2p.base.errors import InputError, RowsError
from l2p.commands.cli import main
from l2p.models import Logistic
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.sampling import PermutationEpochs, Poisson
from l2p.protectors import HAND_DESIGNED
from l2p.run.run import Release, advance, advance_streaming, plan_noise, start
from l2p.tables.reading import open_table
from l2p.tables.schema import Category, Encoding, Ignore, Missing, Number, Schema, Target, Unit, read_rows, stream
from l2p.tables.schema.stream import is_large, streamed
from l2p.task import checks, lookahead
from l2p.task.noise import BatchDraw, Entropy
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource, RowSource
from tests.canaries import observed
from tests.postgres import running

N, STEPS = 3000, 3
BUDGET = Budget(2.0, 1e-6)
WARD = Schema(
    {
        "id": Ignore(),
        "age": Number(0, 120, Missing(50, indicator=True)),
        "dose": Number(-1, 1),
        "smokes": Category((False, True)),
        "ward": Category(("a", "b é"), missing=Missing(indicator=True)),
    },
    Target("back", classes=("no", "yes")),
)
FILES = {"csv": "ward.csv", "parquet": "part-*.parquet", "duckdb": "ward.db"}
KINDS = ("csv", "parquet", "duckdb", "postgresql")
SECRET = "sesame"


def columns():
    rng = np.random.default_rng(0)
    age, dose = rng.integers(0, 130, N), rng.uniform(-1, 1, N)
    ward = rng.choice(["a", "b é", "c", ""], N)
    return {
        "id": np.arange(N) * 7 + 1,
        "age": [None if place % 11 == 0 else int(years) for place, years in enumerate(age)],
        "dose": dose,
        "smokes": rng.random(N) < 0.5,
        "ward": [name or None for name in ward],
        "back": np.where(age / 130 + dose > 0.5, "yes", "no").tolist(),
    }


@pytest.fixture(scope="module")
def table():
    return pa.table(columns())


@pytest.fixture(scope="module")
def folder(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("rows")
    table.to_pandas().to_csv(folder / "ward.csv", index=False)
    for place, start_at in enumerate((0, 1000, 1001)):
        part = table.slice(start_at, (1000, 1, N)[place])
        pq.write_table(part, folder / f"part-{place}.parquet", row_group_size=300)
    with duckdb.connect(folder / "ward.db") as connection:
        connection.register("source", table)
        connection.execute("CREATE TABLE ward AS FROM source")
        connection.execute('CREATE VIEW "the ""ward""" AS FROM ward')
    return folder


@pytest.fixture(scope="module")
def server(table):
    with running() as server:
        server.execute(
            "CREATE TYPE answer AS ENUM ('no', 'yes')",
            "CREATE TABLE ward (id bigint PRIMARY KEY, age numeric, dose float8, smokes bool, ward varchar(9), "
            "back answer)",
            "CREATE TABLE secrets (id int)",
            "CREATE TABLE empty (LIKE ward)",
            "CREATE ROLE reader LOGIN",
            "CREATE ROLE stranger LOGIN",
            "GRANT SELECT ON ward TO reader",
            "CREATE TABLE staged (id bigint, age bigint, dose float8, smokes bool, ward text, back text)",
        )
        fill(server, table.slice(0, N // 2))
        server.execute("UPDATE ward SET id = id WHERE id < 50")  # rows are no longer stored in the order of the key
        fill(server, table.slice(N // 2))
        yield server


def fill(server, table):
    from adbc_driver_postgresql import dbapi

    at = f"postgresql:///postgres?host={server.folder}&user=l2p"
    with dbapi.connect(at) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("staged", table, mode="append")
        connection.commit()
    server.execute("INSERT INTO ward SELECT id, age, dose, smokes, ward, back::answer FROM staged", "TRUNCATE staged")


@pytest.fixture(params=KINDS)
def address(request, folder):
    return address_of(request.param, request, folder)


def address_of(kind, request, folder, user="reader"):
    if kind == "postgresql":
        return request.getfixturevalue("server").address("ward", user, key="id")
    return f"duckdb://{folder}/ward.db?table=ward" if kind == "duckdb" else str(folder / FILES[kind])


def test_a_key_that_is_no_number_in_several_rows_settles_no_order(tmp_path):
    """NaN equals nothing, so that no two of them are alike."""
    with duckdb.connect(tmp_path / "ward.db") as connection:
        connection.execute("CREATE TABLE ward AS SELECT unnest([1.0, 'NaN'::DOUBLE, 'NaN'::DOUBLE]) AS key, 1 AS age")
    with pytest.raises(InputError, match="their order is not settled"):
        list(open_table(f"duckdb://{tmp_path}/ward.db?table=ward&key=key").blocks(("age",)))


def test_decimals_of_a_server_name_no_units(server):
    """`numeric` has any number of digits, and is read as floating-point numbers."""
    schema = dataclasses.replace(WARD, columns={**WARD.columns, "age": Ignore()}, unit=Unit("age", 1))
    with pytest.raises(InputError, match="'age' of the unit holds decimals"), streamed(server.address("ward"), schema):
        pass


# --------------------------------------------------------------------------------------------------------- the same run
@pytest.mark.slow(but=["parquet", "duckdb"])
def test_every_source_gives_the_same_rows_in_blocks_of_one_size(address, table, monkeypatch):
    monkeypatch.setattr(stream, "BLOCK", 2048)
    expected = read_rows(table, Encoding(WARD))
    with streamed(address, WARD) as rows:
        assert (rows.num_rows, rows.num_features) == (N, len(Encoding(WARD).names))
        for _ in range(2):
            blocks = list(rows.blocks())
            assert [len(block.y) for block in blocks] == [2048, 2048]
            for name in ("x", "y", "mask"):
                values = np.concatenate([getattr(block, name) for block in blocks])
                np.testing.assert_array_equal(values[:N], getattr(expected, name))
                assert not values[N:].any()


def drawn(protector, here, num_features):
    at_start, per_step = plan_noise(protector, Logistic().init(num_features), N, num_features, here)
    entropy = Entropy(5)
    return Release(entropy.draw(at_start, 1), [], at_start, ()), Release(
        [], entropy.draw(per_step, protector.num_steps), (), per_step
    )


def ran(protector, rows, here, noise, num_features):
    with jax.enable_x64(True):
        params = Logistic().init(num_features)
        if isinstance(rows, Rows):
            rows = jax.tree.map(jnp.asarray, rows)
            run, _ = jax.jit(start)(protector, params, rows, here, noise[0])
            run, _, _ = jax.jit(advance, static_argnames="num_steps")(
                protector, run, rows, here, noise[1], num_steps=protector.num_steps
            )
        else:
            run, _ = start(protector, params, rows, here, noise[0])
            run, _ = advance_streaming(protector, run, rows, here, noise[1], protector.num_steps)
    return np.asarray(run.params)


@pytest.mark.slow
def test_one_noise_stream_gives_the_same_parameters_from_memory_files_and_databases(request, folder, table):
    rows = read_rows(table, Encoding(WARD))
    protector = dataclasses.replace(HAND_DESIGNED["noisygd"](BUDGET), num_steps=STEPS)
    here = Setup.create(Logistic(), BUDGET.adjacency, Filter("gdp", BUDGET).price_list(), N)
    noise = drawn(protector, here, rows.x.shape[1])
    ends = [ran(protector, source, here, noise, rows.x.shape[1]) for source in (rows, ArraySource(rows, 2048))]
    for kind in KINDS:
        with streamed(address_of(kind, request, folder), WARD) as source:
            ends.append(ran(protector, source, here, noise, rows.x.shape[1]))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-5, atol=1e-7)
    for streams in ends[2:]:
        np.testing.assert_array_equal(ends[1], streams)  # sums are whole numbers, so not a bit differs
    assert np.abs(ends[0]).min() > 0


# ------------------------------------------------------------------------------------------------------- batches ahead
class Passes(ArraySource):
    """Rows in memory that count how often they are read."""

    count = 0

    def blocks(self):
        type(self).count += 1
        return super().blocks()


@pytest.mark.parametrize("sampler", [Poisson(0.1), PermutationEpochs(11, 90)], ids=lambda sampler: sampler.name)
@pytest.mark.parametrize(("room", "passes"), [(8, 1), (2, 4), (0, 16)])
def test_batches_read_ahead_are_those_that_were_drawn_in_few_passes(sampler, room, passes):
    x = np.random.default_rng(0).random((90, 2)).astype(np.float32)
    rows = Rows(x, np.arange(90, dtype=np.float32), (np.arange(90) != 3).astype(np.float32))
    plan = [BatchDraw(sampler, 90)]
    lines = Entropy(1).draw(plan, 8)
    source = Passes(rows, 32)
    type(source).count = 0
    ahead = lookahead.Lookahead.over(source, lines, plan)
    ahead.window = room * lines[0].shape[1] * 4 * (2 + 2)
    for batch in lines[0]:
        for _ in range(2):  # as a second query of the step asks
            members_read = jax.tree.map(lambda *leaves: np.concatenate(leaves), *ahead.members(batch))
            counted = np.asarray(members_read.mask) > 0
            members = sorted(set(batch[batch >= 0].tolist()) - {3})
            assert sorted(np.asarray(members_read.y)[counted].astype(int).tolist()) == members
            np.testing.assert_array_equal(
                np.asarray(members_read.x)[counted], x[np.asarray(members_read.y)[counted].astype(int)]
            )
    assert type(source).count == passes


def test_a_refused_batch_is_skipped_and_one_that_was_not_drawn_is_no_batch():
    rows = Rows(np.ones((9, 2), np.float32), np.arange(9, dtype=np.float32), np.ones(9, np.float32))
    coming = [np.array([place, -1], np.int32) for place in range(4)]
    ahead = lookahead.Lookahead(ArraySource(rows, 4), coming, window=16 * 2 * 2)
    assert [float(np.asarray(block.y)[0]) for block in ahead.members(coming[3])] == [3.0]
    with pytest.raises(RuntimeError, match="not among those drawn"):
        ahead.members(coming[0])


def test_epochs_over_rows_without_an_order_are_refused():
    class Shuffled(ArraySource):
        ordered = False

    rows = Rows(np.ones((900, 1)), np.ones(900), np.ones(900))
    protector = dataclasses.replace(HAND_DESIGNED["dpsgd"](BUDGET), sampler=PermutationEpochs(100, 900))
    with pytest.raises(InputError, match="two batches of one epoch"):
        l2p.private_train(Shuffled(rows, 300), protector, Budget(1.0, 1e-5))


# --------------------------------------------------------------------------------------------------------- the commands
def apply(folder, data, out, *words):
    WARD.write(folder / "schema.json")
    args = ["apply", "--data", *([data] if isinstance(data, str) else data), "--schema", str(folder / "schema.json")]
    return [*args, "--protector", "noisygd", "--epsilon", "2", "--delta", "1e-6", "--out", str(out), *words]


def predict(run, data, out, *words):
    return ["predict", "--model", str(run), "--data", data, "--out", str(out), *words]


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    code, text = observed(lambda: main(apply(folder, str(folder / "ward.csv"), out, "--stream", "yes")))
    assert code == 0, text
    return out


@pytest.mark.slow
def test_apply_streams_from_a_server_and_keeps_no_password(server, folder, tmp_path):
    data = server.address("ward", "reader", key="id")
    test = columns() | {"dose": columns()["dose"] * 0.99}
    pa.table(test).to_pandas().to_csv(folder / "test.csv", index=False)
    args = apply(folder, data, tmp_path / "run", "--stream", "yes", "--test")
    code, text = observed(lambda: main([*args, data]), tmp_path)
    assert (code, SECRET in text) == (2, False)
    assert "the test table holds the private table's own rows" in text
    code, text = observed(lambda: main([*args, str(folder / "ward.csv")]), tmp_path)
    assert code == 2, text
    code, text = observed(lambda: main([*args, str(folder / "test.csv")]), tmp_path)
    assert code == 0, text
    assert SECRET not in text
    assert l2p.load_model(tmp_path / "run").schema == WARD
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert (card["num_rows"], card["private_release"]) == (N, True)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["accuracy"] > 0.7


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_a_schema_is_made_from_a_database_without_reading_a_row(request, folder, tmp_path, kind, monkeypatch):
    data = address_of(kind, request, folder)
    monkeypatch.setattr(type(open_table(data)), "blocks", None)
    code, text = observed(lambda: main(["schema", data, "--target", "back", "--out", str(tmp_path / "s.json")]))
    assert code == 0, text
    schema = json.loads((tmp_path / "s.json").read_text())
    assert {name: column["type"] for name, column in schema["columns"].items()} == {
        "id": "number",
        "age": "number",
        "dose": "number",
        "smokes": "category",
        "ward": "category",
    }
    assert schema["target"] == {"column": "back", "classes": None}


@pytest.mark.slow(but=["postgresql"])
@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_predictions_go_back_to_a_database_all_or_none(request, folder, tmp_path, trained, table, kind):
    code, text = observed(lambda: main(predict(trained, str(folder / "ward.csv"), tmp_path / "p.csv")))
    assert code == 0, text
    expected = (tmp_path / "p.csv").read_text().split()[1:]
    data = address_of(kind, request, folder, "l2p") + ("&key=id" if kind == "duckdb" else "")
    out = data.split("&key")[0].replace("table=ward", "table=predicted")
    code, text = observed(lambda: main(predict(trained, data, out, "--probabilities")))
    assert code == 0, text
    assert SECRET not in text
    table_written = open_table(out)
    assert table_written.names == ("id", "prediction", "no", "yes")
    blocks = list(table_written.blocks(table_written.names))
    keys, predictions = (np.concatenate([block[name] for block in blocks]).tolist() for name in ("id", "prediction"))
    joined = dict(zip(keys, predictions, strict=True))
    assert [joined[key] for key in table["id"].to_pylist()] == expected
    code, text = observed(lambda: main(predict(trained, data, out)))
    assert code == 2
    assert "predictions never replace" in text


def test_predictions_from_a_file_are_numbered_by_line_and_a_row_without_one_is_null(tmp_path, trained):
    (tmp_path / "new.csv").write_text("age,dose,smokes,ward\n61,0.5,True,a\n61,,True,a\n")
    out = f"duckdb://{tmp_path}/new.db?table=predicted"
    assert observed(lambda: main(predict(trained, str(tmp_path / "new.csv"), out)))[0] == 0
    with duckdb.connect(tmp_path / "new.db", read_only=True) as connection:
        assert connection.sql("SELECT line, prediction IS NULL FROM predicted").fetchall() == [(1, False), (2, True)]


def test_what_cannot_be_predicted_leaves_no_database_behind(tmp_path, trained):
    (tmp_path / "new.csv").write_text("age,dose,smokes,ward\n61,0.5,True\n")
    code, text = observed(
        lambda: main(predict(trained, str(tmp_path / "new.csv"), f"duckdb://{tmp_path}/n.db?table=p"))
    )
    assert code == 2, text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv"]


def test_small_tables_are_kept_in_memory_and_large_ones_stream(address, monkeypatch):
    assert not is_large(address, WARD)
    monkeypatch.setattr(stream, "_memory", lambda: 2**16)
    assert is_large(address, WARD) or address.startswith("postgresql")  # whose statistics may not know yet
    assert is_large(address, WARD, num_rows=N)


# ------------------------------------------------------------------------------------------------------------ refusals
def test_a_table_that_is_not_there_or_not_for_this_role_is_refused_before_anything_is_spent(server, folder, tmp_path):
    (tmp_path / "torn.db").write_bytes((folder / "ward.db").read_bytes()[:5000])
    wrong = {
        server.address("wards"): "no such table",
        server.address("ward", "stranger"): "this role may not read it",
        server.address("ward", "nobody-at-all"): "refuses the user or the password",
        server.address("ward", host="/nowhere"): "no server answers",
        server.address("empty", "l2p"): "has no rows to learn from",
        server.address("ward", "reader", key="ids"): "no column 'ids'",
        server.address("ward", "reader", key="age"): "rows share a value of it or have none",
        f"duckdb://{folder}/ward.db?table=wards": "there is no table wards in",
        f"duckdb://{folder}/wards.db?table=ward": "there is no file",
        f"duckdb://{tmp_path}/torn.db?table=ward": "no DuckDB file",
        f"duckdb://{folder}/ward.db": "names none",
        f"duckdb://{folder}/ward.db?table=ward&password={SECRET}": "no part of one",
        "duckdb://?table=ward": "no file",
        "postgresql://[::1/x?table=ward": "cannot be read; write duckdb://",
    }
    for data, phrase in wrong.items():
        code, text = observed(lambda data=data: main(apply(folder, data, tmp_path / "run", "--stream", "yes")))
        assert code == 2, (data, text)
        assert phrase in text, (data, text)
        assert SECRET not in text
        assert not (tmp_path / "run").exists()


def test_an_invalid_cell_is_refused_before_a_run_and_null_on_request(server, tmp_path):
    server.execute(
        "CREATE TABLE broken AS SELECT * FROM ward",
        "UPDATE broken SET dose = NULL WHERE id = 71",
        "ALTER TABLE broken ADD COLUMN since date",
    )
    broken = server.address("broken", key="id")
    dated = dataclasses.replace(WARD, columns={**WARD.columns, "since": Ignore()})
    with pytest.raises(InputError, match="column 'dose' has cells that are missing"), streamed(broken, dated):
        pass
    with streamed(broken, dated, on_invalid="null") as rows:
        assert sum(int(block.mask.sum()) for block in rows.blocks()) == N - 1
    learned = dataclasses.replace(WARD, columns={**WARD.columns, "since": Number(0, 1)})
    with pytest.raises(InputError, match="'since' of the table broken"), streamed(broken, learned):
        pass


def test_units_need_an_order_that_stays_the_same(server):
    units = dataclasses.replace(WARD, unit=Unit("id", 1))
    with pytest.raises(InputError, match="no order that stays the same"), streamed(server.address("ward"), units):
        pass
    with streamed(server.address("ward", key="id"), units) as rows:
        assert rows.ordered


def test_passwords_are_left_out_of_what_is_said_of_a_command_line():
    words = [
        "apply",
        "--data",
        "x.csv",
        "--schema",
        "x.json",
        "--epsilon",
        f"postgresql://ann:{SECRET}@db/x?table=t&password={SECRET}",
    ]
    code, text = observed(lambda: main([*words, "--delta", "1e-6", "--out", "run"]))
    assert code == 2
    assert "postgresql://***@db" in text
    assert SECRET not in text


# -------------------------------------------------------------------------------------- what goes wrong during a run
def ends_during_a_run(address, spoil, phrase):
    """Spoil a table after its first pass of a run: the run ends with a sentence, and not as bad input."""
    with streamed(address, WARD) as rows:
        rows.progress = Spoiler(spoil)
        with pytest.raises(RowsError, match=phrase) as caught:
            l2p.private_train(rows, "noisygd", BUDGET)
    assert SECRET not in str(caught.value)
    assert "stays charged" in str(caught.value)


class Spoiler:
    """Does something after the first block of a run."""

    def __init__(self, act):
        self.act = act

    def read(self, rows):
        act, self.act = self.act, lambda: None
        act()

    def stepped(self, steps, max_steps):
        pass


def test_a_file_that_is_written_to_during_a_run_ends_it(table, tmp_path):
    for name, write in (
        ("ward.parquet", lambda path: pq.write_table(table, path)),
        ("ward.csv", lambda path: table.to_pandas().to_csv(path, index=False)),
    ):
        write(tmp_path / name)
        ends_during_a_run(str(tmp_path / name), lambda p=tmp_path / name, w=write: w(p), "was changed during the run")


def test_rows_that_change_places_behind_the_clock_end_the_run(table, tmp_path):
    """A file that is rewritten in place within the resolution of its times has the size, times and place of before."""
    path = tmp_path / "ward.csv"
    table.to_pandas().to_csv(path, index=False)

    def swap():
        head, *lines = path.read_text().splitlines()
        stat = path.stat()
        path.write_text("\n".join([head, lines[-1], *lines[1:-1], lines[0]]) + "\n")
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    ends_during_a_run(str(path), swap, "gave other rows than in an earlier pass")


class Rewritten(RowSource):
    """Rows in memory that are others in the second pass."""

    num_features = 2

    def __init__(self, first, second, ordered):
        self.num_rows, self.ordered, self._passes = len(first.y), ordered, iter([first, second])

    def blocks(self):
        return ArraySource(next(self._passes), 4).blocks()


@pytest.mark.parametrize("ordered", [True, False])
def test_all_passes_read_the_same_rows_in_one_order_if_there_is_one(ordered):
    rows = Rows(np.arange(12, dtype=np.float32).reshape(6, 2) / 12, np.float32([0, 1] * 3), np.ones(6, np.float32))
    for change, matters in (
        (lambda rows: rows, False),
        (lambda rows: jax.tree.map(lambda leaf: leaf[::-1], rows), ordered),
        (lambda rows: rows.replace(x=np.where(rows.x == rows.x[3], 1, rows.x)), True),
        (lambda rows: rows.replace(x=rows.x[[1, 0, 2, 3, 4, 5]]), True),  # the same cells in other rows
        (lambda rows: jax.tree.map(lambda leaf: leaf[[0, 0, 2, 3, 4, 5]], rows), True),
        (lambda rows: jax.tree.map(lambda leaf: leaf[:4], rows), True),
    ):
        checked = checks.Checked.over(Rewritten(rows, change(rows), ordered), (0.0, 1.0))
        list(checked.blocks())
        if matters:
            with pytest.raises(RowsError, match="gave other rows than in an earlier pass"):
                list(checked.blocks())
        else:
            list(checked.blocks())


@pytest.mark.parametrize(
    "name", ["{folder}/rows.csv", "outside", "frame", "sqlite_master", "other.ward", "temp.main.ward"]
)
def test_nothing_but_one_table_or_view_of_its_file_is_read_from_duckdb(tmp_path, name):
    (tmp_path / "rows.csv").write_text("age,back\n1,no\n2,yes\n")
    with duckdb.connect(tmp_path / "ward.db") as connection:
        connection.execute("CREATE TABLE ward AS SELECT 1 AS age")
        connection.execute(f"CREATE VIEW outside AS FROM '{tmp_path}/rows.csv'")
    frame = pa.table({"age": [1]})  # noqa: F841 - DuckDB would find it by its name
    table = name.format(folder=tmp_path)
    with pytest.raises(InputError, match="reads other files" if name == "outside" else "there is no table"):
        open_table(f"duckdb://{tmp_path}/ward.db?table={quote(chr(34) + table + chr(34) if '/' in table else table)}")


def test_duckdb_finds_a_table_whatever_its_capitals_and_knows_that_a_view_has_no_order(tmp_path):
    with duckdb.connect(tmp_path / "ward.db") as connection:
        connection.execute("CREATE TABLE Ward AS SELECT 1 AS age; CREATE VIEW seen AS FROM ward")
        connection.execute("CREATE SCHEMA old; CREATE VIEW old.ward AS SELECT random() AS age")
    for table, ordered in (
        ("WARD", True),
        ("main.ward", True),
        ("ward.MAIN.ward", True),
        ("SEEN", False),
        ("old.ward", False),
    ):
        assert open_table(f"duckdb://{tmp_path}/ward.db?table={table}").ordered == ordered, table


def test_a_server_that_goes_away_ends_the_run_and_its_reservation_remains(server, folder, tmp_path):
    ledger = tmp_path / "ward.ledger"
    args = ["ledger", "create", str(ledger), "--name", "ward", "--epsilon", "4", "--delta", "1e-5"]
    code, text = observed(lambda: main(args))
    assert code == 0, text
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'"
    with streamed(server.address("ward", "reader", key="id"), WARD) as rows:
        rows.progress = Spoiler(lambda: server.execute(kill))
        with pytest.raises(RowsError, match="the server ended the connection") as caught:
            l2p.private_train(rows, "noisygd", BUDGET, ledger=ledger)
    assert SECRET not in str(caught.value)
    assert any("reserv" in note for note in caught.value.__notes__)
    code, text = observed(lambda: main(["ledger", "show", str(ledger)]))
    assert code == 0, text
    assert "reserved" in text


def test_a_snapshot_does_not_see_what_others_change(server, table):
    server.execute("CREATE TABLE busy AS SELECT * FROM ward")
    with streamed(server.address("busy", key="id"), WARD) as rows:
        before = [np.asarray(block.x) for block in rows.blocks()]
        server.execute("DELETE FROM busy WHERE id > 700", "UPDATE busy SET dose = 0")
        after = [np.asarray(block.x) for block in rows.blocks()]
    np.testing.assert_array_equal(before, after)


def test_a_table_is_read_in_a_transaction_that_cannot_write(server):
    source = open_table(f"postgresql:///postgres?host={server.folder}&user=l2p&table=public.ward")
    with (
        source.snapshot(),
        source._connection.cursor() as cursor,
        pytest.raises(Exception, match="read-only transaction"),
    ):
        cursor.execute("DELETE FROM ward")


def test_a_key_orders_a_duckdb_table_in_a_process_that_has_imported_nothing_else(folder):
    read = (
        "import sys; from l2p.tables.reading import open_table; "
        "print(sum(len(block['id']) for block in open_table(sys.argv[1]).blocks(['id'])))"
    )
    address = f"duckdb://{folder}/ward.db?table=ward&key=id"
    process = subprocess.run([sys.executable, "-c", read, address], capture_output=True, check=False)
    assert process.stdout.split() == [str(N).encode()], process.stderr


@pytest.mark.slow
def test_a_wide_duckdb_table_gets_memory_for_each_column(tmp_path):
    # DuckDB holds a block of 256 KiB of every column that it scans, which for so many is more than a narrow table gets.
    file, numbers = tmp_path / "wide.db", ", ".join(f"random()::FLOAT AS x{place}" for place in range(300))
    with duckdb.connect(file, config={"threads": "1"}) as connection:
        connection.execute(f"CREATE TABLE ward AS SELECT {numbers} FROM range(40000)")  # noqa: S608
    source = open_table(f"duckdb://{file}?table=ward")
    assert sum(len(block["x0"]) for block in source.blocks(source.names)) == 40_000


def test_a_duckdb_table_cannot_be_written_to_while_it_is_held(folder):
    write = "import duckdb, sys; duckdb.connect(sys.argv[1])"
    with streamed(f"duckdb://{folder}/ward.db?table=ward", WARD):
        process = subprocess.run([sys.executable, "-c", write, folder / "ward.db"], capture_output=True, check=False)
    assert b"IO Error" in process.stderr
