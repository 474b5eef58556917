"""Passes that PostgreSQL takes: those of bolt-on SGD in memory, paid for before they begin."""

import jax
import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError, RowsError
from l2p.estimators.database import held_rows
from l2p.estimators.database.expressions import encoded_rows_query
from l2p.estimators.database.rows import check_method
from l2p.models import HuberSVM, Logistic, find_model
from l2p.privacy.budget import Budget
from l2p.privacy.events import Adjacency
from l2p.privacy.ledger.ledger import Cost, Ledger
from l2p.privacy.sensitivity.passes import Passes
from l2p.protectors import BoltOn
from l2p.tables.schema import Category, Missing, Number, Schema, Target, Unit
from tests.estimators.database.ward import (
    BOUNDS,
    BUDGET,
    CLASSES,
    START,
    THREE,
    WARD,
    N,
    address,
    ask,
    columns,
    in_memory,
    in_turn,
    ordered,
    orders_of,
    query_of,
    there,
    train_on,
)

PLANS = {
    "one row a batch": (Passes(N, 0.25, 2, 1), Logistic(), 1.0),
    "a last batch that is not full": (Passes(N, 0.25, 3, 7, step_size=1.0), Logistic(), 0.3),
    "strongly convex in a ball": (Passes(N, 5.0, 2, 1, "strongly_convex", ridge=0.5, radius=0.05), HuberSVM(), 1.0),
    "all rows in a batch": (Passes(N, 5.0, 2, N, step_size=0.1, ridge=1e-3), HuberSVM(), 1.0),
    "three classes": (Passes(N, 0.25, 2, 7, step_size=1.0, ridge=0.1, radius=0.5), Logistic(), 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", PLANS)
def test_the_database_takes_the_steps_of_bolt_on_over_the_same_rows_in_the_same_order(server, step, case):
    schema, classes = (THREE, 3) if case == "three classes" else (WARD, 1)
    query, order = query_of(*PLANS[case], num_classes=classes), orders_of(PLANS[case][0])
    rows = ordered(columns(), schema)
    assert 40 < rows.mask.sum() < N  # null rows are among them
    answer = there(server, query, order, schema=schema)
    np.testing.assert_allclose(answer, in_memory(query, rows, order), rtol=1e-9, atol=1e-13)


@pytest.mark.slow
def test_weights_that_die_out_end_no_pass(server, step):
    # They shrink a thousandfold in every step, and PostgreSQL refuses products that are too small.
    plan = Passes(N, 0.25, 2, 1, step_size=0.0999, ridge=10.0)
    assert there(server, query_of(plan, Logistic()), orders_of(plan), "null").tolist() == [0.0] * 4


@pytest.mark.slow
def test_weights_far_out_end_no_pass(server, step):
    plan = Passes(N, 0.25, 1, 1)
    query, order = query_of(plan, Logistic()).replace(start=1e5 * START), orders_of(plan)
    expected = in_memory(query, ordered(columns()), order)
    np.testing.assert_allclose(there(server, query, order), expected, rtol=1e-9)


def test_all_passes_read_the_rows_that_were_encoded_first(server):
    """A view may give other rows whenever it is read, which no transaction prevents."""
    plan = Passes(N, 0.25, 1, 1)
    query, order = query_of(plan, Logistic()), orders_of(plan)
    with held_rows(address(server, "dice"), WARD) as rows:
        first, second = (rows.passes(query, in_turn(order)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_one_row_moves_the_passes_by_no_more_than_what_is_paid_for(server):
    plan = Passes(N, 0.25, 2, 4, step_size=2.0)
    query, order = query_of(plan, Logistic()), orders_of(plan)
    before, table = there(server, query, order), columns()
    moves = []
    for place, change in enumerate(("NULL", "'no'", "'yes'")):
        server.execute(
            f"CREATE TABLE neighbour{place} AS SELECT * FROM ward",  # noqa: S608
            f"UPDATE neighbour{place} SET back = {change}, age = 120 WHERE id = {table['id'][30]}",  # noqa: S608
        )
        moves.append(np.linalg.norm(there(server, query, order, f"neighbour{place}") - before))
    nulled, *replaced = moves
    assert 0 < nulled <= float(query.bound)
    assert max(replaced) <= 2 * float(query.bound)


@pytest.mark.slow
def test_a_key_gives_the_parameters_that_it_gives_from_memory(server):
    protector = BoltOn(N, num_passes=2, batch_size=8)
    result = train_on(server, "simulated", protector=protector, key=jax.random.key(5))
    here = l2p.private_train(ordered(columns(), result.schema), protector, BUDGET, key=jax.random.key(5))
    np.testing.assert_allclose(result.params, here.params, rtol=1e-4, atol=1e-6)
    assert result.card.num_rows == N
    assert not result.card.private_release


@pytest.mark.slow
def test_several_classes_are_told_apart_as_from_memory_and_a_row_of_the_model_is_each(server):
    protector, key = BoltOn(N, num_passes=2, batch_size=8), jax.random.key(6)
    classes = {"dependent": "place", "classes": CLASSES, "model": "softmax"}
    result = train_on(server, "places", protector=protector, key=key, **classes)
    rows = ordered(columns(), result.schema)
    here = l2p.private_train(rows, protector, BUDGET, key=key, model="softmax:3")
    np.testing.assert_allclose(result.params, here.params, rtol=1e-4, atol=1e-6)
    model = ask(server, "SELECT class, coef, intercept FROM places")
    assert [name for name, *_ in model] == list(CLASSES)
    margins = np.stack([rows.x @ np.array(coef) + intercept for _, coef, intercept in model], 1)
    np.testing.assert_array_equal(margins.argmax(1), find_model("softmax:3").predict(result.params, rows.x))


@pytest.mark.slow
def test_a_release_is_paid_for_and_its_table_is_the_model_with_its_card(server, tmp_path):
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "basic", Cost(BUDGET.epsilon, BUDGET.delta))
    budget = Budget(1.5, 4e-6)
    result = train_on(server, "model", budget=budget, ledger=ledger)
    assert result.card.private_release
    assert ledger.spent().amount == pytest.approx(1.5, rel=1e-3)
    (row,) = ask(server, "SELECT coef, intercept, independent, highs, class, card->>'epsilon' FROM model")
    weights, bias = find_model("logistic").arrays(np.asarray(result.params)).values()
    assert row[0] == pytest.approx(weights.tolist())
    assert row[1] == pytest.approx(float(bias[0]))
    assert [*row[2:]] == [list(BOUNDS), [120.0, 1.0, 0.1], "yes", "1.5"]
    assert not np.allclose(result.params, train_on(server, "again", budget=budget).params)

    spent = ledger.spent()
    with pytest.raises(InputError, match="cannot be made"):
        train_on(server, "model", budget=Budget(0.1, 1e-7), ledger=ledger)
    assert ledger.spent() == spent
    with pytest.raises(InputError, match=r"has epsilon 0\.5"):
        train_on(server, "too_dear", budget=budget, ledger=ledger)
    assert ask(server, "SELECT to_regclass('too_dear')") == [(None,)]


@pytest.mark.slow
def test_a_server_that_fails_in_a_pass_leaves_the_reservation_and_no_table(server, tmp_path, monkeypatch):
    from l2p.estimators.database import rows

    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "basic", Cost(BUDGET.epsilon, BUDGET.delta))
    real_ask = rows._Table.ask

    def failing(self, statement, bound=None):
        if bound is not None:
            assert ledger.spent().amount == BUDGET.epsilon  # reserved before a pass begins
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE query LIKE '%l2p_lines%' AND pid <> pg_backend_pid()"
            )
        return real_ask(self, statement, bound)

    monkeypatch.setattr(rows._Table, "ask", failing)
    with pytest.raises(RowsError, match=r"ended the connection.* stays charged"):
        train_on(server, "unfinished", ledger=ledger)
    assert ledger.spent().amount == BUDGET.epsilon
    assert ask(server, "SELECT to_regclass('unfinished')") == [(None,)]


@pytest.mark.slow
def test_rows_that_come_out_of_order_or_are_missing_stop_a_pass(server, step):
    lines = encoded_rows_query(WARD, 'public."ward"', "id", dict.fromkeys(BOUNDS, "float8") | {"back": "text"})
    for places in (np.ones(N, int), np.arange(N) + 2, np.arange(N + 1) + 1):
        listed = ",".join(map(str, places))
        with pytest.raises(Exception, match=r"order|as many rows|is NULL"):
            ask(
                server,
                f"SELECT pg_temp.l2p_pass($q${lines}$q$, '{{{listed}}}', '{{0,0,0,0}}', '{{1}}', 99, 0, NULL, 1, NULL)",
            )


@pytest.mark.slow
def test_the_control_is_descent_without_noise_and_has_to_be_asked_for(server):
    call = "CALL pg_temp.l2p_train('ward', 'control', '(back <> ''no'')::int', {}, 'id', {}, 60, 2.0{})"
    dose = "'ARRAY[CASE WHEN dose BETWEEN -1 AND 1 THEN dose END]'"
    with pytest.raises(Exception, match="adds no noise"):
        ask(server, call.format(dose, 3, ""))
    (coef,) = ask(server, call.format(dose, 3, ", noiseless => true"), "SELECT coef FROM control")[0]
    table = columns()
    dose = np.array([np.nan if dose is None else dose for dose in table["dose"]])
    label = np.array([np.nan if answer is None else answer != "no" for answer in table["back"]])
    counted = (np.abs(dose) <= 1) & np.isfinite(label)
    lines = np.stack([dose, np.full(N, 0.5)], 1)[counted]
    lines /= np.maximum(np.linalg.norm(lines, axis=1, keepdims=True), 1)
    expected = np.zeros(2)
    for _ in range(3):
        expected -= 2.0 / N * lines.T @ (1 / (1 + np.exp(-lines @ expected)) - label[counted])
    np.testing.assert_allclose(coef, expected, rtol=1e-9)


REFUSED = {
    "a method that adds up": ({"protector": "noisygd"}, "takes bolt-on SGD's passes"),
    "another solve": ({"protector": "objpert"}, "takes bolt-on SGD's passes"),
    "averages": ({"protector": BoltOn(N, averaged=0.5)}, "takes bolt-on SGD's passes"),
    "snapshots": ({"protector": BoltOn(N, snapshots=True)}, "takes bolt-on SGD's passes"),
    "another size": ({"protector": BoltOn(N + 1)}, "another number of rows"),
    "add_remove": ({"budget": Budget(1.0, 1e-6, Adjacency.ADD_REMOVE)}, "add_remove"),
    "three classes": ({"classes": ["no", "yes", "perhaps"]}, "choose softmax"),
    "labels of another type": ({"classes": [0, 1]}, "cannot be told apart"),
    "no such column": ({"independent": ["age", "weight"], "bounds": (0, 1)}, "lacks|weight"),
    "bounds that are missing": ({"bounds": {"age": (0, 120)}}, "bounds and independent"),
    "one name": ({"independent": "age"}, "a list of names"),
    "another database": ({"at": "duckdb://ward.db"}, "a table in PostgreSQL"),
    "no key": ({"row_key": ""}, "a unique column"),
    "keys that repeat": ({"source_table": "twice"}, "share a value"),
    "no rows": ({"source_table": "empty"}, "no rows"),
    "a number that is none": ({"source_table": "huge"}, "cannot be turned into numbers"),
    "no permission": ({"at": "stranger"}, "may not read"),
    "a table that is there": ({"out_table": "ward"}, "cannot be made"),
    "nowhere to write": ({"at": "reader"}, "cannot be made"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_what_the_database_cannot_do_is_refused_before_anything_is_spent(server, tmp_path, case):
    changed, phrase = REFUSED[case]
    if changed.get("at") in ("stranger", "reader"):
        changed = changed | {"at": f"postgresql://{changed['at']}@/postgres?host={server.folder}"}
    budget = changed.get("budget", BUDGET)
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", budget, "basic", Cost(2.0, 1e-5))
    with pytest.raises(InputError, match=phrase):
        train_on(server, **{"out": "refused", "ledger": ledger} | _renamed(changed))
    assert ledger.entries() == []
    assert ask(server, "SELECT to_regclass('refused')") == [(None,)]


TINY = [
    {"ridge": 1e-310},
    {"radius": 1e-150},
    {"step_size": 1e-200},
    {"norm_bound": 1e-90},
    {"rule": "inverse_power", "step_size": 1.0, "power": 60.0},
    {"rule": "decreasing", "power": 60.0},
]


@pytest.mark.parametrize("tiny", TINY)
def test_numbers_that_would_let_a_failure_tell_of_rows_are_refused(tiny):
    """PostgreSQL refuses a product that underflows, which it does or not by what a weight is."""
    check_method(BoltOn(N), Logistic(), 3)
    with pytest.raises(InputError, match="a failure would tell of rows"):
        check_method(BoltOn(N, **tiny), Logistic(), 3)


def _renamed(changed):
    return {"out" if name == "out_table" else name: value for name, value in changed.items()}


@pytest.mark.parametrize(
    ("columns", "target", "phrase"),
    [
        ({"age": Number(0, 1, Missing(0.5))}, Target("back", ("no", "yes")), "stands in for missing"),
        ({"age": Category(("a", "b"))}, Target("back", ("no", "yes")), "columns of numbers"),
        ({"age": Number.private()}, Target("back", ("no", "yes")), "declared bounds"),
        ({"age": Number(0, 1, curve=3)}, Target("back", ("no", "yes")), "no curve"),
        ({"age": Number(0, 1)}, Target("back", bounds=(0, 1)), "declare classes"),
        ({"age": Number(0, 1)}, Target("back", (False, True)), "own type"),
        ({"age": Number(0, 1)}, Target("back", ("no", "y\0s")), "NUL"),
        ({"age": Number(0, 1)}, Target("back", ("no", "yes"), weights=(1, 2)), "weighs classes"),
    ],
)
def test_a_declaration_that_has_no_sql_is_refused(columns, target, phrase):
    with pytest.raises(InputError, match=phrase):
        encoded_rows_query(Schema(columns, target), '"ward"', "id", {"age": "int4", "back": "text"})


def test_units_have_no_sql():
    schema = Schema({"age": Number(0, 1)}, Target("back", ("no", "yes")), Unit("patient", 3))
    with pytest.raises(InputError, match="single rows"):
        encoded_rows_query(schema, '"ward"', "id", {"age": "int4", "back": "text"})


def test_numbers_and_booleans_are_labels_of_their_own_type():
    for classes, kind, expected in (((0, 1), "int4", "'1.0'::float8"), ((False, True), "bool", "IN (true)")):
        schema = Schema({"age": Number(0, 1)}, Target("back", classes))
        assert expected in encoded_rows_query(schema, '"ward"', "id", {"age": "int4", "back": kind})
