"""Rows of a stream in drawn orders, through a scratch file: each once, in its place, and nothing left behind."""

import errno
import os
import tempfile
import types

import jax
import numpy as np
import pytest

from l2p.base.errors import InputError, RowsError
from l2p.task import shuffled
from l2p.task.entropy import Entropy
from l2p.task.keystream import orders_of
from l2p.task.noise import HostNoise, KeyNoise, OrderDraw
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource

N, D = 97, 3
KEY = np.arange(8, dtype=np.uint32)


class Blocks(ArraySource):
    def blocks(self):
        for start in range(0, N, self.block):
            yield jax.tree.map(lambda leaf: leaf[start : start + self.block], self.rows)  # noqa: B023


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(shuffled, "PART", 4 * (D + 2) * 13)  # parts of 12 rows, in batches of 4
    x = np.random.default_rng(0).random((N, D))
    x[5], x[6, 1], x[7, 0] = 0.25, np.nan, 1e300
    return Rows(x, np.arange(N) / N, np.ones(N))


def test_every_pass_gives_each_row_once_in_the_drawn_order(rows):
    expected = np.c_[rows.x, rows.y, rows.mask]
    expected[[6, 7]] = 0  # as rows in memory that are not finite in single precision
    expected = np.pad(expected, [(0, 3), (0, 0)]).astype(np.float32)  # lines that the table lacks
    with shuffled.shuffled(Blocks(rows, 10), N + 3, 4) as ready:
        for order in orders_of(KEY, N + 3, 3):
            ready.arrange(order)
            for _ in range(2):  # passes in the same order
                parts = list(ready.parts(order))
                assert [len(part) for part in parts] == [12] * 8 + [4]
                np.testing.assert_array_equal(np.concatenate(parts), expected[order])


def test_scratch_files_have_no_name_and_are_gone_after_a_failure(rows, tmp_path):
    class Broken(Blocks):
        def blocks(self):
            yield from super().blocks()
            raise RuntimeError("the source is gone")

    with shuffled.shuffled(Blocks(rows, 10), N, 4) as ready:
        descriptors = [file.fileno() for file in (ready._table, ready._parts)]
        for descriptor in descriptors:
            assert os.fstat(descriptor).st_mode & 0o077 == 0
            assert os.fstat(descriptor).st_nlink == 0
        assert not list(tmp_path.iterdir())
    with pytest.raises(RuntimeError, match="is gone"), shuffled.shuffled(Broken(rows, 10), N, 4):
        pass
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)


def test_a_disk_that_is_full_is_refused_before_a_run_and_ends_one(rows, tmp_path, monkeypatch):
    shuffled.check_room(N, D)
    monkeypatch.setattr(shuffled.shutil, "disk_usage", lambda folder: types.SimpleNamespace(free=2 * 4 * 5 * N - 1))
    with pytest.raises(InputError, match=rf"{tmp_path} has room.*TMPDIR\.$"):
        shuffled.check_room(N, D)
    with shuffled.shuffled(Blocks(rows, 10), N, 4) as ready:

        class Full:
            def seek(self, place):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        ready._parts = Full()
        with pytest.raises(RowsError, match=r"No space left on device.*stays charged") as caught:
            ready.arrange(np.arange(N, dtype=np.int32))
        assert caught.value.__context__ is None


def test_copies_lie_where_the_user_says_or_nowhere(rows, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "encrypted"))
    with pytest.raises(InputError, match="where nobody asked for them"):
        shuffled.check_room(N, D)

    def nowhere():
        raise FileNotFoundError

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(InputError, match="no folder for temporary files"):
        shuffled.check_room(N, D)


def test_orders_in_turn_are_those_of_rows_in_memory():
    plan = [OrderDraw(N, 3)]
    for in_memory, in_turn in (
        (KeyNoise(jax.random.key(2)), KeyNoise(jax.random.key(2))),
        (HostNoise([Entropy(4).draw(plan, 1)[0][0]], plan), HostNoise([Entropy(4).draw(plan, 1, True)[0][0]], plan)),
    ):
        drawn = np.asarray(in_memory.orders(N, 3))
        np.testing.assert_array_equal(drawn, [order.copy() for order in in_turn.orders_in_turn(N, 3)])
        assert len(np.unique(drawn, axis=0)) == 3
        np.testing.assert_array_equal(np.sort(drawn, 1), np.tile(np.arange(N), (3, 1)))
    (first, second), _ = (draw.tolist() for draw in (Entropy(4).draw(plan, 2, True)[0], KEY))
    assert first != second
    with pytest.raises(RuntimeError, match="was planned"):
        HostNoise([KEY], plan).orders_in_turn(N, 2)
