"""Whole persons: what one of them with several rows may change, by brute force, and what it is charged."""

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.models import MODELS, Logistic
from l2p.oracle import Oracle, reader_of
from l2p.oracle import pricing as door
from l2p.oracle import setup as facts
from l2p.oracle.setup import Setup
from l2p.oracle.sums import exact_sum
from l2p.privacy import Adjacency, Budget, Filter, Spending
from l2p.privacy.accountants import for_runs
from l2p.privacy.cost.sampling import FullBatch, Poisson
from l2p.privacy.units import check_unit, for_units
from l2p.protectors import HAND_DESIGNED
from l2p.queries import (
    BinCounts,
    ClassMoment,
    ClippedGradient,
    ClippedLoss,
    CorrectCount,
    Covariance,
    CrossMoment,
    FeatureSum,
    GradientLengths,
    GradientNorm,
    HessianSum,
    LeastEigenvalue,
    LengthSum,
    NoisyMinimum,
    NormalizedGradient,
    Query,
    ScaledGradient,
    SecondMoment,
    TargetSum,
)
from l2p.release.admission import admit
from l2p.release.planned_run import plan_run
from l2p.release.tuning.private_tuning import private_tuning
from l2p.tables.public_data import Apart, PublicRowSet
from l2p.tables.schema import Encoding, Number, Schema, Target, Unit, read_rows
from l2p.tables.schema import rows as reading
from l2p.tables.schema.stream import streamed
from l2p.tables.schema.units import FirstRows
from l2p.task.exact_sums import MARGIN
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource
from l2p.task.task import Task

MOST, LINES, D = 2, 14, 3
MODEL, BUDGET = Logistic(), Budget(1.0, 1e-6)
SCHEMA = Schema({name: Number(0, 1) for name in "abc"}, Target("y", (0, 1)), Unit("person", MOST))
PARAMS = np.array([0.4, -0.3, 0.2, 0.1])


def f32(value):
    return jnp.asarray(value, jnp.float32)


IDENTITY, CLIP, NOISE = FeatureMap.identity(D), f32(0.05), f32(3.0)
GRADIENT = ClippedGradient(MODEL, f32(PARAMS), IDENTITY, CLIP, NOISE)
#: Bounds so small that every row of `CELLS` reaches them.
SUMS = [
    GRADIENT,
    NormalizedGradient(MODEL, f32(PARAMS), IDENTITY, CLIP, f32(0.0), NOISE),
    ScaledGradient(MODEL, f32(PARAMS), IDENTITY, CLIP, NOISE, f32([2.0, 1.0, 0.5, 1.0])),
    FeatureSum(D, CLIP, NOISE),
    CorrectCount(MODEL, f32(PARAMS), NOISE),
    ClippedLoss(MODEL, f32([PARAMS, -PARAMS]), CLIP, NOISE),
    SecondMoment(D, CLIP, NOISE),
    Covariance(IDENTITY, CLIP, NOISE),
    CrossMoment(D, CLIP, NOISE),
    LengthSum(IDENTITY, CLIP, NOISE),
    GradientLengths(MODEL, f32(PARAMS), IDENTITY, f32(1e-3), CLIP, NOISE),
    TargetSum(2, NOISE),
    BinCounts(D, 200, NOISE),
    ClassMoment(D, 2, CLIP, NOISE),
    HessianSum(MODEL, f32(PARAMS), CLIP, NOISE),
]
OTHERS = [
    GradientNorm(GRADIENT, NOISE),
    LeastEigenvalue(SecondMoment(D, CLIP, NOISE), NOISE),
    NoisyMinimum(MODEL, f32([PARAMS, -PARAMS]), CLIP, NOISE, "gumbel"),
]
EVERY_SUM = pytest.mark.parametrize("query", SUMS, ids=lambda query: query.name)

#: (person, a, b, c, y): one with more rows than count, all alike; one with as many, one with one, one without a name.
CELLS = [
    *[("u", 0.9, 0.1, 0.8, 1)] * 4,
    ("v", 0.2, 0.7, 0.3, 1),
    ("w", 0.5, 0.4, 0.6, 0),
    (None, 0.3, 0.3, 0.9, 1),
    ("v", 0.8, 0.8, 0.2, 0),
]
TABLE = [CELLS[place] for place in (4, 0, 5, 1, 2, 6, 7, 3)]
NOBODY = (None, 0.0, 0.0, 0.0, 0)


def encoded(table):
    """Rows f32[LINES, ...] of a raw table, through the reader, filled up with null rows."""
    columns = dict(zip(("person", "a", "b", "c", "y"), map(list, zip(*table, strict=True)), strict=True))
    rows = read_rows(columns, Encoding(SCHEMA), unit=SCHEMA.unit)
    short = LINES - len(table)
    return [np.pad(leaf, [(0, short)] + [(0, 0)] * (leaf.ndim - 1)) for leaf in (rows.x, rows.y, rows.mask)]


