"""Tables that change or go away during a run end it with a sentence, and its reservation remains."""

import os

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

import l2p
from l2p.base.errors import RowsError
from l2p.commands.cli import main
from l2p.tables.schema.stream import streamed
from l2p.task import checks
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource, RowSource
from tests.canaries import observed
from tests.tables.ward_files import BUDGET, SECRET, WARD


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
