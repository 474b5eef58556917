"""What a command line declares of a private table: by a schema, or by bounds of a table of numbers."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, cast

from l2p.api import known_rows, model_for, share_of
from l2p.data import prepare, read_bounds, read_table
from l2p.data.bounds import Interval
from l2p.data.preparation import Kind, check_classes
from l2p.data.reading import Format
from l2p.errors import InputError
from l2p.models import find_model
from l2p.result import Result
from l2p.schema import Encoding, Schema, read_rows
from l2p.schema.rows import blocks_of, weights_in_words
from l2p.schema.target import Unit
from l2p.task import Rows

OnInvalid = Literal["refuse", "null"]


@dataclasses.dataclass(frozen=True)
class BySchema:
    """A table declared by a schema.

    Attributes:
      model: the full name of the model.
      kind: of the target.
    """

    schema: Schema
    model: str
    kind: str
    format: Format

    @classmethod
    def of(cls, path: Path, model: str, format: Format) -> "BySchema":
        schema = Schema.read(path).written_as(format)
        return cls(schema, *model_for(schema, model), format)

    @property
    def target_column(self) -> str:
        """The column to predict."""
        return self.schema.target.column

    @property
    def target_bounds(self) -> Interval:
        """Of a number to predict, in its own units; [0, 1] for classes."""
        return self.schema.target.bounds or (0.0, 1.0)

    @property
    def classes(self) -> Sequence[object] | None:
        """The classes, where they were declared."""
        return self.schema.target.classes

    @property
    def unit(self) -> Unit | None:
        """Whose rows are protected together; None for single rows."""
        return self.schema.unit

    @property
    def weights(self) -> Sequence[float] | None:
        """Of the classes, in order; None for all alike."""
        return self.schema.target.weights

    @property
    def weights_in_words(self) -> str | None:
        """The weight of each class."""
        return None if self.weights is None else weights_in_words(self.schema.target)

    @property
    def num_features(self) -> int:
        """d, encoded."""
        return len(Encoding(self._known()).names)

    def share(self, bounds_share: float | None) -> float:
        """The share of the budget that buys bounds; `InputError` if it is no share, or buys nothing."""
        return share_of(self.schema, bounds_share)

    def check_plain(self) -> None:
        """Refuse a schema that asks for more than a choice among several runs does."""
        if self.schema.unit is not None or self.schema.private_bounds:
            what = "private bounds" if self.schema.private_bounds else "a unit"
            raise InputError(
                f"the schema declares {what}, for which a choice among several runs has no proof; choose the "
                "method itself, or declare all bounds and no unit."
            )
        if self.weights is not None:
            raise InputError(
                "the schema declares class weights, but a choice among several runs scores them by the share of rows "
                "whose label is predicted, in which all count alike; choose the method itself, or leave the weights "
                "out."
            )

    def rows(self, data: Sequence[str], on_invalid: OnInvalid) -> Rows:
        """The rows of a table to learn from, by a choice among several runs."""
        self.check_plain()
        return read_rows(list(data), Encoding(self.schema), on_invalid, self.format)

    def public_rows(self, files: Sequence[str]) -> Rows:
        """Public rows, of the same columns; an invalid one is refused, since it can be corrected."""
        if self.schema.private_bounds:
            raise InputError(
                "public rows are encoded as the private ones, but the schema leaves bounds to be bought with the "
                "budget; take these bounds from the public rows, or leave out --public."
            )
        return known_rows(list(files), self.schema, Encoding(self.schema), self.format)

    def test_rows(self, data: Sequence[str], on_invalid: OnInvalid, result: Result | None = None) -> Rows:
        """The rows of a table to score on, which may have further columns; before there is a result, to be checked."""
        known = None if result is None else result.schema
        if known is None:
            known = self._known()
        return read_rows(list(data), Encoding(known), on_invalid, self.format, exact=False)

    def every_row(self, data: Sequence[str]) -> Iterator[Rows]:
        """The rows of a table in blocks, encoded as `test_rows` are before there is a result."""
        return (rows for _, rows in blocks_of(list(data), Encoding(self._known()), "null", self.format))

    def _known(self) -> Schema:
        """The schema with bounds of any kind in place of those that are still to be bought."""
        return self.schema.with_bounds(dict.fromkeys(self.schema.private_bounds, (0.0, 1.0)))

    def described(self, result: Result) -> Result:
        """The result with what its card says of the declaration."""
        return result if result.schema is not None else result.with_schema(self.schema)

    def save(self, result: Result, folder: Path) -> None:
        """Write the result; see `Result.save`."""
        self.described(result).save(folder)


@dataclasses.dataclass(eq=False)
class ByBounds:
    """A table of numbers declared by bounds and classes; its features are all columns but the target, in their order.

    Attributes:
      features: known once the table to learn from has been read.
    """

    target: str
    bounds: dict[str, Interval]
    classes: tuple[float, ...] | None
    model: str
    kind: str
    format: Format
    features: tuple[str, ...] | None = None

    @classmethod
    def of(cls, target: str, bounds: Path, classes: tuple[float, ...] | None, model: str, format: Format) -> "ByBounds":
        pairs = read_bounds(bounds)
        found = find_model(model, len(classes) if classes else None)
        kind = found.kind(classes)
        check_classes(classes, cast(Kind, kind))
        return cls(target, pairs, classes, str(found), kind, format)

    @property
    def target_column(self) -> str:
        """The column to predict."""
        return self.target

    @property
    def target_bounds(self) -> Interval:
        """Of a number to predict, in its own units; [0, 1] for classes."""
        return self.bounds[self.target] if self.kind == "regression" else (0.0, 1.0)

    @property
    def unit(self) -> None:
        """Bounds alone say nothing of units, so single rows are protected."""

    @property
    def weights(self) -> None:
        """Bounds alone say nothing of weights, so all classes count alike."""

    @property
    def weights_in_words(self) -> None:
        """There are none."""

    def share(self, bounds_share: float | None) -> float:
        """Nothing: all bounds are declared; `InputError` if a share is asked for."""
        if bounds_share is not None:
            raise InputError(
                '--bounds-share pays for columns that a schema declares with "bounds": "private", and there are none '
                "here; leave it out."
            )
        return 0.0

    def check_plain(self) -> None:
        """Bounds alone ask for nothing that a choice among several runs does not do."""

    @property
    def num_features(self) -> int:
        """d, the columns with bounds but the target."""
        return len(self.bounds.keys() - {self.target})

    def rows(self, data: Sequence[str], on_invalid: OnInvalid) -> Rows:
        """The rows of a table to learn from."""
        return self._prepared(data, on_invalid, test=False)

    def public_rows(self, files: Sequence[str]) -> Rows:
        """Public rows, of the same columns in any order."""
        table = read_table(list(files), {self.target, *self.bounds}, self.format)
        own = [column for column in table.columns if column != self.target]
        rows = prepare(table, self.target, self.bounds, self.classes, "refuse", None, cast(Kind, self.kind))
        order = [own.index(column) for column in self.features or own]
        return dataclasses.replace(rows, x=rows.x[:, order])

    def test_rows(self, data: Sequence[str], on_invalid: OnInvalid, result: Result | None = None) -> Rows:
        """The rows of a table to score on, which may have further columns."""
        del result
        return self._prepared(data, on_invalid, test=True)

    def _prepared(self, data: Sequence[str], on_invalid: OnInvalid, test: bool) -> Rows:
        table = read_table(list(data), {self.target, *self.bounds}, self.format)
        features = self.features if test else None
        rows = prepare(table, self.target, self.bounds, self.classes, on_invalid, features, cast(Kind, self.kind))
        if not test:
            self.features = tuple(column for column in table.columns if column != self.target)
        return rows

    def described(self, result: Result) -> Result:
        """The result as it is: its card names bounds and classes anyway."""
        return result

    def save(self, result: Result, folder: Path) -> None:
        """Write the result; see `Result.save`."""
        result.save(folder, self.features or (), self.bounds, self.classes, self.target)


Declared = BySchema | ByBounds