def neighbours(adjacency):
    """Tables that differ from `TABLE` in all rows of one person, however many."""
    new = [("z", 0.1, 0.9, 0.2, 0), ("z", 0.05, 0.95, 0.1, 0), ("z", 0.9, 0.1, 0.1, 1), ("z", 0.1, 0.8, 0.2, 0)]
    for person in "uvw":
        places = [place for place, row in enumerate(TABLE) if row[0] == person]
        if adjacency is Adjacency.ZERO_OUT:
            yield [NOBODY if row[0] == person else row for row in TABLE]
        elif adjacency is Adjacency.ADD_REMOVE:
            yield [row for row in TABLE if row[0] != person]
        else:
            replacements = dict(zip(places, new, strict=False))
            yield [replacements.get(place, row) for place, row in enumerate(TABLE)]
    if adjacency is Adjacency.ADD_REMOVE:
        for ends in itertools.combinations_with_replacement((0, 3, 8), 3):
            table = list(TABLE)
            for end, row in zip(reversed(ends), new, strict=False):
                table.insert(end, row)
            yield table


@functools.cache
def stacked(adjacency):
    """All neighbours, the table itself first: Rows with a leading axis."""
    parts = zip(*map(encoded, [TABLE, *neighbours(adjacency)]), strict=True)
    return Rows(*(jnp.asarray(np.stack(part)) for part in parts))


_sums = jax.jit(lambda query, tables: jax.lax.map(lambda rows: exact_sum(query, rows), tables))


def farthest(query, adjacency):
    """Largest distance of a neighbour's sum from the table's, in exact whole-number arithmetic."""
    with jax.enable_x64(True):
        total = _sums(query, stacked(adjacency))
        steps = np.asarray(total.high, np.int64) * 2**32 + np.asarray(total.low, np.int64)
        unit = np.asarray(total.unit)
    assert (unit == unit[0]).all()
    return float(np.linalg.norm((steps[1:] - steps[0]) * unit[0], axis=1).max())


def sensitivity(query, adjacency):
    """Sensitivity to a person, as noise is scaled: the noise of multiplier 1 over the sensitivity to a row, times k."""
    oracle = Oracle(
        reader_of(empty()), setup(adjacency), Spending(f32(0), f32(1e9)), Ones(jax.random.key(0)), jnp.zeros((), int)
    )
    noised = oracle.ask(query.replace(noise_multiplier=f32(1.0)))
    return MOST * float(np.max(noised))


class Ones(KeyNoise):
    """Noise of one standard deviation in every entry."""

    def standard(self, distribution, shape):
        return jnp.ones(shape)


def empty():
    return Rows(jnp.zeros((4, D)), jnp.zeros(4), jnp.zeros(4))


def setup(adjacency=Adjacency.ZERO_OUT, most=MOST, name="gdp"):
    budget = Budget(1.0, 1e-6, adjacency)
    return Setup.create(MODEL, adjacency, Filter(name, budget).price_list(), 100, rows_per_unit=most)


def check_sensitivity(query, adjacency):
    # A second moment is noised in folded form, in which no entry has more noise than this.
    assert farthest(query, adjacency) <= sensitivity(query, adjacency) * (1 + MARGIN + 1e-6)


@pytest.mark.long(
    cases=[
        "scaled_gradient-*",
        "bin_counts-zero_out",
        "clipped_loss-zero_out",
        "normalized_gradient-*",
        "clipped_gradient-zero_out",
    ]
)
@pytest.mark.slow(but=["class_moment-*", "hessian-*", "row_length-*"])
@pytest.mark.parametrize("adjacency", Adjacency)
@EVERY_SUM
def test_no_person_moves_an_exact_sum_by_more_than_noise_is_scaled_to(query, adjacency):
    check_sensitivity(query, adjacency)


@EVERY_SUM
def test_a_person_moves_a_sum_as_far_as_k_rows_can(query):
    """A bound of one row, or of k - 1, would not pass."""
    assert farthest(query, Adjacency.ZERO_OUT) > 0.7 * sensitivity(query, Adjacency.ZERO_OUT)


def test_every_query_is_a_plain_sum_here_or_refuses():
    def descendants(cls):
        return {cls}.union(*map(descendants, cls.__subclasses__()))

    shipped = {cls for cls in descendants(Query) if cls.__module__.startswith("l2p.")}
    assert {cls for cls in shipped if cls.is_plain_sum} == {type(query) for query in SUMS}


