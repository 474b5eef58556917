"""Rows of a stream in drawn orders: copied once to a scratch file, and shuffled there in bounded memory.

A shuffle goes through the copy once and writes each row to the part of a second file that its place in the order falls
in. A part fits in memory, where its rows are then put in their places. So a pass reads and writes each file in long
stretches, and never seeks row by row.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from l2p.base.errors import InputError, ending_run
from l2p.task.sources import RowSource

#: Bytes of a part, of which a few copies are held at a time.
PART = 2**23


class ShuffledRows:
    """The rows of a stream as lines f32[d + 2] (features, target, mask), in any order of them; `shuffled` opens one.

    A row with a value that is not finite is a null row, which is all zeros, and so are lines that the stream lacks.

    Args:
      source: the stream, read once.
      num_rows: N, lines of an order.
      batch_size: rows of a batch, which is never cut in two; a part holds one at least.
      table, parts: empty files.
    """

    def __init__(self, source: RowSource, num_rows: int, batch_size: int, table: Any, parts: Any):
        self._width = source.num_features + 2
        self._num_rows, self._table, self._parts = num_rows, table, parts
        self._part_rows = max(1, PART // (4 * self._width * batch_size)) * batch_size
        count = 0
        for block in source.blocks():
            columns = np.asarray(block.x), np.asarray(block.y)[:, None], np.asarray(block.mask)[:, None]
            with np.errstate(over="ignore", invalid="ignore"):  # a warning would tell of a row
                rows = np.concatenate(columns, axis=1, dtype=np.float32)[: num_rows - count]
            rows[~np.isfinite(rows).all(axis=1)] = 0
            self._write(table, count, rows)
            count += len(rows)
        with _ending_run():
            table.truncate(4 * self._width * num_rows)

    def arrange(self, order: np.ndarray) -> None:
        """Shuffle the rows into this order i32[N] of all lines."""
        cuts = list(self._cuts())
        part_of = np.empty(self._num_rows, np.uint16 if len(cuts) <= 2**16 else np.int32)
        for part, (start, end) in enumerate(cuts):
            part_of[order[start:end]] = part
        ends = np.array([start for start, _ in cuts])
        for start, end in cuts:
            by_part = np.argsort(part_of[start:end], kind="stable")
            rows = self._read(self._table, start, end)[by_part]
            done = 0
            for part, count in zip(*np.unique(part_of[start:end], return_counts=True), strict=True):
                self._write(self._parts, ends[part], rows[done : done + count])
                ends[part] += count
                done += count

    def parts(self, order: np.ndarray) -> Iterator[np.ndarray]:
        """All rows f32[n, d + 2] in the order in which they were arranged, part by part; of each part but the last n is
        the same, and a multiple of a batch."""
        for start, end in self._cuts():
            rows = np.empty((end - start, self._width), np.float32)
            # They came to the part by their lines.
            rows[np.argsort(order[start:end])] = self._read(self._parts, start, end)
            yield rows

    def _cuts(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self._num_rows, self._part_rows):
            yield start, min(start + self._part_rows, self._num_rows)

    def _read(self, file: Any, start: int, end: int) -> np.ndarray:
        rows = np.empty((end - start, self._width), np.float32)
        with _ending_run():
            file.seek(4 * self._width * int(start))
            file.readinto(rows)
        return rows

    def _write(self, file: Any, start: int, rows: np.ndarray) -> None:
        with _ending_run():
            file.seek(4 * self._width * int(start))
            file.write(rows)


@contextlib.contextmanager
def shuffled(source: RowSource, num_rows: int, batch_size: int) -> Iterator[ShuffledRows]:
    """The rows of a stream, to be shuffled. Its files have no name where the system allows that, so nobody else can
    open them and nothing is left of them however the process ends; elsewhere only the user may read them."""
    with contextlib.ExitStack() as stack:
        with _ending_run():
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        yield ShuffledRows(source, num_rows, batch_size, *files)


def check_room(num_rows: int, num_features: int) -> None:
    """Refuse a table that the folder for temporary files has no room for.

    Raises:
      InputError: it has not, or copies of the rows would lie elsewhere than TMPDIR says.
    """
    named = os.environ.get("TMPDIR")
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:
        raise InputError(
            "rows that stream are shuffled in files, and no folder for temporary files may be written to; name one in "
            "TMPDIR that has room."
        ) from None
    if named and os.path.abspath(named) != folder:
        raise InputError(
            f"TMPDIR names {named}, but this process writes temporary files to {folder}, so copies of the rows would "
            "lie where nobody asked for them; name a folder that is there and has room, and begin again."
        )
    needed, free = 2 * 4 * (num_features + 2) * num_rows, shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"rows that stream are shuffled in files of {needed / 1e9:.3g} GB, and {folder} has room for "
            f"{free / 1e9:.3g} GB; free disk space there, or name another folder in TMPDIR."
        )


@contextlib.contextmanager
def _ending_run() -> Iterator[None]:
    with ending_run():
        try:
            yield
        except OSError as error:
            raise InputError(
                f"rows cannot be shuffled in {tempfile.gettempdir()} ({error.strerror}); free disk space there, or "
                "name another folder in TMPDIR."
            ) from None
