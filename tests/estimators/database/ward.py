"""A ward's table with cells of every kind, and what reads and trains on it, there and in memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

import l2p
from l2p.estimators.database import held_rows, train
from l2p.estimators.database.rows import commands
from l2p.privacy.budget import Budget
from l2p.queries import PassDescent
from l2p.tables.reading.address import Address
from l2p.tables.schema import Encoding, Number, Schema, Target, read_rows

N, BUDGET = 60, Budget(2.0, 1e-5)
BOUNDS = {"age": (0, 120), "dose": (-1, 1), 'it\'s "odd"': (-1e308, 0.1)}
TARGET = Target("back", classes=("no", "y\\es'"), aliases={"yes": "y\\es'"})
WARD = Schema({name: Number(*pair) for name, pair in BOUNDS.items()}, TARGET, missing_words=("?", "-3"))
START = jnp.array([0.3, -0.2, 0.1, 0.4])
#: The same rows with three classes.
CLASSES = ("home", "ward", "other")
THREE = Schema(WARD.columns, Target("place", CLASSES), missing_words=WARD.missing_words)


def columns():
    rng = np.random.default_rng(0)
    age, dose, odd = rng.uniform(-20, 150, N), rng.uniform(-1, 1, N), rng.uniform(-1, 1, N)
    # Missing, infinite, a number that stands for missing ones, far out, and too small for products of them.
    age[:7] = np.nan, np.inf, -np.inf, -3.0, 1e308, 1e-320, -1e-320
    dose[7:9] = 1.7e308, -1.0 + 1e-16
    odd[9:12] = -1e308, 0.1, 1e-300
    back = rng.choice(["no", " yes", "y\\es'"], N).tolist()
    back[12:15] = None, "perhaps", "?"
    number = rng.permutation(N) * 3 - 50
    missing = [None if place == 20 else value for place, value in enumerate(dose.tolist())]
    place = [None, "nowhere", *rng.choice(CLASSES, N - 2).tolist()]
    return {"id": number, "age": age, "dose": missing, 'it\'s "odd"': odd, "back": back, "place": place}


def fill(server, name, table):
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(f"postgresql:///postgres?host={server.folder}&user=l2p") as connection:
        with connection.cursor() as cursor:
            cursor.adbc_ingest(name, pa.table({k: pa.array(list(v)) for k, v in table.items()}), mode="create")
        connection.commit()


def ask(server, *statements, user="l2p"):
    """The last answer of one session."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(f"postgresql:///postgres?host={server.folder}&user={user}") as connection:
        with connection.cursor() as cursor:
            for statement in (*commands(), *statements):
                cursor.execute(statement)
            answer = cursor.fetchall()
        connection.commit()
    return answer


def address(server, table="ward", user="l2p", key="id"):
    return Address.parse(server.address(table, user, **({} if key is None else {"key": key})))


def ordered(table, schema=WARD):
    """The rows as the key orders them, encoded in memory."""
    order = np.argsort(table["id"])
    sorted_by_key = {name: [list(table[name])[place] for place in order] for name in (*BOUNDS, schema.target.column)}
    return read_rows(sorted_by_key, Encoding(schema), "null")


def query_of(plan, loss, norm_bound=1.0, num_classes=1):
    start = jnp.tile(START[:, None], num_classes).ravel()
    return PassDescent(loss, plan, start, jnp.ones(()), jnp.full((), -jnp.inf), num_classes, norm_bound)


def orders_of(plan, seed=0):
    rng = np.random.default_rng(seed)
    drawn = [rng.permutation(plan.num_rows) for _ in range(plan.num_passes)]
    size = plan.steps_per_pass * plan.batch_size
    return np.array(
        [np.pad(drawn_order, (0, size - plan.num_rows), constant_values=-1) for drawn_order in drawn], np.int32
    )


def in_memory(query, rows, order):
    with jax.enable_x64(True):
        exact = l2p.Rows(*(jnp.asarray(leaf, jnp.float64) for leaf in (rows.x, rows.y, rows.mask)))
        return np.asarray(query.result(exact, jnp.asarray(order)))


def in_turn(order):
    """The lines of each pass, as a table gets them."""
    return (lines[lines >= 0] for lines in order)


def there(server, query, order, table="ward", schema=WARD):
    with held_rows(address(server, table), schema) as rows:
        return rows.passes(query, in_turn(order))


def train_on(server, out, **changed):
    arguments = {
        "source_table": "ward",
        "out_table": out,
        "dependent": "back",
        "independent": list(BOUNDS),
        "at": f"postgresql://l2p@/postgres?host={server.folder}",
        "row_key": "id",
        "bounds": BOUNDS,
        "classes": ["no", "yes"],
        "budget": BUDGET,
    }
    return train(**arguments | changed)