@pytest.mark.parametrize("query", OTHERS, ids=lambda query: query.name)
def test_a_query_whose_proof_is_about_one_row_is_refused_before_it_is_charged(query):
    here = Oracle(reader_of(empty()), setup(), Spending(f32(0), f32(1e9)), Ones(jax.random.key(0)), jnp.zeros((), int))
    with pytest.raises(InputError, match="proved for single rows"):
        here.ask(query)
    assert float(here.spending.spent) == 0


def keep_all(self, cells, valid):
    return valid


def test_planted_a_rule_that_keeps_every_row_is_caught(monkeypatch):
    monkeypatch.setattr(FirstRows, "keep", keep_all)
    stacked.cache_clear()
    try:
        with pytest.raises(AssertionError):
            check_sensitivity(GRADIENT, Adjacency.ZERO_OUT)
    finally:
        stacked.cache_clear()


def test_planted_a_rule_that_looks_at_other_peoples_rows_is_caught(monkeypatch):
    def first_lines(self, cells, valid):  # the first rows of the table, whosoever they are
        return valid & (np.cumsum([cell is not None for cell in cells.tolist()]) <= 5)

    monkeypatch.setattr(FirstRows, "keep", first_lines)
    stacked.cache_clear()
    try:
        with pytest.raises(AssertionError):
            list(map(functools.partial(check_sensitivity, BinCounts(D, 200, NOISE)), Adjacency))
    finally:
        stacked.cache_clear()


# ----------------------------------------------------------------------------------------------------------- prices
def check_charged(most, name="gdp"):
    """The cost of a query is that of noise divided by the sensitivity to a unit, and the trace says so."""
    here = setup(most=most, name=name)
    oracle = Oracle(reader_of(empty()), here, Spending(f32(0), f32(1e9)), Ones(jax.random.key(0)), jnp.zeros((), int))
    answer = oracle.ask(FeatureSum(D, f32(1.0), f32(60.0)))
    noise_std = float(answer[0])
    record = oracle.records[0]
    spent = Filter(name, BUDGET).spent([l2p.privacy.Answered(0, "gaussian", float(record.noise_multiplier))])
    assert float(record.noise_multiplier) <= noise_std / most
    assert math.isclose(record.noise_multiplier, noise_std / most, rel_tol=1e-6)
    assert spent <= float(oracle.spending.spent) <= spent * (1 + 1e-5)


