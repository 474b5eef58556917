"""A raw table that streams: read and encoded block by block at every pass, because it does not fit in memory.

Rows are encoded as by `read_rows`, so a release adds up the same whole numbers.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from l2p.base.errors import InputError, ending_run
from l2p.base.progress import Progress
from l2p.tables.reading import Format, RawSource
from l2p.tables.reading.source import BLOCK
from l2p.tables.schema.encoding import Encoding, OnInvalid
from l2p.tables.schema.rows import blocks_of, check_first_rows, opened
from l2p.tables.schema.schema import Schema
from l2p.task.exact_sums import BLOCK as SUM_BLOCK
from l2p.task.rows import Rows
from l2p.task.sources import RowSource

#: A release holds encoded rows about eight times over: from the file, in single and double precision, as steps.
COPIES = 8
#: Share of the machine's memory that they may take; what is larger streams.
SHARE = 0.5
#: The most bytes that Linux lets the processes of a container take.
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


class StreamedTable(RowSource):
    """The rows of a raw table, encoded by its schema at every pass. `streamed` opens one.

    Attributes:
      schema: its declaration.
    """

    caps_units = True

    def __init__(self, source: RawSource, encoding: Encoding, on_invalid: OnInvalid = "refuse"):
        """Read the table once: its rows are counted, and refused as `read_rows` refuses them."""
        self.schema = encoding.schema
        self.ordered = source.ordered
        self.num_features = len(encoding.names)
        self._source, self._encoding = source, encoding
        self._version = source.version()
        self.num_rows = sum(len(rows.y) for rows in self._encoded(on_invalid))
        if source.version() != self._version:
            raise InputError(f"{source.title} was written to while it was read; begin again once it is whole.")

    def __repr__(self) -> str:
        return "StreamedTable(not shown)"

    def blocks(self) -> Iterator[Rows]:
        size = min(BLOCK, -(-self.num_rows // SUM_BLOCK) * SUM_BLOCK)
        with ending_run():
            self._check_version()
            count = 0
            for rows, filled in _of_one_size(self._encoded("null"), size):
                count += filled
                yield rows
                if self.progress is not None:
                    self.progress.read(filled)
            self._check_version()
            if count != self.num_rows:
                raise InputError(_CHANGED.format(self._source.title))

    def every_row(self) -> Iterator[Rows]:
        """All rows in blocks, those of a unit beyond the first ones, too: to compare, not to learn from."""
        return (rows for _, rows in blocks_of(self._source, self._encoding, "null"))

    def _encoded(self, on_invalid: OnInvalid) -> Iterator[Rows]:
        unit = self._encoding.schema.unit
        return (rows for _, rows in blocks_of(self._source, self._encoding, on_invalid, unit=unit))

    def _check_version(self) -> None:
        if self._source.version() != self._version:
            raise InputError(_CHANGED.format(self._source.title))


_CHANGED = (
    "{} was changed during the run, whose passes must all read the same rows; keep it as it is until the run has ended."
)


@contextlib.contextmanager
def streamed(
    data: Any,
    schema: Schema,
    on_invalid: OnInvalid = "refuse",
    format: Format | None = None,
    progress: Progress | None = None,
) -> Iterator[StreamedTable]:
    """A table whose rows stream, for `private_train(data=...)`; within the context a database holds one snapshot.

    Args:
      data, on_invalid, format: as for `read_rows`.
      schema: its declaration, all bounds known.
      progress: told of rows and steps.

    Raises:
      InputError: as `read_rows`; bounds are still to be bought; or the schema protects units and the table has no order
        by which the first rows of a unit are the same at every pass.

    >>> import numpy as np, l2p
    >>> from l2p.tables.schema import Number, Target
    >>> ward = Schema({"age": Number(0, 120)}, Target("back", classes=("no", "yes")))
    >>> table = {"age": np.linspace(0, 120, 900), "back": np.repeat(["no", "yes"], 450)}
    >>> with streamed(table, ward) as rows:
    ...     result = l2p.private_train(rows, "noisygd", l2p.Budget(8.0, 1e-5))
    >>> result.card.num_rows, result.schema == ward
    (900, True)
    """
    if schema.private_bounds:
        raise InputError(
            "the schema leaves bounds to be bought, for which a table is read into memory, but this one streams; "
            "declare its bounds, or do not stream it (--stream no)."
        )
    schema = schema.written_as(format)
    source = opened(data, schema, format)
    if schema.unit is not None:
        check_first_rows(source, schema.unit)
    with source.snapshot():
        table = StreamedTable(source, Encoding(schema), on_invalid)
        table.progress = progress
        yield table


def is_large(data: Any, schema: Schema, format: Format | None = None, num_rows: int | None = None) -> bool:
    """True if the rows of a table are better streamed than read into memory.

    Args:
      data, format: as for `read_rows`.
      schema: its declaration.
      num_rows: number of rows, if known; else estimated from the sizes of files and the like.
    """
    if num_rows is None:
        num_rows = opened(data, schema, format).about_rows()
    placeholder = schema.with_bounds(dict.fromkeys(schema.private_bounds, (0.0, 1.0)))
    row = 4 * (len(Encoding(placeholder).names) + 2)
    return num_rows is not None and COPIES * row * num_rows > SHARE * _memory()


def _memory() -> int:
    """Bytes of the machine, or of the container that this process is in; 8 GiB where neither is told."""
    sizes = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(ValueError, OSError):  # a container without a limit has "max" there
        sizes.append(int(_CONTAINER.read_text()))
    return min(sizes, default=2**33)


def _of_one_size(parts: Iterator[Rows], size: int) -> Iterator[tuple[Rows, int]]:
    """The same rows in blocks of `size`, the last filled up with null rows; and how many of each are rows."""
    pending: list[np.ndarray] = []
    for part in parts:
        arrays = [np.asarray(leaf) for leaf in (part.x, part.y, part.mask)]
        pending = [np.concatenate(pair) for pair in zip(pending, arrays, strict=True)] if pending else arrays
        while len(pending[1]) >= size:
            yield Rows(*(leaf[:size] for leaf in pending)), size  # pyrefly: ignore[bad-argument-type]
            pending = [leaf[size:] for leaf in pending]
    if filled := len(pending[1]):
        short = size - filled
        yield Rows(*(np.pad(leaf, [(0, short)] + [(0, 0)] * (leaf.ndim - 1)) for leaf in pending)), filled  # pyrefly: ignore[bad-argument-type]
