"""Rows where they live: files, DuckDB and PostgreSQL give the same run."""

import dataclasses
import subprocess
import sys
from urllib.parse import quote

import duckdb
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.models import Logistic
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.sampling import PermutationEpochs, Poisson
from l2p.protectors import HAND_DESIGNED, BoltOn
from l2p.release import run_noise
from l2p.run.run import Release, advance, advance_streaming, plan_noise, start
from l2p.tables.reading import open_table
from l2p.tables.schema import Encoding, Ignore, Unit, read_rows, stream
from l2p.tables.schema.stream import streamed
from l2p.task import lookahead, shuffled
from l2p.task.entropy import Entropy
from l2p.task.noise import BatchDraw
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource
from tests.tables.ward_files import BUDGET, KINDS, STEPS, WARD, N, address_of


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


def bolted(data, monkeypatch, **options):
    with monkeypatch.context() as patch:
        patch.setattr(run_noise, "Entropy", lambda: Entropy(5))
        return l2p.private_train(data, BoltOn(N, 2, 50), BUDGET, **options)


@pytest.mark.slow(but=["parquet", "duckdb"])
def test_bolt_on_takes_the_same_passes_from_memory_files_and_databases(address, table, monkeypatch):
    monkeypatch.setattr(shuffled, "PART", 2**16)  # of twenty such parts
    in_memory = bolted(table, monkeypatch, schema=WARD)
    with streamed(address, WARD) as rows:
        np.testing.assert_array_equal(bolted(rows, monkeypatch).params, in_memory.params)


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
