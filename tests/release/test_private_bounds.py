"""Bounds from the budget: bins that no data decides, counts that are paid for, and one epsilon over all of it."""

import dataclasses
import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import l2p
from l2p import Budget
from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.models import Logistic
from l2p.oracle.sums import exact_sum
from l2p.privacy import Adjacency, Filter
from l2p.privacy.card.card import Card
from l2p.queries import BinCounts
from l2p.queries.bins import SCALE
from l2p.release.admission import admit
from l2p.release.planned_run import plan_run
from l2p.release.private_bounds import FALSE_ALARM, SHARE, TAIL, Purchase, choose
from l2p.tables.schema import Category, Encoding, Missing, Number, Schema, Target, Unit, bins, read_rows
from l2p.tables.schema.unbounded import Unbounded
from l2p.task.rows import Rows
from tests.canaries import observed

BUDGET = Budget(1.0, 1e-6)
PRIVATE = Schema(
    {
        "pay": Number.private(Missing(9, indicator=True), curve=4),
        "ward": Category(("a", "b")),
        "age": Number.private(),
    },
    Target("y", (0, 1)),
    missing_words=("?", "-999"),
)


def raw(count=600, seed=0):
    random = np.random.default_rng(seed)
    pay = random.lognormal(3, 1, count) * random.choice([-1, 1], count)
    age = random.integers(17, 90, count)
    return {
        "pay": np.where(random.random(count) < 0.1, np.nan, pay),
        "ward": random.choice(["a", "b", "c"], count).astype(object),
        "age": age,
        "y": (age > 50).astype(int),
        "person": random.integers(0, count // 2, count),
    }


# ------------------------------------------------------------------------------------------------------------- bins
numbers = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 5e-324, 1.0, -1.0, 2.0**64, 2.0**70, 2.0**-40, math.nan]))


@settings(max_examples=300)
@given(numbers)
def test_a_number_lies_within_the_edges_of_its_bin_and_of_no_other(value):
    place = int(bins.places(np.array([value]))[0])
    if not math.isfinite(value):
        assert place == -1
        return
    low, high = bins.edges(place)
    size = min(max(abs(value), 2.0 ** (bins.EXPONENTS[0] - 1)), 2.0 ** bins.EXPONENTS[1])
    held = math.copysign(size, value) if value else 0.0
    assert low <= held <= high
    inside = [
        place
        for place in range(bins.COUNT)
        if bins.edges(place)[0] < held <= bins.edges(place)[1] or bins.edges(place)[0] <= held < bins.edges(place)[1]
    ]
    assert place in inside or value == 0
    assert bins.places(np.array([value, 3.0, np.nan]))[0] == place  # whoever stands beside it


def test_edges_are_in_order_and_meet():
    edges = [bins.edges(place) for place in range(bins.COUNT)]
    assert len(edges) == bins.COUNT < SCALE
    assert all(low <= high for low, high in edges)
    for lower, upper in itertools.pairwise(edges):
        assert lower[1] == upper[0] or bins.edges(bins.ZERO) in (lower, upper)


# ----------------------------------------------------------------------------------------------------------- counts
def table(data=None, schema=PRIVATE):
    columns = raw() if data is None else data
    return Unbounded.read({name: columns[name] for name in schema.names}, schema, "null")


_exact = jax.jit(exact_sum)


def counted(read):
    """Counts of a release, among null rows so that all tables here are of one shape."""
    rows = read.binned(SCALE)
    padded = [
        np.pad(part, [(0, 600 - len(rows.y))] + [(0, 0)] * (part.ndim - 1)) for part in (rows.x, rows.y, rows.mask)
    ]
    with jax.enable_x64(True):
        total = _exact(BinCounts(2, bins.COUNT, jnp.float32(1.0)), Rows(*map(jnp.asarray, padded)))
        return np.asarray(total.value).reshape(-1, bins.COUNT)


def test_counts_are_those_of_the_cells_that_are_numbers_in_rows_that_count():
    data = raw()
    data["y"] = np.where(np.arange(600) < 50, 7, data["y"])  # no class: null rows
    counts = counted(table(data))
    for column, name in enumerate(("pay", "age")):
        values = np.asarray(data[name], float)[50:]
        values = values[np.isfinite(values)]
        assert counts[column].sum() == len(values)
        for place in np.unique(bins.places(values)):
            assert counts[column, place] == (bins.places(values) == place).sum()


SMALL = [(9.0, 40), (np.nan, 90), (-3.0, 17), (0.0, np.nan), (np.inf, 3), (64.0, 40)]


