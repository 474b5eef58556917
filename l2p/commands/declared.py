"""The private table of a command line, as its schema declares it."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from l2p.base.errors import InputError
from l2p.models import Model
from l2p.release.api import model_for, share_of
from l2p.release.result import Result
from l2p.tables.private_table import read_public
from l2p.tables.reading import Format
from l2p.tables.schema import Encoding, Schema, read_rows
from l2p.tables.schema.encoding import OnInvalid
from l2p.tables.schema.rows import blocks_of
from l2p.task.rows import Rows


@dataclasses.dataclass(frozen=True)
class DeclaredTable:
    """A table with its declaration and the model to train on it; none of its cells has been read.

    Attributes:
      files: its address, or that of each of its files.
      model: to be trained.
      kind: of the target.
      on_invalid: "refuse" a table with a row that cannot be encoded, or count such rows as "null".
    """

    files: Sequence[str]
    schema: Schema
    model: Model
    kind: str
    format: Format
    on_invalid: OnInvalid

    @classmethod
    def of(
        cls, files: Sequence[str], schema: Path, model: str | None, format: Format, on_invalid: OnInvalid
    ) -> "DeclaredTable":
        declared = Schema.read(schema).written_as(format)
        return cls(list(files), declared, *model_for(declared, model), format, on_invalid)

    @property
    def num_features(self) -> int:
        """d, encoded."""
        return len(Encoding(self._bounded_schema()).names)

    def share(self, bounds_share: float | None) -> float:
        """The share of the budget that buys bounds; `InputError` if it is no share, or buys nothing."""
        return share_of(self.schema, bounds_share)

    def check_plain(self) -> None:
        """Refuse a schema that asks for more than a choice among several runs does."""
        if self.schema.unit is not None or self.schema.private_bounds:
            feature = "private bounds" if self.schema.private_bounds else "a unit"
            raise InputError(
                f"the schema declares {feature}, for which a choice among several runs has no proof; choose the "
                "method itself, or declare all bounds and no unit."
            )
        if self.schema.target.weights is not None:
            raise InputError(
                "the schema declares class weights, but a choice among several runs scores them by the share of rows "
                "whose label is predicted, in which all count alike; choose the method itself, or leave the weights "
                "out."
            )

    def rows(self, in_order: bool) -> Rows:
        """The rows to learn from, by a choice among several runs, which may take them `in_order`."""
        self.check_plain()
        return read_rows(self.files, Encoding(self.schema), self.on_invalid, self.format, in_order=in_order)

    def public_rows(self, files: Sequence[str]) -> Rows:
        """Public rows, of the same columns; an invalid one is refused, since it can be corrected."""
        return read_public(list(files), self.schema, self.format)

    def test_rows(self, file: str, result: Result | None = None) -> Rows:
        """The rows of a table to score on, which may have further columns; before there is a result, to be checked."""
        schema = None if result is None else result.schema
        return read_rows([file], Encoding(schema or self._bounded_schema()), self.on_invalid, self.format, exact=False)

    def every_row(self) -> Iterator[Rows]:
        """The rows in blocks, encoded as `test_rows` are before there is a result."""
        return (rows for _, rows in blocks_of(self.files, Encoding(self._bounded_schema()), "null", self.format))

    def _bounded_schema(self) -> Schema:
        """The schema with bounds of any kind in place of those that are still to be bought."""
        return self.schema.with_bounds(dict.fromkeys(self.schema.private_bounds, (0.0, 1.0)))
