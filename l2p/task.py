"""Rows and tasks: the only shapes in which data enters a run."""

import dataclasses

import jax
from flax import struct


@struct.dataclass
class Rows:
    """A block of rows.

    Attributes:
      x: f32[n, d], features scaled to [0, 1] by declared bounds.
      y: f32[n], labels, 0 or 1.
      mask: f32[n], 1 for a row, 0 for a null row (padding, or an invalid row counted as null). Simulations on
        public rows may use other weights: a weight of w stands for w copies of the row.
    """

    x: jax.Array
    y: jax.Array
    mask: jax.Array


@dataclasses.dataclass(frozen=True)
class Task:
    """One learning problem: private rows, rows to score on, and public rows that cost nothing.

    Attributes:
      private: the rows that only the oracle may read.
      test: rows outside the guarantee, for scoring.
      public: rows that a protector may read freely, or None.
    """

    private: Rows
    test: Rows | None = None
    public: Rows | None = None
