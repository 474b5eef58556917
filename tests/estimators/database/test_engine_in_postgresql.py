"""A model that an SQL aggregate has trained, as in MADlib: its neighbours by brute force, and noise on its weights."""

import numpy as np
import pytest

from l2p import Budget, EngineRun, bolt_on
from tests.postgres import running

M = 10
#: Initialise, transition and (nothing to do) terminate; every step's size is computed from its number, here in SQL.
AGGREGATE = (
    """CREATE FUNCTION step(w float8[], x float8[], y float8, size float8, ridge float8) RETURNS float8[]
    LANGUAGE sql IMMUTABLE AS $$
      SELECT array_agg(v - size * ((1 / (1 + exp(-margin)) - y) * u + ridge * v) ORDER BY place)
      FROM unnest(w, x) WITH ORDINALITY AS columns (v, u, place),
      (SELECT sum(v * u) AS margin FROM unnest(w, x) AS columns (v, u)) AS products $$""",
    """CREATE AGGREGATE sgd(x float8[], y float8, size float8, ridge float8)
    (SFUNC = step, STYPE = float8[], INITCOND = '{0,0,0}')""",
    "CREATE TABLE ward AS SELECT line, '{0,0,1}'::float8[] AS x, 1::float8 AS y FROM generate_series(1, 10) AS line",
    # What may stand in one line: a null row, and rows that pull hard; the first is the table's own.
    """CREATE TABLE standing AS SELECT * FROM (VALUES (0, '{0,0,1}'::float8[], 1::float8), (1, '{0,0,0}', 0),
    (2, '{0,0,1}', 0), (3, '{0.8,0,0.6}', 0), (4, '{0.8,0,-0.6}', 1)) AS rows (kind, x, y)""",
)
#: Each line replaced by each of them, and trained on, in another order in every pass.
TRAIN = """
SELECT changed.line, kind, sgd(
  CASE WHEN ward.line = changed.line THEN standing.x ELSE ward.x END,
  CASE WHEN ward.line = changed.line THEN standing.y ELSE ward.y END, {size}, {ridge} ORDER BY t)
FROM ward AS changed CROSS JOIN standing CROSS JOIN LATERAL (
  SELECT *, (pass - 1) * {m} + 1 + (ward.line * (4 * pass - 1) + pass) %% {m} AS t
  FROM ward CROSS JOIN generate_series(1, {passes}) AS pass
) AS ward GROUP BY 1, 2 ORDER BY 1, 2
"""
COURSES = {
    "constant": ({"num_passes": 1, "step_size": 7.0}, "7.0"),
    "decreasing, ridge": (
        {"num_passes": 2, "step_size": 6.0, "rule": "inverse_power", "shift": 1.0, "power": 0.75, "ridge": 0.05},
        "6 / (t + 1) ^ 0.75",
    ),
}


@pytest.fixture(scope="module")
def connection():
    with running() as server:
        from adbc_driver_postgresql import dbapi

        server.execute(*AGGREGATE)
        with dbapi.connect(f"postgresql:///postgres?host={server.folder}&user=l2p") as connection:
            yield connection


def declared(course):
    settings, _ = course
    steps = settings["num_passes"] * M
    size = settings["step_size"]
    ends = (1, steps) if "rule" in settings else ()
    sizes = [size / (t + 1) ** 0.75 for t in ends] or [size, size]
    return EngineRun(
        engine="an SQL aggregate", num_rows=M, updates=steps, first_step=sizes[0], last_step=sizes[1], **settings
    )


@pytest.mark.parametrize("name", COURSES)
def test_no_neighbour_moves_what_the_aggregate_trains_further_than_is_declared(connection, name):
    run, (_, size) = declared(COURSES[name]), COURSES[name]
    with connection.cursor() as cursor:
        cursor.execute(TRAIN.format(m=M, passes=run.num_passes, size=size, ridge=run.ridge).replace("%%", "%"))
        answers = cursor.fetchall()
    weights = np.array([answer[2] for answer in answers]).reshape(M, -1, 3)
    apart = np.linalg.norm(weights[:, :, None] - weights[:, None], axis=-1) / run.passes.sensitivity()
    assert 0 < apart[:, 1].max() <= 1  # nulled
    assert 0 < apart.max() <= 2  # replaced
    if name == "constant":
        assert apart[:, 1].max() > 0.97
        assert apart.max() > 1.4
    noised = bolt_on(weights[0, 0], run, Budget(1.0, 0.0)).weights
    assert noised.shape == (3,)