@pytest.mark.parametrize("adjacency", Adjacency)
def test_no_row_moves_the_counts_by_more_than_the_root_of_k_and_one_replaced_by_root_two_of_it(adjacency):
    def counts(cells):
        pay, age = (list(column) for column in zip(*cells, strict=True))
        data = {"pay": pay, "ward": ["a"] * len(pay), "age": age, "y": [0] * len(pay)}
        schema = dataclasses.replace(PRIVATE, columns=PRIVATE.columns | {"age": Number.private(Missing(1))})
        return counted(table(data, schema)).ravel()

    hostile = [(1e300, -1e300), (-9.0, 0.0), (np.nan, np.nan), (1e-300, 2.0)]
    query = BinCounts(2, bins.COUNT, jnp.float32(1.0))
    bound = float(query.noise_std(adjacency))
    assert math.isclose(bound, math.sqrt(4 if adjacency is Adjacency.REPLACE_ONE else 2), rel_tol=1e-6)
    total, farthest = counts(SMALL), 0.0
    for place in range(len(SMALL)):
        others = SMALL[:place] + SMALL[place + 1 :]
        news = hostile if adjacency is Adjacency.REPLACE_ONE else [None]
        for new in news:
            moved = counts(others if new is None else [*others, new])
            farthest = max(farthest, float(np.linalg.norm(moved - total)))
    assert 0.99 * bound < farthest <= bound * (1 + 1e-6)


# ----------------------------------------------------------------------------------------------------------- choice
def histogram(values):
    return np.bincount(bins.places(np.asarray(values, float)), minlength=bins.COUNT).astype(float)


def test_bounds_hold_most_cells_whatever_a_few_of_them_say():
    random = np.random.default_rng(0)
    values = np.concatenate([random.uniform(17, 90, 5000), [1e12] * 40, [-3e5] * 40])
    for noise_std in (0.01, 1.0, 30.0):
        counts = histogram(values) + random.normal(0, noise_std, bins.COUNT)
        assert choose(counts, noise_std, len(values)) == (16.0, 128.0)


@pytest.mark.slow
def test_noise_alone_widens_bounds_as_seldom_as_said():
    random, tries, columns = np.random.default_rng(0), 500, 3
    wide = 0
    for _ in range(tries):
        noisy = np.concatenate([histogram([3.0] * 5000)] * columns) + random.normal(0, 20.0, columns * bins.COUNT)
        chosen = [choose(part, 20.0, 100, columns) for part in noisy.reshape(columns, -1)]
        wide += any(low < 1.0 or high > 8.0 for low, high in chosen)  # by more than the next bin
    assert wide < tries * FALSE_ALARM * 2.2  # 6 standard deviations above what is expected


def test_cells_in_many_small_bins_are_found_together():
    random = np.random.default_rng(0)
    spread = np.concatenate([random.lognormal(3, 1, 800), -random.lognormal(3, 1, 800)])
    bounds = [choose(histogram(spread) + random.normal(0, 50.0, bins.COUNT), 50.0, 1600) for _ in range(20)]
    assert sum(low <= -16.0 and 32.0 <= high <= 256.0 for low, high in bounds) >= 15
    assert min(low for low, _ in bounds) >= -512.0


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ([0.0] * 900 + [5.0] * 5, (0.0, 8.0)),  # nothing but zero is above the noise: the largest bin beside it
        ([7.0] * 12, (4.0, 8.0)),  # nothing is: the largest
        ([-1.0] * 900, (-1.0, -0.5)),
        ([0.0] * 500 + [1.0] * 400, (0.0, 1.0)),
        ([-5.0] * 500 + [300.0] * 400, (-8.0, 512.0)),
    ],
)
def test_bounds_are_never_empty(values, bounds):
    assert choose(histogram(values), 5.0, 1000) == bounds
    assert choose(np.zeros(bins.COUNT), 5.0, 1000)[0] < choose(np.zeros(bins.COUNT), 5.0, 1000)[1]


# ------------------------------------------------------------------------------------------------- rows once bought
def test_rows_are_those_that_the_schema_with_its_bounds_encodes():
    data = raw()
    read = table(data)
    schema, rows = read.bounded({"pay": (-64.0, 32.0), "age": (16.0, 128.0)})
    columns = {name: data[name] for name in PRIVATE.names}
    again = read_rows(columns, Encoding(schema), "null")
    for first, second in zip((rows.x, rows.y, rows.mask), (again.x, again.y, again.mask), strict=True):
        np.testing.assert_array_equal(first, second)


# ----------------------------------------------------------------------------------------------------------- budget
def planned(accountant=None, unit=None, protector="noisygd", share=SHARE, budget=BUDGET):
    read = table()
    schema = dataclasses.replace(PRIVATE, unit=unit)
    named = admit(protector, budget, Logistic(), accountant, schema=schema)
    run = plan_run(read.rows, named, budget, Logistic(), schema=schema, share=share, key=jax.random.key(0))
    return read, run, Purchase.plan(read, share, run, jax.random.key(0))


@pytest.mark.slow(but=["rows, gdp"])
@pytest.mark.parametrize(
    ("accountant", "unit"), [("gdp", None), ("rdp", Unit("person", 3))], ids=["rows, gdp", "units, rdp"]
)
def test_the_share_pays_for_the_counts_and_the_run_has_the_rest(accountant, unit):
    read, run, purchase = planned(accountant, unit)
    bounds, bought = purchase.buy(read.binned(SCALE))
    assert [(row.step, row.query, row.mechanism) for row in bought] == [(0, "bin_counts", "gaussian")]
    cost = run.filter.spent(bought)
    assert 0.99 * SHARE * run.filter.limit < cost <= SHARE * run.filter.limit
    assert cost + float(run.setup.cap) <= run.filter.limit
    assert math.isclose(float(run.setup.price_list.budget), (1 - SHARE) * run.filter.limit, rel_tol=1e-6)
    assert set(bounds) == {"pay", "age"}


