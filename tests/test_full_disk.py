"""Disks that fill up and servers that go away while something is written: a sentence, and nothing half-written."""

import contextlib
import resource
import tempfile

import duckdb
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.base.whole_folder import MODEL_FILE, written_whole
from l2p.commands import apply
from l2p.commands.cli import main
from l2p.models import Logistic
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.release.prediction import predictor, to_table
from l2p.tables.reading import in_duckdb
from l2p.tables.reading.address import Address
from l2p.tables.schema import Number, Schema, Target
from l2p.tables.schema.stream import streamed
from tests.canaries import observed
from tests.postgres import running

N, BUDGET = 900, l2p.Budget(4.0, 1e-5)
WARD = Schema({"age": Number(0, 120), "dose": Number(-1, 1)}, Target("back", classes=("no", "yes")))


@contextlib.contextmanager
def full_disk(size):
    """No file may grow beyond `size` bytes: as on a full disk, a write fails, whoever writes and wherever."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def filling(function, size):
    """The function, which finds the disk full."""

    def filled(*args, **kwargs):
        with full_disk(size):
            return function(*args, **kwargs)

    return filled


def table(rows=N):
    rng = np.random.default_rng(0)
    age, dose = rng.uniform(0, 120, rows), rng.uniform(-1, 1, rows)
    return pa.table({"age": age, "dose": dose, "back": np.where(age > 60, "yes", "no")})


@pytest.fixture
def data(tmp_path):
    """A file of rows."""
    table().to_pandas().to_csv(tmp_path / "ward.csv", index=False)
    return str(tmp_path / "ward.csv")


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files, in which what was left behind is seen."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


# ---------------------------------------------------------------------------------------------------- the run's folder
@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 1000, 10_000])
def test_a_run_that_finds_no_room_for_its_result_says_so_and_is_counted_once(
    data, tmp_path, temporary, monkeypatch, size
):
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "basic", limit_of("basic", BUDGET))
    WARD.write(tmp_path / "schema.json")
    monkeypatch.setattr(apply, "saved", filling(apply.saved, size))
    words = ["--data", data, "--schema", str(tmp_path / "schema.json"), "--out", str(tmp_path / "run")]
    words += ["--protector", "noisygd", "--epsilon", "2", "--delta", "1e-5", "--ledger", str(ledger.path)]
    code, output = observed(lambda: main(["apply", *words]))
    assert code == 1, output
    assert "(File too large), nor can" in output
    assert "stays charged" in output
    assert "Traceback" not in output
    assert not (tmp_path / "run").exists()
    assert not [path for path in temporary.rglob("*") if path.is_file()]
    (entry,) = ledger.entries()
    assert (entry.state, entry.counted.amount > 0) == ("settled", True)


class Saves:
    """A result of some files, by name their size in bytes, in place of a whole run."""

    def __init__(self, sizes):
        self.sizes = sizes

    def save(self, folder):
        with written_whole(folder) as place:
            for name, size in self.sizes.items():
                (place / name).write_bytes(bytes(size))


def test_a_result_that_fits_elsewhere_goes_there_whole_and_none_of_it_stays(tmp_path, temporary, monkeypatch, capsys):
    make_folder = tempfile.mkdtemp
    out, limit = tmp_path / "run", contextlib.ExitStack()
    out.mkdir()

    def with_room(*args, **kwargs):
        if "dir" not in kwargs:  # of the folder that takes the place of the one that was asked for
            limit.close()
        return make_folder(*args, **kwargs)

    monkeypatch.setattr(tempfile, "mkdtemp", with_room)
    with limit:
        limit.enter_context(full_disk(1000))
        folder = apply.saved(Saves({"card.json": 500, MODEL_FILE: 5000}), out)
    assert sorted(path.name for path in folder.iterdir()) == ["card.json", MODEL_FILE]
    assert list(out.iterdir()) == []
    assert str(folder) in capsys.readouterr().err


def test_scores_that_find_no_room_leave_the_result_whole(tmp_path, capsys):
    (tmp_path / "card.json").write_text("{}")
    with full_disk(10):
        apply._save_scores({"accuracy": 0.9}, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["card.json"]
    assert "all else is in" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------- predictions
@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model that `l2p predict` finds, without a run behind it."""
    saved = predictor.Predictor(Logistic(), jnp.array([1.0, -1.0, 0.0]), WARD)
    monkeypatch.setattr("l2p.release.prediction.saved.load_model", lambda folder: saved)
    return saved


def predict(data, out):
    return observed(lambda: main(["predict", "--model", "run", "--data", data, "--out", str(out)]))


