"""Errors that withhold what led to them hold no reference to it."""

import json

import duckdb
import numpy as np
import pytest

from l2p.base.errors import InputError, RowsError, ending_run, withheld
from l2p.estimators.messages import unquoted
from l2p.tables.reading import open_table
from l2p.tables.schema import Number, Schema, Target, Unit, read_rows
from l2p.tables.schema.encoding import Encoding
from l2p.tables.schema.units import FirstRows
from tests.canaries import NUMBER, WORD

WARD = Encoding(Schema({"age": Number(0, 120)}, Target("back", classes=("no", "yes"))))


def fail():
    raise ValueError(WORD)


def within(context):
    with context:
        fail()


def replaced(context):
    with context:
        try:
            fail()
        except ValueError:
            raise InputError("a cell is no number.") from None


def chained(context):
    with context:
        try:
            fail()
        except ValueError as error:
            raise InputError("a cell is no number.") from error


def chained_implicitly(context):
    with context:
        try:
            fail()
        except ValueError:
            raise InputError("a cell is no number.")  # noqa: B904


def file_with(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


def from_duckdb(folder):
    with duckdb.connect(folder / "ward.db") as connection:
        connection.execute(f"CREATE VIEW ward AS SELECT CAST('{WORD}' AS INTEGER) AS age")
    return list(open_table(f"duckdb://{folder}/ward.db?table=ward").blocks(("age",)))


DOORS = {
    "code that reads rows": lambda _: within(withheld("reading")),
    "a refusal of such code": lambda _: replaced(withheld("reading")),
    "a refusal with its cause": lambda _: chained(withheld("reading")),
    "a refusal while another is handled": lambda _: chained_implicitly(withheld("reading")),
    "the end of a run": lambda _: replaced(ending_run()),
    "scikit-learn": lambda _: within_message(unquoted(), f"could not convert string to float: '{WORD}'"),
    "a raw table": lambda folder: read_rows(file_with(folder, "t.csv", f'age,back\n"{WORD},no\n'), WARD),
    "Parquet": lambda folder: open_table(file_with(folder, "t.parquet", WORD)),
    "DuckDB": from_duckdb,
    "units": lambda _: FirstRows(Unit("id", 1)).keep(np.array([float(NUMBER) * 1e30]), np.ones(1, bool)),
    "a table for a schema": lambda folder: Schema.read(file_with(folder, "s.json", f"age\n{WORD}\n")),
}


def within_message(context, message):
    with context:
        raise ValueError(message)


@pytest.mark.parametrize("name", DOORS)
def test_nothing_hangs_on_an_error_that_keeps_something_back(tmp_path, name):
    with pytest.raises((InputError, RowsError)) as caught:
        DOORS[name](tmp_path)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert WORD not in json.dumps([str(caught.value), repr(vars(caught.value))])
