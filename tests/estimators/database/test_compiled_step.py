"""The step in C, where it is installed: the one in PL/pgSQL, and a refusal of whatever else is asked of it."""

import re

import numpy as np
import pytest

from l2p.models import Logistic
from l2p.privacy.sensitivity.passes import Passes
from tests.estimators.database.ward import N, ask, orders_of, query_of, there

pytestmark = pytest.mark.slow  # a server, a compiler
M = 10
#: What may stand in one line: a null row, and rows that pull hard, one of which is shrunk.
STANDING = """
(VALUES (0, '{0,0,0.5}', NULL), (1, '{0,0,1}', 1), (2, '{1,0,0}', 1), (3, '{6,0,8}', 0), (4, '{0.8,0,-0.6}', 0))
AS standing (kind, x, y)
"""
#: Each line replaced by each of them, among rows that are all alike, in another order in every pass.
NEIGHBOURS = """
CREATE FUNCTION pg_temp.trained(
  changed int, x text, y int, passes int, start float8[], sizes float8[], batch int, ridge float8, radius float8,
  width float8, problems int
) RETURNS float8[] LANGUAGE plpgsql AS $$
DECLARE
  lines text := format($query$
    SELECT line, CASE WHEN line = %s THEN %L::float8[] ELSE '{{0.6,0,0.8}}' END AS x,
      CASE WHEN line = %s THEN %L::float8 ELSE {others} END AS y
    FROM generate_series(1, 10) AS line
  $query$, changed, x, changed, y);
  steps int := cardinality(sizes) / passes;
BEGIN
  FOR pass IN 0..passes - 1 LOOP
    start := pg_temp.l2p_pass(
      lines, (SELECT array_agg(line ORDER BY line * (4 * pass + 3) % 11) FROM generate_series(1, 10) AS line), start,
      sizes[steps * pass + 1 : steps * (pass + 1)], batch, ridge, radius, 1, width, problems);
  END LOOP;
  RETURN start;
END $$
"""
COURSES = {
    # Far out the slope is 1 whatever the step, and null rows bring no runs together: the bound is reached.
    "constant": (Passes(M, 0.25, 2, 1, step_size=7.0), None, 1, [-20, 0, -20], "NULL"),
    "three classes in batches": (Passes(M, 0.25, 2, 3, step_size=7.0, ridge=0.02), None, 3, [0] * 9, "line %% 3"),
    "a ball, svm": (Passes(M, 5.0, 2, 1, "strongly_convex", ridge=0.5, radius=0.4), 0.1, 1, [0] * 3, "1"),
}


def array(numbers):
    return f"'{{{','.join(map(repr, map(float, numbers)))}}}'"


@pytest.mark.parametrize("name", COURSES)
def test_no_neighbour_moves_either_step_further_than_is_paid_for(server, step, name):
    plan, width, problems, start, others = COURSES[name]
    radius = "NULL" if plan.radius == np.inf else plan.radius
    numbers = f"{plan.num_passes}, {array(start)}, {array(plan.step_sizes)}, {plan.batch_size}, {plan.ridge}, {radius}"
    answers = ask(
        server,
        NEIGHBOURS.format(others=others),
        f"SELECT pg_temp.trained(changed, x, y, {numbers}, {width or 'NULL'}, {problems}) "  # noqa: S608
        f"FROM generate_series(1, {M}) AS changed, {STANDING} ORDER BY changed, kind",
    )
    weights = np.array([answer for (answer,) in answers]).reshape(M, 5, -1)
    apart = np.linalg.norm(weights[:, :, None] - weights[:, None], axis=-1) / (plan.sensitivity() * problems**0.5)
    assert 0 < apart[:, 0].max() <= 1  # nulled
    assert 0 < apart.max() <= 2  # replaced
    if name == "constant":
        assert apart[:, 0].max() > 0.99
        assert apart.max() > 1.4


LANGUAGE = """SELECT lanname::text FROM pg_aggregate JOIN pg_proc p ON p.oid = aggtransfn
  JOIN pg_language l ON l.oid = p.prolang WHERE aggfnoid = 'pg_temp.l2p_sgd'::regproc"""


