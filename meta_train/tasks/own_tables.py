"""Public tables of a user's own as sources of tasks.

A training names them by `l2p.tables.own`, and finds them here once they were read in this process. A name holds a hash
of the content, so it stands for the same rows in every process.
"""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.kind import Kind
from l2p.tables.own import MIN_OF_CLASS, columns_sha256, content_sha256, is_own, name_of, own_source
from l2p.tables.reading import Format
from l2p.tables.schema import Encoding, Schema, read_rows

#: Fewer rows make too few different tasks; a fifth of them are held out.
MIN_ROWS = 200
#: Cells beyond these are left out, at random: tasks take a few thousand rows each, and a table lies in memory whole.
MAX_CELLS = 2**25


@dataclasses.dataclass(frozen=True, eq=False)
class OwnTable:
    """A public table, encoded by its schema.

    Attributes:
      name: of the table.
      sha256: of the content of its file; of its encoded rows where it came as no file.
      x: f32[n, d], features in [0, 1].
      y: f32[n], as of `l2p.tables.Dataset`.
      kind: of its target.
      num_classes: None for numbers.
      rows: how many the table has.
      left_out: rows that are invalid by the schema, or beyond `MAX_CELLS`.
      columns_sha256: of the names of its columns.
    """

    name: str
    sha256: str
    x: np.ndarray
    y: np.ndarray
    kind: Kind
    num_classes: int | None
    rows: int
    left_out: int
    columns_sha256: str

    @property
    def source(self) -> str:
        """Its name as a source."""
        return own_source(self.name, self.sha256)

    @property
    def encoded_sha256(self) -> str:
        """SHA-256 of the encoded rows: another schema makes other tasks of the same table."""
        return hashlib.sha256(self.x.tobytes() + self.y.tobytes()).hexdigest()

    @property
    def card_entry(self) -> dict[str, Any]:
        """Its entry in a checkpoint's card."""
        names = (
            "source",
            "name",
            "sha256",
            "encoded_sha256",
            "rows",
            "left_out",
            "kind",
            "num_classes",
            "columns_sha256",
        )
        return {name: getattr(self, name) for name in names} | {"features": self.x.shape[1]}


_TABLES: dict[str, OwnTable] = {}


def read(data: Any, schema: Schema | str | Path, name: str = "table", format: Format | None = None) -> OwnTable:
    """A public table by its schema; rows that are invalid by it are left out.

    Args:
      data: a file, or what `l2p.tables.reading.open_table` takes.
      schema: the declaration, or its JSON file.
      name: of a table that comes as no file.
      format: how a text file is laid out.

    Raises:
      InputError: the table or the schema cannot be read, or do not fit; bounds are private; classes have weights, which
        meta-training does not use; or rows, or those of a class, are too few.

    >>> from l2p.tables.schema import Number, Target
    >>> ward = Schema({"age": Number(0, 100)}, Target("back", classes=(0, 1)))
    >>> table = read({"age": list(range(100)) * 2, "back": [0, 1] * 100}, ward, "ward")
    >>> table.kind, table.x.shape, table.source
    ('binary', (200, 1), 'table:ward:2fa7ce8b38ce92db')
    """
    schema = schema if isinstance(schema, Schema) else Schema.read(schema)
    is_file = isinstance(data, (str, Path))
    table_name = name_of(data) if is_file else name
    if schema.target.weights is not None:
        raise InputError(
            f"the schema of {table_name} declares class weights, which meta-training does not use, so they would be "
            "ignored; leave them out."
        )
    encoded = read_rows(data, Encoding(schema), "null", format)
    x, y, mask = (np.asarray(leaf) for leaf in (encoded.x, encoded.y, encoded.mask))
    x, y = x[mask > 0], y[mask > 0]
    _check_rows(table_name, schema, y)
    sha256 = content_sha256(data) if is_file else hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()
    most = MAX_CELLS // x.shape[1]
    if len(y) > most:
        indices = np.sort(np.random.default_rng(0).permutation(len(y))[:most])
        x, y = x[indices], y[indices]
    classes = schema.target.classes
    count = None if classes is None else len(classes)
    columns = columns_sha256(schema.features, schema.target.column)
    return OwnTable(table_name, sha256, x, y, schema.target.kind, count, len(mask), len(mask) - len(y), columns)


def _check_rows(name: str, schema: Schema, y: np.ndarray) -> None:
    """Refuse a table that too few tasks could be drawn from."""
    if len(y) < MIN_ROWS:
        raise InputError(
            f"the table {name} has {len(y)} rows that are valid by its schema, and a fifth of them are held out; give "
            f"one of at least {MIN_ROWS}."
        )
    for number, label in enumerate(schema.target.classes or ()):
        if (count := int((y == number).sum())) < MIN_OF_CLASS:
            raise InputError(
                f"the table {name} has {count} rows of class {label!r}, too few to learn from and to hold some out; "
                f"give one with at least {MIN_OF_CLASS}, or leave the class out of its schema."
            )


def keep(table: OwnTable) -> str:
    """Have trainings find it by its name as a source, which is returned."""
    _TABLES[table.source] = table
    return table.source


def find(source: str) -> OwnTable:
    """The table of a source.

    Raises:
      InputError: it was not read in this process.
    """
    if source not in _TABLES:
        raise InputError(
            f"the source {source} is a table of its maker's, known here by its content alone; train on that table "
            "anew, with --data and --schema."
        )
    return _TABLES[source]


def card_entries(sources: tuple[str, ...]) -> list[dict[str, Any]]:
    """Entries in a checkpoint's card of those among the sources that are users' own."""
    return [find(source).card_entry for source in sources if is_own(source)]
