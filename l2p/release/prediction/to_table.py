"""Predictions as a new table in a database.

They first go to a temporary file, and then into the table in one transaction: a database has all of them or none, and
the table of the rows may be in the same file.
"""

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from l2p.base.errors import InputError, withheld
from l2p.base.progress import Progress
from l2p.release.prediction.predictor import Predicted, Predictor
from l2p.tables.reading import RawSource
from l2p.tables.reading.address import Address
from l2p.tables.reading.arrow import import_pyarrow
from l2p.tables.reading.database import quoted
from l2p.tables.reading.in_duckdb import import_duckdb
from l2p.tables.reading.in_postgresql import import_adbc

#: Column of the numbers of rows, from 1, by which predictions are matched with them where the table names no key.
LINE = "line"


def write_table(
    predictor: Predictor, source: RawSource, address: Address, header: Sequence[str], progress: Progress
) -> bool:
    """Write predictions to a new table, with the keys of their rows. Returns True if any is missing.

    Args:
      predictor: the model.
      source: the rows.
      address: of the table to make.
      header: the column of predictions and, if there is more, those of the probabilities of classes.
      progress: told of the rows.

    Raises:
      InputError: the table is there already or cannot be made, or rows cannot be told apart in it.
    """
    if source.key is None and not source.ordered:
        raise InputError(
            f"{source.title} has no order, so nobody could tell which row a prediction is of; name a unique column as "
            "&key= in its address."
        )
    if (column := source.key or LINE) in header:
        raise InputError(f"two columns of the table to write would be called {column!r}; rename the key.")
    _check_absent(address)
    pa = import_pyarrow("writing to a database")
    with tempfile.TemporaryDirectory(prefix="l2p-") as folder:
        file, unread = Path(folder, "predictions.arrow"), False
        with _with_room(file), contextlib.ExitStack() as stack:
            writer = None
            for keys, predicted in _predictions(predictor, source):
                unread |= bool(_missing(predicted).any())
                batch = _batch(pa, column, keys, header, predicted, predictor)
                if writer is None:
                    writer = stack.enter_context(pa.ipc.new_file(file, batch.schema))
                writer.write_batch(batch)
                progress.read(len(keys))
            if writer is None:
                raise InputError(f"{source.title} has no rows to predict for; check it and its filters.")
        with pa.ipc.open_file(file) as file:
            batches = pa.RecordBatchReader.from_batches(
                file.schema, (file.get_batch(place) for place in range(file.num_record_batches))
            )
            _store(address, batches)
    return unread


def _predictions(predictor: Predictor, source: RawSource) -> Iterator[tuple[Sequence[Any], Predicted]]:
    """Keys and predictions, block by block."""
    names, line_numbers = predictor.schema.features, itertools.count(1)
    columns = names if source.key is None else tuple(dict.fromkeys((*names, source.key)))
    for block in source.blocks(columns):
        predicted = predictor.of_block(block)
        count = len(predicted.values)
        yield (
            list(itertools.islice(line_numbers, count)) if source.key is None else block[source.key].tolist(),
            predicted,
        )


def _missing(predicted: Predicted) -> np.ndarray:
    return np.array([value is None or value != value for value in predicted.values.tolist()], bool)


@withheld("writing predictions")
def _batch(
    pa: Any, column: str, keys: Sequence[Any], header: Sequence[str], predicted: Predicted, predictor: Predictor
) -> Any:
    classes = predictor.classes
    kind = pa.array(list(classes)).type if classes else pa.float64()
    missing = _missing(predicted)
    parts = [pa.array(keys), pa.array(predicted.values.tolist(), kind, mask=missing)]
    if len(header) > 1 and predicted.probabilities is not None:
        parts += [pa.array(values, pa.float64(), mask=missing) for values in predicted.probabilities.T]
    return pa.record_batch(parts, [column, *header])


def _check_absent(address: Address) -> None:
    """Refuse a table that is there, before anything is predicted."""
    *_, schema, table = ("", *address.table)
    if address.kind == "duckdb":
        if not Path(address.location).exists():
            return
        duckdb = import_duckdb()
        with _refused(address, duckdb.Error), duckdb.connect(address.location, read_only=True) as connection:
            matches = connection.execute(
                "SELECT 1 FROM information_schema.tables WHERE table_name = $1 AND $2 IN ('', table_schema)",
                [table, schema],
            ).fetchall()
    else:
        dbapi = import_adbc()
        with (
            _refused(address, dbapi.Error),
            dbapi.connect(address.location) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT 1 WHERE to_regclass($1) IS NOT NULL", parameters=(_name(address),))
            matches = cursor.fetchall()
    if matches:
        raise InputError(f"there is a table {address.shown} already, which predictions never replace; name another.")


def _store(address: Address, batches: Any) -> None:
    stores: dict[str, Callable[[Address, Any], None]] = {"duckdb": _to_duckdb, "postgresql": _to_postgresql}
    stores[address.kind](address, batches)


def _to_duckdb(address: Address, batches: Any) -> None:
    duckdb, file = import_duckdb(), Path(address.location)
    is_new = not file.exists()
    try:
        with _refused(address, duckdb.Error), duckdb.connect(file) as connection:
            connection.begin()
            connection.register("predictions to store", batches)
            # A name cannot be bound as a parameter; quoted, it is a name whatever it holds.
            connection.execute(f'CREATE TABLE {_name(address)} AS FROM "predictions to store"')
            connection.commit()
    except BaseException:
        if is_new:
            file.unlink(missing_ok=True)
        raise


def _to_postgresql(address: Address, batches: Any) -> None:
    dbapi = import_adbc()
    schema = address.table[-2] if len(address.table) > 1 else None
    with _refused(address, dbapi.Error), dbapi.connect(address.location) as connection:
        with connection.cursor() as cursor:
            cursor.adbc_ingest(address.table[-1], batches, mode="create", db_schema_name=schema)
        connection.commit()


def _name(address: Address) -> str:
    return ".".join(map(quoted, address.table))


@contextlib.contextmanager
def _with_room(file: Path) -> Iterator[None]:
    """Refuse where the temporary file finds no room; readers of rows have messages of their own."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else "it cannot be written"
        raise InputError(
            f"predictions are kept in {file.parent.parent} until all are made, and there is no room ({why}); free disk "
            "space, or name another folder in TMPDIR. Nothing was written."
        ) from None


@contextlib.contextmanager
def _refused(address: Address, error: type[Exception]) -> Iterator[None]:
    with withheld("writing predictions"):
        try:
            yield
        except (OSError, error):
            raise InputError(
                f"the table {address.shown} cannot be made: nobody answers there, or no longer, it is open elsewhere, "
                "its disk is full, or this user may not create tables; check the address, or name another --out. "
                "Nothing was written."
            ) from None
