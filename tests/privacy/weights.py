"""Classes with weights, and rows of a rare one."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from l2p.models import Logistic, find_model
from l2p.oracle.setup import Setup
from l2p.privacy import Budget, Filter, class_weights
from l2p.tables.schema import Number, Schema, Target
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows

D, LINES = 3, 8
BUDGET = Budget(1.0, 1e-6)
MODEL, SOFTMAX, MLP = Logistic(), find_model("softmax:2"), find_model("mlp")


#: Classes 0 and 1 count .3 and 1 of a row.
WEIGHTS, SHARES = (3.0, 10.0), class_weights.shares((3.0, 10.0))


def f32(value):
    return jnp.asarray(value, jnp.float32)


#: (a, b, c, y, mask)
NULL = (0.0, 0.0, 0.0, 0, 0)
TABLE = [(0.9, 0.1, 0.8, 1, 1), (0.2, 0.7, 0.3, 0, 1), (0.5, 0.4, 0.6, 0, 1), NULL, (0.1, 0.9, 0.2, 1, 1)]


#: What may enter: both classes, opposite rows, and one that is out of all bounds.
OTHERS = [
    (0.1, 0.9, 0.2, 0, 1),
    (0.1, 0.9, 0.2, 1, 1),
    (1.0, 1.0, 1.0, 1, 1),
    (0.0, 0.0, 0.0, 0, 1),
    (9.0, 5.0, 7.0, 1, 1),
]


def encoded(table):
    """Rows f32[LINES, ...], filled up with null rows."""
    cells = np.array([*table, *[NULL] * (LINES - len(table))], np.float32)
    return Rows(cells[:, :D], cells[:, D], cells[:, D + 1])


ALONE = [row for row in [*TABLE, *OTHERS] if row is not NULL]


class Nothing(KeyNoise):
    def standard(self, distribution, shape):
        return jnp.zeros(shape)


def setup(weights=SHARES):
    unweighted = Setup.create(MODEL, BUDGET.adjacency, Filter("rdp", BUDGET).price_list(), 100)
    return dataclasses.replace(unweighted, class_weights=weights)


COUNT, SCHEMA = 3000, Schema({"a": Number(0, 1), "b": Number(0, 1)}, Target("sick", ("no", "yes")))
WEIGHTED = dataclasses.replace(SCHEMA, target=Target("sick", ("no", "yes"), weights=(1, 12)))


def rare(count=COUNT, seed=0):
    """One row in fifteen or so is of class yes, and no line tells them apart."""
    random = np.random.default_rng(seed)
    x = random.random((count, 2))
    sick = random.random(count) < 0.25 * np.square(x[:, 0])
    return {"a": x[:, 0], "b": x[:, 1], "sick": np.where(sick, "yes", "no")}


def table(count=200):
    random = np.random.default_rng(0)
    x = random.random((count, 2)).astype(np.float32)
    return Rows(x, (x[:, 0] > 0.5).astype(np.float32), np.ones(count, np.float32))
