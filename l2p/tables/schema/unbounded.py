"""A table with bounds that are still to be bought: bins of its cells first, its rows once bounds are known."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from l2p.base.errors import withheld
from l2p.tables.bounds import Interval
from l2p.tables.reading import Format
from l2p.tables.schema import bins
from l2p.tables.schema.cells import numbers
from l2p.tables.schema.encoding import Encoding, OnInvalid
from l2p.tables.schema.names import names_of
from l2p.tables.schema.rows import blocks_of, joined
from l2p.tables.schema.schema import Schema

if TYPE_CHECKING:
    from l2p.task.rows import Rows

#: Stands for bounds that nobody knows yet, where only which cells are valid matters.
_ANY: Interval = (0.0, 1.0)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Unbounded:
    """A table that was read and not yet scaled. None of it may leave.

    Attributes:
      schema: its declaration, with private bounds.
      rows: all rows, encoded as if those bounds were [0, 1], which changes neither shapes nor which rows count.
      values: the cells of every column with private bounds, f64[n], as `l2p.tables.schema.cells.numbers` gives them.
    """

    schema: Schema
    rows: "Rows"
    values: Mapping[str, np.ndarray]

    @classmethod
    def read(
        cls,
        data: Any,
        schema: Schema,
        on_invalid: OnInvalid = "refuse",
        format: Format | None = None,
        in_order: bool = False,
    ) -> "Unbounded":
        """The table; arguments and errors are those of `l2p.tables.schema.read_rows`."""
        placeholder = Encoding(schema.with_bounds(dict.fromkeys(schema.private_bounds, _ANY)))
        values: dict[str, list[np.ndarray]] = {name: [] for name in schema.private_bounds}
        parts = []
        for block, rows in blocks_of(data, placeholder, on_invalid, format, unit=schema.unit, in_order=in_order):
            with withheld("reading a table"):
                for name, column in values.items():
                    column.append(numbers(block[name], schema.missing_words))
            parts.append(rows)
        with withheld("reading a table"):
            return cls(schema, joined(iter(parts)), {name: np.concatenate(column) for name, column in values.items()})

    @withheld("counting bins")
    def binned(self, scale: float) -> "Rows":
        """Rows of bin numbers f32[n, k], from 1, over `scale`; 0 for a cell in none, which is missing or no number.

        A row depends on its own cells alone, and rows that do not count in training are null rows here too.
        """
        places = np.stack([bins.places(column) for column in self.values.values()], axis=1)
        x = ((places + 1) / scale).astype(np.float32)
        return dataclasses.replace(self.rows, x=x, y=np.zeros(len(x), np.float32))  # pyrefly: ignore[bad-argument-type]

    def bounded(self, bounds: Mapping[str, Interval]) -> "tuple[Schema, Rows]":
        """The schema with these bounds, and the rows that it encodes."""
        schema = self.schema.with_bounds(bounds)
        with withheld("encoding rows"):
            x, start, encoding = np.array(self.rows.x), 0, Encoding(schema)
            for name in schema.features:
                end = start + len(names_of(name, schema.columns[name]))
                if name in self.values:
                    x[:, start:end] = encoding.column(name, self.values)[0]
                start = end
            x[np.asarray(self.rows.mask) == 0] = 0
            return schema, dataclasses.replace(self.rows, x=x)  # pyrefly: ignore[bad-argument-type]