@pytest.mark.parametrize("most", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("name", ["gdp", "zcdp", "rdp"])
def test_noise_over_the_sensitivity_to_a_unit_is_what_is_charged_and_traced(most, name):
    check_charged(most, name)


def test_planted_prices_that_ignore_k_are_caught(monkeypatch):
    monkeypatch.setattr(facts, "for_units", lambda price_list, most: price_list)
    with pytest.raises(AssertionError):
        check_charged(3)
    monkeypatch.setattr(door, "over_unit", lambda multiplier, most: multiplier)
    with pytest.raises(AssertionError):
        check_charged(3)


def test_planning_sees_the_noise_of_units():
    rows = Setup.create(MODEL, Adjacency.ZERO_OUT, Filter("gdp", BUDGET).price_list(), 100)
    assert math.isclose(setup(most=5).log_signal, rows.log_signal - math.log(5), rel_tol=1e-5)


# --------------------------------------------------------------------------------------------------------- refusals
#: Methods that ask for Gaussian sums of all rows alone, under an accountant that adds them up.
TAKES_UNITS = {"adadp", "auto_clip", "dp_fc", "dp_ls", "dp_newton", "hyfree", "linear_scaling", "noisygd"}
TAKES_UNITS |= {"noisygd_mean", "pass_glm", "dp_adam", "dp_adamw", "dp_adambc", "dp_adam_scaled", "disk"}
TAKES_UNITS |= {"noisygd_pulled", "dp_adam_pulled"}
#: Likewise; all but the last learn from public rows, which are nobody's units.
TAKES_UNITS |= {
    "adamix",
    "adamix_projected",
    "adamix_theory",
    "ngd",
    "pda_dpmd",
    "public_moments",
    "ppgd",
    "fully_private",
}


def table(count=200):
    random = np.random.default_rng(0)
    x = random.random((count, D)).astype(np.float32)
    return Rows(x, (x[:, 0] > 0.5).astype(np.float32), np.ones(count, np.float32))


@pytest.mark.parametrize("method", sorted(HAND_DESIGNED))
def test_a_method_takes_units_or_says_that_its_proof_is_about_rows(method):
    budget = Budget(1.0, 1e-6, HAND_DESIGNED[method].adjacency or Adjacency.ZERO_OUT)
    model = MODELS["square" if method in ("adassp", "boosted_adassp", "dp_ls") else "logistic"]
    public = table(20)
    public = public.replace(x=public.x / np.linalg.norm(public.x, axis=1, keepdims=True))
    needs_public = HAND_DESIGNED[method](budget, model, 200).needs_public
    task = Task(table(), public=public if needs_public else None)
    plan = lambda: plan_run(  # noqa: E731
        task,
        admit(method, budget, model, schema=SCHEMA, has_public=needs_public),
        budget,
        model,
        num_rows=200,
        schema=SCHEMA,
    )
    if method in TAKES_UNITS:
        assert plan().setup.rows_per_unit == MOST
    else:
        phrase = "without noise" if method in ("nonprivate", "no_features") else "single rows"
        with pytest.raises(InputError, match=phrase):
            plan()


def test_batches_and_accountants_of_one_row_are_refused():
    with pytest.raises(InputError, match="amplifies is proved for single rows"):
        for_units(Filter("rdp", BUDGET, Poisson(0.1), 10).price_list(), 2)
    for accountant in for_runs():
        if not (accountant.adaptive and accountant.composes):
            with pytest.raises(InputError, match="is used here for single rows"):
                check_unit(accountant.name, FullBatch(), 2)


def test_a_reader_that_forgets_the_unit_is_not_what_training_calls(monkeypatch):
    """`private_train` hands the unit to the reader: without it four rows of u would count."""
    units = []
    monkeypatch.setattr(reading, "FirstRows", lambda unit, words: units.append(unit) or FirstRows(unit, words))
    data = dict(zip(("person", "a", "b", "c", "y"), map(list, zip(*TABLE, strict=True)), strict=True))
    with pytest.raises(InputError, match="not below 1/N"):  # after the table was read, before anything is asked
        l2p.private_train(data, "noisygd", Budget(1.0, 0.5), schema=SCHEMA)
    assert units == [SCHEMA.unit]


def raw_table(count=600):
    """Two rows of every person, both classes."""
    column = np.arange(count)
    return {
        "person": (column // 2).astype(str),
        **dict.fromkeys("abc", column % 7 / 7),
        "y": column % 2,
    }


WEIGHED = dataclasses.replace(SCHEMA, unit=None, target=Target("y", (0, 1), weights=(1.0, 0.5)))


@pytest.mark.parametrize("declared", [SCHEMA, WEIGHED], ids=["units", "weights"])
def test_a_stream_is_not_taken_for_single_rows_that_count_alike_where_its_schema_says_otherwise(declared):
    """The noise would be for one row, inside a `Task` and in a choice among runs, and rows of one person are kept or
    not by what her other rows are."""
    table = {name: cells for name, cells in raw_table().items() if declared.unit or name != "person"}
    with streamed(table, declared) as rows:
        for train in (
            lambda: l2p.private_train(Task(rows), "noisygd", BUDGET),
            lambda: l2p.private_train(Task(Apart(rows, PublicRowSet(frozenset()))), "noisygd", BUDGET),
            lambda: private_tuning(rows, ["noisygd"], BUDGET),
        ):
            with pytest.raises(InputError, match="would protect single rows that all count alike"):
                train()


def test_a_source_that_does_not_say_that_it_caps_units_protects_none():
    class All(ArraySource):
        schema = SCHEMA

    x = np.full((600, 3), 0.5, np.float32)
    rows = Rows(x, np.arange(600, dtype=np.float32) % 2, np.ones(600, np.float32))
    with pytest.raises(InputError, match="this source may give more rows of one than count"):
        l2p.private_train(All(rows, 200), "noisygd", BUDGET)
    with streamed(raw_table(), SCHEMA) as capped:
        assert l2p.private_train(capped, "noisygd", BUDGET).card.unit["max_rows"] == MOST


# ----------------------------------------------------------------------------------------------------------- ledger
def test_a_ledger_counts_rows_or_one_kind_of_unit(tmp_path):
    from l2p.privacy.ledger.ledger import Cost, Ledger

    for first, second in [(None, "person"), ("person", None), ("a; protects all rows of one b", "b")]:
        ledger = Ledger.create(tmp_path / f"{first}{second}.ledger", "ward", BUDGET, "gdp", Cost(1.0))
        held = ledger.reserve(Cost(0.1), "a run", unit=first)
        ledger.settle(ledger.reserve(Cost(0.1), "another", unit=first), Cost(0.05))
        with pytest.raises(InputError, match="does not add up; keep a ledger for each"):
            ledger.reserve(Cost(0.1), "a run", unit=second)
        assert math.isclose(ledger.spent().amount, 0.15)
        ledger.release(held, "never started")
