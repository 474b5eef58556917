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
from typing import Any, cast

import numpy as np

from l2p.base.errors import InputError, ending_run
from l2p.estimators.database.expressions import encoded_rows_query
from l2p.models import HuberSVM, Logistic, Model, Softmax
from l2p.protectors import BoltOn
from l2p.queries import PassDescent
from l2p.queries.pass_descent import PassRows
from l2p.tables.reading.address import Address
from l2p.tables.reading.arrow import import_pyarrow
from l2p.tables.reading.database import quoted
from l2p.tables.reading.in_postgresql import PostgreSQL, connected, import_adbc
from l2p.tables.schema import Encoding, Schema
from l2p.tables.schema.encoding import OnInvalid

#: The aggregate and what surrounds it.
SGD = Path(__file__).with_name("sgd.sql")
#: Of a ridge, a radius, the last step or the bound of rows' lengths, where it is above 0.
_LEAST = 1e-20
_SELECT_ROWS = "SELECT line, x, y FROM pg_temp.l2p_lines"
_COUNTS = """
SELECT count(*), coalesce(bool_and(alone), true), coalesce(bool_and(y IS NOT NULL), true) FROM pg_temp.l2p_lines
"""
_PASS = "SELECT pg_temp.l2p_pass($1, pg_temp.l2p_order($2), $3, $4, $5, $6, $7, $8, $9, $10)"


def commands() -> list[str]:
    """The commands of `SGD`, one by one, since a prepared statement holds one."""
    return re.split(r"^(?=CREATE |DO )", SGD.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]


def check_address(address: Address) -> None:
    """Refuse a table of which no server takes passes, or whose rows have no order."""
    if address.kind != "postgresql" or address.key is None:
        raise InputError(
            "passes inside the database need a table in PostgreSQL and a unique column that tells its rows apart; "
            "write postgresql://HOST/DATABASE?table=T&key=COLUMN."
        )


def check_method(protector: object, model: Model, num_features: int) -> None:
    """Refuse, before any row is read, what the server's passes do not compute.

    Raises:
      InputError: they minimise another loss, take other steps, or would fail by what rows hold.
    """
    if not isinstance(model, (Logistic, HuberSVM, Softmax)):
        raise InputError(
            f"the database's passes minimise the loss of logistic or svm, or tell several classes apart by it "
            f"(softmax), and have none of {model}; choose one of these, or train outside of the database "
            "(private_train)."
        )
    if not isinstance(protector, BoltOn) or _special(protector):
        raise InputError(
            "the database takes bolt-on SGD's passes over permuted rows, and gives back their last iterate; choose "
            "bolt_on or bolt_on_sc without averages, snapshots, fewer features or repeated rows, or train "
            "outside of the database (private_train)."
        )
    protector = protector.for_table(model, num_features)
    last_step = float(protector.plan(protector.loss(model)).step_sizes.min())
    sizes = protector.ridge, protector.radius or 0.0, last_step, protector.norm_bound
    if any(0 < size < _LEAST for size in sizes):
        raise InputError(
            f"a ridge, a radius, a step size or a bound of rows' lengths is below {_LEAST:g}, and PostgreSQL "
            "refuses products that come too close to 0, so that a failure would tell of rows; choose a larger one, "
            "or none."
        )


