"""Tasks: rows to learn from, rows to score on, and rows that cost nothing."""

import dataclasses

from l2p.task.rows import Rows
from l2p.task.sources import RowSource


@dataclasses.dataclass(frozen=True)
class Task:
    """One learning problem: private rows, rows to score on, and public rows that cost nothing.

    Attributes:
      private: the rows that only the oracle may read, or a source that streams them.
      test: rows outside the guarantee, for scoring.
      public: rows that a protector may read freely, or None.
    """

    private: Rows | RowSource
    test: Rows | None = None
    public: Rows | None = None
