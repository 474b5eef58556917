"""Private training in MADlib's calling convention: a table of rows in, a table with the model out."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jax
import numpy as np

from l2p.base.errors import InputError, alone, withheld
from l2p.estimators.database.rows import check_address, held_rows
from l2p.privacy.budget import Budget
from l2p.privacy.ledger.ledger import Ledger
from l2p.release.api import private_train
from l2p.release.result import Result
from l2p.run.protector import Protector
from l2p.tables.bounds import Interval, interval
from l2p.tables.reading.address import Address
from l2p.tables.reading.arrow import import_pyarrow
from l2p.tables.reading.database import quoted
from l2p.tables.reading.in_postgresql import connected, import_adbc
from l2p.tables.schema import Number, Schema, Target
from l2p.tables.schema.columns import Value

_MODEL = {
    "model": "text",
    "dependent": "text",
    "class": "text",
    "classes": "text[]",
    "independent": "text[]",
    "lows": "float8[]",
    "highs": "float8[]",
    "coef": "float8[]",
    "intercept": "float8",
    "card": "json",
}


def train(
    source_table: str,
    out_table: str,
    dependent: str,
    independent: Sequence[str],
    *,
    at: str,
    row_key: str,
    bounds: Interval | Mapping[str, Interval],
    classes: Sequence[Value],
    budget: Budget,
    protector: Protector | str = "bolt_on",
    model: str = "logistic",
    accountant: str | None = None,
    ledger: Ledger | str | Path | None = None,
    key: jax.Array | None = None,
) -> Result:
    """Train by passes that PostgreSQL takes over a table, with noise added here; then write the model to a new table.

    Rows never leave the database. A row with a NULL, a number that is not finite or another label counts as null.

    Args:
      source_table, out_table: names in the database, "ward" or "hospital.ward"; the second is made.
      dependent: the column to predict.
      independent: the columns to predict it from, which hold numbers.
      at: the database, postgresql://HOST/DATABASE.
      row_key: a unique column that tells rows apart.
      bounds: of the independent columns, from public knowledge: one pair [low, high] for all, or {column: [low, high]}.
      classes: the labels, from public knowledge; of two, the second is the one that is predicted above 0.
      budget, accountant, ledger, key: as for `private_train`.
      protector: bolt-on SGD: `bolt_on`, `bolt_on_sc` or a protector of that class.
      model: `logistic` or `svm`; `softmax` for several classes, each told from the rest, with a row of the model.

    Raises:
      InputError: an argument does not fit, the table cannot be read, or `out_table` is there or cannot be made; raised
        before budget is spent.
      RowsError: the server failed in a pass; what was charged stays charged, and nothing was written.
    """
    schema = _schema(dependent, independent, bounds, classes)
    source, out = (_address(at, table, row_key) for table in (source_table, out_table))
    check_address(source)
    with connected(source) as server, held_rows(source, schema, server=server) as rows:
        table = _NewTable(server, out)
        result = private_train(
            rows, protector, budget, model=model, accountant=accountant, ledger=ledger, key=key, schema=schema
        )
        return table.filled(result)


def _schema(
    dependent: str, independent: Sequence[str], bounds: Interval | Mapping[str, Interval], classes: Sequence[Value]
) -> Schema:
    if isinstance(independent, str):
        raise InputError("independent is one text, but must name columns; pass a list of names.")
    pairs = bounds if isinstance(bounds, Mapping) else dict.fromkeys(independent, bounds)
    if set(pairs) != set(independent):
        raise InputError(
            "bounds and independent name different columns, so some would have no bounds; give [low, high] for each "
            "independent column, from public knowledge."
        )
    columns = {name: Number(*interval(name, pairs[name])) for name in independent}
    return Schema(columns, Target(dependent, tuple(classes)))


def _address(at: str, table: str, key: str) -> Address:
    return Address.parse(f"{at}{'&' if '?' in at else '?'}{urlencode({'table': table, 'key': key})}")


class _NewTable:
    """A table that is made in a transaction, which ends with the model in it or leaves nothing."""

    @alone()
    def __init__(self, connection: Any, address: Address):
        self._connection = connection
        self._name, self._shown = ".".join(map(quoted, address.table)), address.shown
        columns = ", ".join(f"{name} {kind}" for name, kind in _MODEL.items())
        try:
            self._execute(f"CREATE TABLE {self._name} ({columns})")
        except import_adbc().Error:
            raise InputError(
                f"the table {self._shown} cannot be made: it is there already, and none is replaced, or this role may "
                "not create it; name another out_table."
            ) from None

    def filled(self, result: Result) -> Result:
        """The result, with a warning on its card if it could not be written: it is paid for and must not be lost."""
        places = ", ".join(f"${place}" for place in range(1, len(_MODEL)))
        try:
            with withheld("writing the model"):
                insert = f"INSERT INTO {self._name} VALUES ({places}, ${len(_MODEL)}::json)"  # noqa: S608
                self._execute(insert, _rows_of(result))
                self._connection.commit()
        except RuntimeError:
            warning = f"The table {self._shown} could not be written; save the result elsewhere (Result.save)."
            card = dataclasses.replace(result.card, warnings=[*result.card.warnings, warning])
            return dataclasses.replace(result, card=card)
        return result

    def _execute(self, statement: str, bound: Any = None) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, parameters=bound)


def _rows_of(result: Result) -> Any:
    """A row for each margin: of the second of two classes, or of every class."""
    pa, schema = import_pyarrow("writing a model"), result.schema
    assert schema is not None
    arrays = result.model.arrays(np.asarray(result.params, np.float64))
    coefficients = arrays["weights"].reshape(len(schema.features), -1).T
    classes = list(map(str, schema.target.classes or ()))
    numbers = [column for column in schema.columns.values() if isinstance(column, Number)]
    of_all = {
        "model": str(result.model),
        "dependent": schema.target.column,
        "classes": classes,
        "independent": list(schema.features),
        "lows": [column.low for column in numbers],
        "highs": [column.high for column in numbers],
        "card": result.card.to_json(),
    }
    count = len(coefficients)
    values = {name: [value] * count for name, value in of_all.items()}
    values |= {"class": classes[-count:], "coef": coefficients.tolist(), "intercept": arrays["bias"].tolist()}
    kinds = {"text": pa.string(), "float8": pa.float64(), "json": pa.string()}
    kinds |= {f"{kind}[]": pa.list_(kinds[kind]) for kind in ("text", "float8")}
    columns = {name: pa.array(values[name], kinds[kind]) for name, kind in _MODEL.items()}
    return pa.record_batch(list(columns.values()), list(columns))