class TableRows(PassRows):
    """The rows of a table, encoded by a schema as the server reads them; `held_rows` opens one.

    Attributes:
      schema: their declaration.
    """

    def __init__(self, table: "_Table", schema: Schema, on_invalid: OnInvalid = "null"):
        """Read the table once: rows are encoded and counted, and their keys compared."""
        self.schema, self.num_features = schema, len(Encoding(schema).names)
        self._table = table
        self.num_rows = table.encode(schema, on_invalid)

    def __repr__(self) -> str:
        return "TableRows(not shown)"

    def check_model(self, protector: object, model: Model) -> None:
        check_method(protector, model, self.num_features)
        if cast(BoltOn, protector).num_rows != self.num_rows:
            raise InputError(
                "the protector was planned for another number of rows than the table has; name a method, such as "
                "bolt_on, which is planned for this one."
            )

    def passes(self, query: PassDescent, orders: Iterator[np.ndarray] | None) -> np.ndarray:
        assert orders is not None
        plan, loss = query.plan, query.loss
        width = loss.width if isinstance(loss, HuberSVM) else None
        radius = plan.radius if math.isfinite(plan.radius) else None
        problems = query.num_classes
        settings = plan.batch_size, plan.ridge, radius, float(np.float32(query.norm_bound)), width, problems
        sizes = plan.step_sizes.reshape(plan.num_passes, -1)
        # There one class's weights lie side by side, here one feature's.
        weights = np.asarray(query.start, np.float64).reshape(-1, problems).T.ravel()
        # The highest byte first, as the server reads them.
        places = np.empty(plan.num_rows, ">i4")
        in_turn = np.arange(1, plan.num_rows + 1, dtype=places.dtype)
        for order, size in zip(orders, sizes, strict=True):
            places[order] = in_turn
            # One number stands for as many equal ones.
            size = size[:1] if (size == size[0]).all() else size
            with ending_run():
                (answer,) = self._table.ask(_PASS, _bound(_SELECT_ROWS, places.tobytes(), weights, size, *settings))
            weights = np.array(answer, np.float64)
        return weights.reshape(problems, -1).T.ravel()


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
    kinds = (
        pa.string(),
        pa.binary(),
        *[pa.list_(pa.float64())] * 2,
        pa.int32(),
        *[pa.float64()] * 4,
        pa.int32(),
    )
    arrays = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
    return pa.record_batch(arrays, [f"_{place}" for place in range(len(arrays))])


class _Table(PostgreSQL):
    """A table in a session that has the aggregate."""

    def _prepare(self, connection: Any) -> None:
        if not self._kinds:
            return  # this session only describes the table
        # Functions that other roles have made are not looked for.
        path = "SET LOCAL search_path = pg_catalog, pg_temp"
        lines = "CREATE TEMPORARY TABLE l2p_lines (line int, x float8[], y float8, alone boolean)"
        try:
            for command in (path, *commands(), lines):
                with connection.cursor() as cursor:
                    cursor.execute(command)
            connection.commit()
        except import_adbc().Error:
            raise InputError(
                f"the aggregate cannot be made in the database of {self.title}: this role needs the privilege "
                "TEMPORARY there (GRANT TEMPORARY ON DATABASE), and the server must not be a read-only standby."
            ) from None

    def encode(self, schema: Schema, on_invalid: OnInvalid) -> int:
        """Encode every row, once; returns how many there are. What cannot be encoded is refused before budget is spent,
        and so is a key that does not tell all rows apart."""
        self.check_columns((*schema.features, schema.target.column))
        assert self.key is not None
        (compiled,) = self.ask("SELECT pg_temp.l2p_compiled('l2p_scaled')")
        query = encoded_rows_query(schema, ".".join(map(quoted, self.address.table)), self.key, self._kinds, compiled)
        self.ask(f"INSERT INTO pg_temp.l2p_lines {query}")
        rows, settled, valid = self.ask(_COUNTS)
        if not rows:
            raise InputError(f"{self.title} has no rows to learn from; check it and its filters.")
        if not settled:
            raise self._unsettled()
        if on_invalid == "refuse" and not valid:
            raise InputError(
                f"{self.title} has rows whose numbers are missing or not finite, or whose labels are none of the "
                'declared classes; correct them, or choose on_invalid "null" (--on-invalid null) to count such rows as '
                "null."
            )
        return rows

    def ask(self, statement: str, bound: Any = None) -> Any:
        """The first row that a statement returns; None if it returns none."""
        with self._refused(), self._connection.cursor() as cursor:
            cursor.execute(statement, parameters=bound)
            return cursor.fetchone() if cursor.description else None


@contextlib.contextmanager
def held_rows(
    address: Address, schema: Schema, on_invalid: OnInvalid = "null", server: Any = None
) -> Iterator[TableRows]:
    """The rows of a table with a key, within one snapshot, for `private_train(data=...)` with bolt-on SGD.

    Args:
      on_invalid: "null" counts an invalid row as null, which adds nothing and keeps its place; "refuse" refuses it.
      server: a connection to the table's server, if there is one.

    Raises:
      InputError: the server, the table or its key is not there or may not be read, the schema declares what cannot be
        computed there, a cell cannot be turned into a number, or a row is refused.
    """
    check_address(address)
    with contextlib.nullcontext(server) if server is not None else connected(address) as server:
        table = _Table(address, server)
        with table.snapshot():
            yield TableRows(table, schema, on_invalid)
