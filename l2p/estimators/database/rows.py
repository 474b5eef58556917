"""Rows that stay in a PostgreSQL table, whose server takes a run's passes over them; noise is added here.

Functions are made anew in the session's temporary schema, so that those whose sensitivity was counted are those that
run, and nothing is left behind. Then one read-only transaction at isolation level REPEATABLE READ encodes the rows
once, into a temporary table that no other session can write, and all passes read that: a view may give other rows at
every pass, as where it reads files, other servers or random(), which no snapshot covers.
"""

import contextlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from l2p.base.errors import InputError, ending_run
from l2p.estimators.database.expressions import encoded_rows_query
from l2p.models import HuberSVM, Logistic, Model
from l2p.protectors import BoltOn
from l2p.queries import PassDescent
from l2p.queries.pass_descent import PassRows
from l2p.tables.reading.address import Address
from l2p.tables.reading.arrow import import_pyarrow
from l2p.tables.reading.database import quoted
from l2p.tables.reading.in_postgresql import PostgreSQL, import_adbc
from l2p.tables.schema import Encoding, Schema

#: The aggregate and what surrounds it.
SGD = Path(__file__).with_name("sgd.sql")
#: Of a ridge, a radius, the last step or the bound of rows' lengths, where it is above 0.
_LEAST = 1e-20
_SELECT_ROWS = "SELECT line, x, y FROM pg_temp.l2p_lines"
_PASS = "SELECT pg_temp.l2p_pass($1, $2, $3, $4, $5, $6, $7, $8, $9)"


class TableRows(PassRows):
    """The rows of a table, encoded by a schema as the server reads them; `held_rows` opens one.

    An invalid row counts as null: it adds nothing and keeps its place.

    Attributes:
      schema: their declaration.
    """

    def __init__(self, table: "_Table", schema: Schema):
        """Read the table once: rows are encoded and counted, and their keys compared."""
        self.schema, self.num_features = schema, len(Encoding(schema).names)
        self._table = table
        self.num_rows = table.encode(schema)

    def __repr__(self) -> str:
        return "TableRows(not shown)"

    def check_model(self, protector: object, model: Model) -> None:
        if not isinstance(model, (Logistic, HuberSVM)):
            raise InputError(
                f"the database's passes minimise the loss of logistic or svm, not of {model}; choose one of these, or "
                "train outside of the database (private_train)."
            )
        if not isinstance(protector, BoltOn) or _special(protector):
            raise InputError(
                "the database takes bolt-on SGD's passes over permuted rows, and gives back their last iterate; choose "
                "bolt_on or bolt_on_sc without averages, snapshots, fewer features or repeated rows, or train "
                "outside of the database (private_train)."
            )
        if protector.num_rows != self.num_rows:
            raise InputError(
                "the protector was planned for another number of rows than the table has; name a method, such as "
                "bolt_on, which is planned for this one."
            )
        protector = protector.for_table(model, self.num_features)
        last_step = float(protector.plan(protector.loss(model)).step_sizes.min())
        sizes = protector.ridge, protector.radius or 0.0, last_step, protector.norm_bound
        if any(0 < size < _LEAST for size in sizes):
            raise InputError(
                f"a ridge, a radius, a step size or a bound of rows' lengths is below {_LEAST:g}, and PostgreSQL "
                "refuses products that come too close to 0, so that a failure would tell of rows; choose a larger one, "
                "or none."
            )

    def passes(self, query: PassDescent, order: jax.Array | None) -> np.ndarray:
        plan, loss = query.plan, query.loss
        width = loss.width if isinstance(loss, HuberSVM) else None
        radius = plan.radius if math.isfinite(plan.radius) else None
        settings = plan.batch_size, plan.ridge, radius, float(np.float32(query.norm_bound)), width
        sizes = plan.step_sizes.reshape(plan.num_passes, -1)
        params = np.asarray(query.start, np.float64)
        for drawn, size in zip(np.asarray(order), sizes, strict=True):
            places = np.empty(plan.num_rows, np.int32)
            places[drawn[: plan.num_rows]] = np.arange(1, plan.num_rows + 1)
            with ending_run():
                (answer,) = self._table.ask(_PASS, _bound(_SELECT_ROWS, places, params, size, *settings))
            params = np.array(answer, np.float64)
        return params


def _special(protector: BoltOn) -> bool:
    return bool(
        protector.snapshots
        or protector.averaged
        or protector.projected_features
        or protector.order == "with_replacement"
    )


def _bound(*values: Any) -> Any:
    """Parameters of `_PASS` for the driver, which knows them by their Arrow types."""
    pa = import_pyarrow("training in PostgreSQL")
    kinds = pa.string(), pa.list_(pa.int32()), *[pa.list_(pa.float64())] * 2, pa.int32(), *[pa.float64()] * 4
    arrays = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
    return pa.record_batch(arrays, [f"_{place}" for place in range(len(arrays))])


class _Table(PostgreSQL):
    """A table in a session that has the aggregate."""

    def _prepare(self, connection: Any) -> None:
        # A prepared statement holds one command.
        commands = re.split(r"^(?=CREATE )", SGD.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        commands.append("CREATE TEMPORARY TABLE l2p_lines (line int, x float8[], y float8, alone boolean)")
        try:
            for command in commands:
                with connection.cursor() as cursor:
                    cursor.execute(command)
            connection.commit()
        except import_adbc().Error:
            raise InputError(
                f"the aggregate cannot be made in the database of {self.title}: this role needs the privilege "
                "TEMPORARY there (GRANT TEMPORARY ON DATABASE), and the server must not be a read-only standby."
            ) from None

    def encode(self, schema: Schema) -> int:
        """Encode every row, once; returns how many there are. What cannot be encoded is refused before budget is spent,
        and so is a key that does not tell all rows apart."""
        self.check_columns((*schema.features, schema.target.column))
        assert self.key is not None
        query = encoded_rows_query(schema, ".".join(map(quoted, self.address.table)), self.key, self._kinds)
        self.ask("SET LOCAL work_mem = '64MB'")  # for sorts of wide rows
        self.ask(f"INSERT INTO pg_temp.l2p_lines {query}")
        rows, settled = self.ask("SELECT count(*), coalesce(bool_and(alone), true) FROM pg_temp.l2p_lines")
        if not rows:
            raise InputError(f"{self.title} has no rows to learn from; check it and its filters.")
        if not settled:
            raise self._unsettled()
        return rows

    def ask(self, statement: str, bound: Any = None) -> Any:
        """The first row that a statement returns; None if it returns none."""
        with self._refused(), self._connection.cursor() as cursor:
            cursor.execute(statement, parameters=bound)
            return cursor.fetchone() if cursor.description else None


@contextlib.contextmanager
def held_rows(address: Address, schema: Schema) -> Iterator[TableRows]:
    """The rows of a table with a key, within one snapshot, for `private_train(data=...)` with bolt-on SGD.

    Raises:
      InputError: the server, the table or its key is not there or may not be read, the schema declares what cannot be
        computed there, or a cell cannot be turned into a number.
    """
    if address.kind != "postgresql" or address.key is None:
        raise InputError(
            "passes inside the database need a table in PostgreSQL and a unique column that tells its rows apart; "
            "write postgresql://HOST/DATABASE?table=T&key=COLUMN."
        )
    table = _Table(address)
    with table.snapshot():
        yield TableRows(table, schema)