def test_planted_a_run_that_forgets_what_was_bought_is_caught_by_the_check_after_it():
    """The run asks for the whole budget; its trace with the purchase in front costs more than the cap."""
    unreserved = plan_run(table().rows, admit("noisygd", BUDGET, Logistic()), BUDGET, Logistic())
    noise = 1 / math.sqrt(unreserved.filter.limit * SHARE)
    bought = [l2p.privacy.Answered(0, "gaussian", noise)]
    rest = [l2p.privacy.Answered(1, "gaussian", 1 / math.sqrt(float(unreserved.setup.price_list.budget)))]
    assert Filter("gdp", BUDGET).certify(rest, adaptive=True) == BUDGET.epsilon
    with pytest.raises(RuntimeError, match="does not hold"):
        Filter("gdp", BUDGET).certify(bought + rest, adaptive=True)


@pytest.mark.parametrize(("protector", "accountant"), [("objpert", None), ("dpsgd", "pld"), ("noisygd", "moments")])
def test_accountants_of_one_query_or_of_fixed_noise_are_refused_before_a_row_is_read(protector, accountant):
    class Untouched(dict):
        def __getitem__(self, name):
            raise AssertionError("a column was read")

    with pytest.raises(InputError, match="has no theorem for a run that follows another query"):
        l2p.private_train(Untouched(age=[1], y=[1]), protector, BUDGET, schema=PRIVATE, accountant=accountant)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, math.nan, "much"])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(InputError, match="choose a number between 0 and 1"):
        l2p.private_train(raw(), "noisygd", BUDGET, schema=PRIVATE, bounds_share=share)


def test_a_share_for_bounds_that_are_declared_is_refused():
    declared = PRIVATE.with_bounds({"pay": (0, 9), "age": (0, 9)})
    with pytest.raises(InputError, match="declares all of them; leave the share out"):
        l2p.private_train(raw(), "noisygd", BUDGET, schema=declared, bounds_share=0.1)


def test_the_default_is_a_twentieth_and_the_tail_a_hundredth():
    assert (SHARE, TAIL) == (0.05, 0.01)  # as docs/proofs.md says


# ------------------------------------------------------------------------------------------ the whole way, once
@pytest.mark.slow
def test_a_released_run_with_private_bounds_and_units_is_one_guarantee(tmp_path):
    """Ledger, trace, card and schema of `l2p apply` agree, and the card is priced and verified again."""
    count = 3000
    for name, seed in (("ward", 0), ("test", 1)):
        data = raw(count, seed)
        cells = zip(*(data[name].tolist() for name in data), strict=True)
        lines = [",".join(data), *(",".join("?" if cell != cell else str(cell) for cell in row) for row in cells)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    dataclasses.replace(PRIVATE, unit=Unit("person", 2)).write(tmp_path / "schema.json")
    ledger, run = str(tmp_path / "ward.ledger"), tmp_path / "run"
    budget = ["--epsilon", "1", "--delta", "1e-6"]
    assert main(["ledger", "create", ledger, "--name", "ward", *budget]) == 0
    words = ["--schema", str(tmp_path / "schema.json"), "--data", str(tmp_path / "ward.csv"), "--protector", "noisygd"]
    test = ["--test", str(tmp_path / "test.csv"), "--ledger", ledger, "--out", str(run)]
    code, text = observed(lambda: main(["apply", *words, *budget, *test, "--on-invalid", "null"]))
    assert code == 0, text

    card, schema = Card.from_json(run / "card.json"), Schema.read(run / "schema.json")
    assert schema.columns["age"].low <= 16  # noise may widen bounds, and does so once in some dozens of runs
    assert schema.columns["age"].high >= 128
    assert schema.columns["pay"].low < schema.columns["pay"].high
    assert card.unit["name"] == "person"
    assert card.unit["max_rows"] == 2
    assert card.mechanisms[0]["query"] == "bin_counts"
    assert card.num_rows == count
    filter = card.filter()
    spent = filter.spent(card.answered())
    assert 0.99 * filter.limit < spent <= filter.limit
    assert math.isclose(card.composition["counted"], spent, rel_tol=1e-9)
    card_text = " ".join((run / "card.txt").read_text().split())
    assert "differential privacy for all rows of one 'person' together, in N = 3000 lines, under zero_out" in card_text
    assert "but for those of 'pay', 'age', which were bought from the budget (bin_counts)" in card_text
    first, *_, last = (run / "trace.csv").read_text().splitlines()[1:]
    assert first.startswith("0,bin_counts,gaussian,")
    assert math.isclose(float(last.split(",")[-1]), spent / filter.limit, rel_tol=1e-4)
    assert json.loads((run / "metrics.json").read_text())["accuracy"] > 0.7
    assert main(["account", "--card", str(run / "card.json"), "--verify"]) == 0
