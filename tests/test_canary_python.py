"""Nothing private in an error, a warning or a repr from Python; planted faults in a reader are found."""

import logging
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base import struct
from l2p.base.errors import InputError, RowsError
from l2p.models import Logistic
from l2p.privacy import Adjacency, Budget
from l2p.release import api
from l2p.release.prediction.predictor import Predictor
from l2p.release.tuning.private_tuning import private_tuning
from l2p.run.protector import Protector
from l2p.tables.reading import delimited
from l2p.tables.schema import Encoding, Number, Schema, Target, read_rows
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource, RowSource
from l2p.task.task import Task
from tests.canaries import BAD, COUNT, NUMBER, SAID, SCHEMA, WORD, N, leaks, observed

BUDGET = Budget(2.0, 1e-6, Adjacency.ADD_REMOVE)


def arrays():
    rng = np.random.default_rng(0)
    x = rng.random((COUNT, 3)).astype(np.float32)
    return {"x": x, "y": (x[:, 0] > 0.5).astype(np.float32), "mask": np.ones(COUNT, np.float32)}


def spoilt(name, value, dtype=object):
    """Rows in which one value of one array is replaced."""
    parts = arrays()
    parts[name] = parts[name].astype(dtype)
    parts[name].flat[0] = value
    return Rows(**parts)


def replaced(**parts):
    return Rows(**(arrays() | parts))


class Stream(RowSource):
    """The given rows, in one block."""

    num_rows, num_features = COUNT, 3

    def __init__(self, block):
        self.block = block

    def blocks(self):
        if isinstance(self.block, Exception):
            raise self.block
        yield self.block


WORDS = [(name, dtype) for name in ("x", "y", "mask") for dtype in (object, "<U20")]
BAD_ROWS = {
    **{f"words in {name}, {dtype}": spoilt(name, WORD, dtype) for name, dtype in WORDS},
    "numbers as text": spoilt("x", str(NUMBER), "<U20"),
    "numbers beyond floats": spoilt("x", int(NUMBER) * 10**400),
    "lists in cells": spoilt("x", [WORD]),
    "complex": spoilt("x", NUMBER + 1j, complex),
    "dates": replaced(y=np.full(COUNT, "2024-01-31", "M8[D]")),
    "a list": replaced(y=[WORD] * COUNT),
    "no mask": replaced(mask=None),
    "labels in a column": replaced(y=np.full((COUNT, 1), NUMBER)),
    "labels that are one number": replaced(y=np.float32(NUMBER)),
    "fewer labels": replaced(y=arrays()["y"][1:]),
    "features across": replaced(x=arrays()["x"].T),
    "one feature": replaced(x=arrays()["x"][:, 0]),
    "a longer mask": replaced(mask=np.ones(COUNT + 1)),
}


@pytest.mark.parametrize("name", BAD_ROWS)
@pytest.mark.parametrize("key", [None, 0], ids=["release", "simulation"])
def test_bad_rows_are_refused_before_they_are_read_and_without_a_word_of_them(name, key):
    key = None if key is None else jax.random.key(key)
    for data in (BAD_ROWS[name], Task(private=BAD_ROWS[name]), ArraySource(BAD_ROWS[name], 500)):
        for train in (
            api.private_train,
            lambda data, protector, *args, **kw: private_tuning(data, [protector], *args, **kw),
        ):
            error, text = observed(lambda data=data, train=train: train(data, "noisygd", BUDGET, num_rows=N, key=key))
            assert isinstance(error, InputError), text
            assert leaks(text) == []


def table_of(x=None, y=None):
    """Features and target for an estimator, with some of them replaced."""
    rows = arrays()
    return rows["x"] if x is None else x, rows["y"].astype(int) if y is None else y