def test_sessions_take_the_compiled_step_where_it_is_installed_and_they_may_call_it(server, step):
    assert ask(server, LANGUAGE) == [(step,)]
    if step == "c":
        server.execute("REVOKE EXECUTE ON FUNCTION l2p_step FROM PUBLIC")
        assert ask(server, LANGUAGE, user="stranger") == [("plpgsql",)]


def test_places_are_read_as_they_were_sent(server, step):
    places = [1, 255, 256, 2**16, 2**24 + 3, 2**31 - 1]
    sent = b"".join(place.to_bytes(4, "big") for place in places).hex()
    assert ask(server, f"SELECT pg_temp.l2p_order('\\x{sent}')") == [(places,)]


HIJACKS = (
    "CREATE FUNCTION cardinality(float8[]) RETURNS int LANGUAGE sql AS 'SELECT 1 / 0'",
    "CREATE FUNCTION array_position(float8[], float8) RETURNS int LANGUAGE sql AS 'SELECT 1 / 0'",
    "CREATE FUNCTION format(text, name, name) RETURNS text LANGUAGE sql AS 'SELECT (1 / 0)::text'",
)


def test_no_function_of_another_role_runs_in_a_pass(server, step):
    """A function in a schema that everybody may write to wins over the server's own for any type."""
    plan = Passes(N, 0.25, 1, 7)
    query, order = query_of(plan, Logistic()), orders_of(plan)
    expected = there(server, query, order)
    server.execute(*HIJACKS)
    try:
        np.testing.assert_array_equal(there(server, query, order), expected)
    finally:
        server.execute(
            "DROP FUNCTION public.cardinality, public.array_position",
            "DROP FUNCTION public.format",
        )


CALL = "SELECT pg_temp.l2p_sgd({x}, {y}, {place}, {ends}, 1, {start}, {batch}, {ridge}, NULL, {norm_bound}, NULL)"
USUAL = {"x": "'{0.5,0.25}'", "y": "1", "place": "1", "ends": "true", "start": "'{0,0}'", "batch": "1", "ridge": "0"}
USUAL |= {"norm_bound": "1"}
REFUSED = {
    "a row that is too long": ({"x": "'{0.5,0.25,0.875}'"}, "another length"),
    "a row that is too short": ({"x": "'{0.875}'"}, "another length"),
    "an empty row": ({"x": "'{}'"}, "another length"),
    "a row of two dimensions": ({"x": "'{{0.875,0.25}}'"}, "another length"),
    "a row with a NULL": ({"x": "'{0.875,NULL}'"}, "another length"),
    "no row": ({"x": "NULL"}, "is NULL"),
    "no weights": ({"start": "'{}'"}, "another length"),
    "no place": ({"place": "NULL"}, "is NULL"),
    "another place": ({"place": "875"}, "in their order"),
    "no ridge": ({"ridge": "NULL"}, "is NULL"),
    "weights with a NULL": ({"start": "'{0.875,NULL}'"}, "another length"),
}


def test_the_compiled_step_refuses_arguments_that_do_not_fit_and_quotes_none(server, compiled):
    server.execute(*compiled)
    try:
        assert ask(server, CALL.format(**USUAL))[0][0][-1] == 1
        for changed, phrase in REFUSED.values():
            with pytest.raises(Exception, match=phrase) as error:
                ask(server, CALL.format(**USUAL | changed))
            assert not re.search("875", str(error.value))
        for call in (
            "SELECT l2p_step(NULL, '{1}', 1, 1, true, 1, '{0}', 1, 0, NULL, 1, NULL)",
            "SELECT pg_temp.l2p_sgd('{1}', 1, 1, true, 1, '{0}', 1, 0, NULL, 1, NULL) OVER ()",
        ):
            with pytest.raises(Exception, match="by an aggregate alone"):
                ask(server, call)
        for cells, lows in (("{0.875}", "{0,0}"), ("{0.875,0}", "{0,NULL}"), ("{}", "{}")):
            with pytest.raises(Exception, match="another length") as error:
                ask(server, f"SELECT l2p_scaled('{cells}', '{lows}', '{{0,0}}', '{{1,1}}')")
            assert not re.search("875", str(error.value))
    finally:
        server.execute("DROP FUNCTION l2p_step, l2p_places, l2p_scaled CASCADE")