@pytest.mark.parametrize("size", [100, 1000])
def test_predictions_without_room_leave_the_older_file_as_it_was(model, data, tmp_path, size):
    out = tmp_path / "p.csv"
    out.write_text("older")
    with full_disk(size):
        code, output = predict(data, out)
    assert (code, out.read_text()) == (2, "older")
    assert "p.csv cannot be written (File too large)" in output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "temporary", "ward.csv"]


def test_predictions_without_room_in_the_temporary_folder_reach_no_database(model, data, tmp_path, temporary):
    with full_disk(100):
        code, output = predict(data, f"duckdb://{tmp_path}/p.db?table=p")
    assert code == 2
    assert f"kept in {temporary} until all are made" in output
    assert not list(temporary.iterdir())
    assert not (tmp_path / "p.db").exists()


@pytest.mark.parametrize("exists", [False, True])
def test_a_database_whose_disk_is_full_keeps_what_it_had_and_no_more(tmp_path, exists):
    file = tmp_path / "p.db"
    if exists:
        with duckdb.connect(file) as connection:
            connection.execute("CREATE TABLE older AS SELECT range AS i FROM range(1000)")
    many = pa.table({"line": np.arange(200_000), "prediction": np.random.default_rng(0).random(200_000)})
    with full_disk(800_000), pytest.raises(InputError, match=r"its disk is full.*Nothing was written"):
        to_table._store(Address.parse(f"duckdb://{file}?table=p"), many.to_reader(10_000))
    assert [path.name for path in tmp_path.glob("p.db*")] == ["p.db"] * exists
    if exists:
        with duckdb.connect(file, read_only=True) as connection:
            assert connection.sql("SHOW TABLES").fetchall() == [("older",)]
            assert connection.sql("SELECT sum(i) FROM older").fetchall() == [(499_500,)]


def interrupted(act, blocks=5):
    """A reader whose source does something after half of the blocks."""
    block = pa.record_batch({"line": np.arange(20_000), "prediction": np.ones(20_000)})

    def batches():
        for place in range(blocks):
            if place == blocks // 2:
                act()
            yield block

    return pa.RecordBatchReader.from_batches(block.schema, batches())


@pytest.mark.slow
def test_a_server_that_goes_away_while_it_is_written_to_keeps_nothing_of_it():
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'writer'"
    with running() as server:
        server.execute("CREATE ROLE writer LOGIN", "GRANT CREATE ON SCHEMA public TO writer")
        address = Address.parse(server.address("predicted", "writer"))
        with pytest.raises(InputError, match=r"nobody answers there, or no longer.*Nothing was written") as caught:
            to_table._store(address, interrupted(lambda: server.execute(kill)))
        assert "sesame" not in str(caught.value)
        to_table._check_absent(address)
        to_table._store(address, interrupted(lambda: None))  # nothing is in the way of trying again
        with pytest.raises(InputError, match="predictions never replace"):
            to_table._check_absent(address)


def test_rows_that_end_halfway_leave_nothing_in_a_database(tmp_path):
    def fail():
        raise ValueError("Smith")

    address = Address.parse(f"duckdb://{tmp_path}/p.db?table=p")
    with pytest.raises(Exception, match=r"^((?!Smith).)*$"):
        to_table._store(address, interrupted(fail))
    assert not (tmp_path / "p.db").exists()


# ------------------------------------------------------------------------------------------------------ spilling sorts
@pytest.mark.slow
def test_a_sort_that_finds_no_room_on_disk_is_refused_before_anything_is_spent(tmp_path, monkeypatch):
    monkeypatch.setattr(in_duckdb, "SORT_LIMIT", 100)
    monkeypatch.setattr(in_duckdb, "SORT_COLUMN", 1)
    file, numbers = tmp_path / "ward.db", ", ".join(f"random() AS x{place}" for place in range(30))
    with duckdb.connect(file) as connection:
        rows = f"SELECT hash(i) AS id, {numbers}, 0 AS y FROM range(300000) r(i)"  # noqa: S608
        connection.execute(f"CREATE TABLE ward AS {rows}")
    columns = {f"x{place}": Number(0, 1) for place in range(30)}
    schema = Schema({"id": Number(0, 1), **columns}, Target("y", classes=(0, 1)))
    address = f"duckdb://{file}?table=ward&key=id"
    with streamed(address, schema) as rows:
        assert rows.num_rows == 300_000
    with full_disk(1_000_000), pytest.raises(InputError, match="no room to sort"), streamed(address, schema):
        pass
    assert [path.name for path in tmp_path.iterdir() if path.name != "temporary"] == ["ward.db"]