BAD_TABLES = {
    "words": lambda: table_of(x=spoilt("x", WORD).x),
    "complex": lambda: table_of(x=spoilt("x", NUMBER + 1j, complex).x),
    "complex labels": lambda: table_of(y=spoilt("y", NUMBER + 1j, complex).y),
    "one feature": lambda: table_of(x=np.full(COUNT, NUMBER)),
    "a single cell": lambda: table_of(x=np.array(NUMBER)),
    "three axes": lambda: table_of(x=np.full((COUNT, 3, 1), NUMBER)),
    "infinite": lambda: table_of(x=np.where(np.eye(COUNT, 3), np.inf, NUMBER)),
    "labels in two columns": lambda: table_of(y=np.full((COUNT, 2), NUMBER)),
    "fewer labels": lambda: table_of(y=np.full(COUNT - 1, NUMBER)),
    "labels that are numbers": lambda: table_of(y=np.full(COUNT, NUMBER) + np.arange(COUNT) / 7),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_an_estimator_quotes_no_cell_of_a_table_that_is_refused(name):
    estimators = pytest.importorskip("l2p.estimators", reason="scikit-learn is not installed")
    estimator = estimators.PrivateClassifier(epsilon=1.0, delta=1e-6, bounds=(0, 1), protector="noisygd")
    error, text = observed(lambda: estimator.fit(*BAD_TABLES[name]()))
    assert isinstance(error, ValueError), text
    assert set(leaks(text)) <= {"the count"}  # public: estimators protect rows under zero_out


BLOCKS = {"its own error": ValueError(WORD)} | BAD_ROWS


@pytest.mark.slow(cases=["release-its own error", "release-words in*"])
@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("key", [None, 0], ids=["release", "simulation"])
def test_a_source_that_breaks_is_not_quoted(name, key):
    key = None if key is None else jax.random.key(key)
    source = Stream(BLOCKS[name])
    error, text = observed(lambda: api.private_train(source, "noisygd", BUDGET, num_rows=N, key=key))
    assert isinstance(error, RowsError), text  # an InputError would say that nothing was spent
    assert leaks(text) == []


@pytest.mark.slow(but=["nan"])
@pytest.mark.parametrize("cell", [1e300, np.nan, np.inf])
def test_cells_that_make_null_rows_are_not_reported(cell):
    rows = spoilt("x", cell, np.float64)
    for data in (rows, ArraySource(rows, 500)):
        result, text = observed(lambda data=data: api.private_train(data, "noisygd", BUDGET, num_rows=N))
        assert result.card.num_rows == N, text
        assert text.strip() == ""
        assert leaks(repr(result)) == []


@pytest.mark.parametrize("on_invalid", ["refuse", "null"])
def test_nothing_tells_of_a_single_cell_beyond_floats(on_invalid):
    """NumPy warns where a number overflows, and where it drops an imaginary part."""
    schema = Schema({"age": Number(0, 1)}, Target("y", classes=(0, 1)))
    long = np.array([0.5, np.longdouble("1e4000")], np.longdouble)
    outcome, text = observed(lambda: read_rows({"age": long, "y": [0, 1]}, Encoding(schema), on_invalid))
    assert isinstance(outcome, InputError) if on_invalid == "refuse" else outcome.mask.tolist() == [1.0, 0.0]
    assert "overflow" not in text
    mixed = np.array([0.5, np.complex128(NUMBER + 1j)], object)
    outcome, text = observed(lambda: read_rows({"age": mixed, "y": [0, 1]}, Encoding(schema), on_invalid))
    assert isinstance(outcome, InputError), text
    assert leaks(text) == []


@pytest.mark.parametrize(
    "values", [np.full((COUNT, 2), WORD), np.full((COUNT, 2), WORD, object), np.full(COUNT, NUMBER)]
)
def test_a_table_made_in_python_is_not_quoted(values):
    schema = Schema({"age": Number(0, 1), "readmit": Number(0, 1)}, Target("y", classes=(0, 1)))
    outcome, text = observed(lambda: Predictor(Logistic(), jnp.zeros(3), schema).predict(values))
    assert isinstance(outcome, (InputError, RowsError)) if values.ndim == 1 else set(outcome) == {None}
    assert leaks(text) == []


REFUSED = {
    "no N": ({}, "pass num_rows"),
    "delta above 1/N": ({"budget": Budget(2.0, 1e-2, Adjacency.ADD_REMOVE)}, "N must not|not below 1/N"),
    "weights": ({"data": spoilt("mask", NUMBER, np.float32), "num_rows": N}, "other than 0 and 1"),
    "a solve": ({"protector": "objpert", "num_rows": N}, "more lines than N"),
    "a frame": ({"data": {"x": [NUMBER] * COUNT}, "num_rows": N}, "rows came as dict"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_under_add_remove_count_nothing(name):
    changes, phrase = REFUSED[name]
    arguments = {"data": Rows(**arrays()), "protector": "noisygd", "budget": BUDGET} | changes
    data, protector, budget = arguments.pop("data"), arguments.pop("protector"), arguments.pop("budget")
    error, text = observed(lambda: api.private_train(data, protector, budget, **arguments))
    assert isinstance(error, InputError)
    assert re.search(phrase, str(error))
    assert leaks(text) == []
    if name != "weights" and protector != "objpert":
        error, text = observed(lambda: private_tuning(data, [protector], budget, **arguments))
        assert isinstance(error, InputError)
        assert leaks(text) == []


@struct.dataclass
class Misshapen(Protector):
    """Its query adds arrays of n rows and of n + 1."""

    num_steps: int = struct.field(pytree_node=False, default=1)

    def init(self, params, oracle):
        return params, ()

    def step(self, params, state, oracle):
        rows = oracle._reader.rows
        return params + (rows.y + jnp.zeros(rows.y.shape[0] + 1)).sum(), state

    def finish(self, params, state, setup):
        return params


def test_an_error_in_a_protector_shows_shapes_of_n_rows_only():
    error, text = observed(lambda: api.private_train(Rows(**arrays()), Misshapen(), BUDGET, num_rows=N))
    assert isinstance(error, TypeError)
    assert f"({N},)" in str(error)
    assert leaks(text) == []


@pytest.mark.parametrize("kind", [MemoryError, RuntimeError, ValueError, UserWarning])
@pytest.mark.parametrize("place", ["l2p.release.private_run._start", "l2p.release.private_run._advance"])
def test_what_other_libraries_say_during_a_release_is_withheld(place, kind, monkeypatch):
    def fail(*args, **kwargs):
        raise kind(SAID)

    monkeypatch.setattr(place, fail)
    error, text = observed(lambda: api.private_train(Rows(**arrays()), "noisygd", BUDGET, num_rows=N))
    assert isinstance(error, RowsError)
    assert f"{kind.__name__} at {__file__}:" in str(error)
    assert leaks(text) == []


def test_no_repr_shows_rows():
    rows = Rows(**arrays())
    cells = np.full((COUNT, 2), NUMBER)
    shown = [rows, Task(rows, rows), ArraySource(rows, 500), Rows(cells, cells, cells)]
    assert leaks(repr(shown)) == []


# ------------------------------------------------------------------------------------------------------- planted faults
def quoting(cell):
    raise InputError(f"the cell {cell} is not a number.")


def warning(cell):
    warnings.warn(f"the cell {cell} is not a number", stacklevel=1)
    raise InputError("a cell is not a number.")


def logging_it(cell):
    logging.getLogger("reader").warning("the cell %s is not a number", cell)
    raise InputError("a cell is not a number.")


def counting(cell):
    raise InputError(f"one of {COUNT:,} cells is not a number.")


@pytest.mark.parametrize("fault", [quoting, warning, logging_it, counting])
def test_the_search_finds_a_reader_that_tells(fault, monkeypatch, tmp_path):
    monkeypatch.setattr(delimited, "objects", lambda cells: fault(next(cell for cell in cells if WORD in cell)))
    path = tmp_path / "ward.csv"
    path.write_text(BAD["words in a feature"])
    error, text = observed(lambda: read_rows(path, Encoding(SCHEMA)))
    assert isinstance(error, InputError)
    assert leaks(text) == ["the count" if fault is counting else "the word"]
