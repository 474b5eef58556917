"""Streaming in `l2p apply`: when it does, and the table that it then trains on."""

import contextlib
from typing import Literal

from l2p.base.errors import InputError
from l2p.base.progress import Progress
from l2p.commands.declared import DeclaredTable
from l2p.tables.schema.stream import StreamedTable, is_large, streamed

Stream = Literal["auto", "yes", "no"]


def streams(stream: Stream, declared: DeclaredTable, num_rows: int | None, chooses: bool, can_stream: bool) -> bool:
    """True if rows are read anew at every step.

    Args:
      stream: the option.
      declared: the table.
      num_rows: N, if it was declared.
      chooses: whether there are several runs.
      can_stream: whether the method can, so that `auto` may.

    Raises:
      InputError: it was asked for and cannot be done.
    """
    if stream == "yes" and chooses:
        raise InputError(
            "--stream yes needs a single run, and this is a choice among several; choose the method itself, or leave "
            "--stream out."
        )
    if stream != "auto" or chooses or not can_stream or declared.schema.private_bounds:
        return stream == "yes"
    return is_large(declared.files, declared.schema, declared.format, num_rows)


def table_of(declared: DeclaredTable, counts_rows: bool) -> contextlib.AbstractContextManager[StreamedTable]:
    """The table, which says on standard error how far a run over it has come; its rows are counted there only if
    `counts_rows`, where their number is public."""
    return streamed(declared.files, declared.schema, declared.on_invalid, declared.format, Progress(counts_rows))
