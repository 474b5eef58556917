"""Class weights: what a row may change is no more than without them, and what is learned follows them."""

import dataclasses
import functools
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base import struct
from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.estimators import PrivateClassifier
from l2p.models import Logistic, find_model
from l2p.oracle import Oracle, reader_of
from l2p.oracle.setup import Setup
from l2p.oracle.sums import add_quantized, exact_sum
from l2p.privacy import Adjacency, Budget, Filter, Spending, class_weights
from l2p.protectors import HAND_DESIGNED
from l2p.queries import (
    BinCounts,
    ClippedGradient,
    ClippedLoss,
    CorrectCount,
    Covariance,
    CrossMoment,
    FeatureSum,
    LengthSum,
    NoisyMinimum,
    NormalizedGradient,
    Query,
    SecondMoment,
    TargetSum,
)
from l2p.queries.selection import Selection
from l2p.release.admission import admit
from l2p.release.planned_run import plan_run
from l2p.tables.schema import Number, Schema, Target, Unit
from l2p.tables.schema.columns import Value
from l2p.tables.schema.declaring import schema_of_pair
from l2p.task.exact_sums import MARGIN, ExactSum, picked, quantize
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import HostNoise, KeyNoise
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource
from tests.canaries import observed
from tests.privacy import test_unit_prices as units

D, LINES = 3, 8
BUDGET = Budget(1.0, 1e-6)
MODEL, SOFTMAX, MLP = Logistic(), find_model("softmax:2"), find_model("mlp")
PARAMS = np.array([0.4, -0.3, 0.2, 0.1])
#: Classes 0 and 1 count .3 and 1 of a row.
WEIGHTS, SHARES = (3.0, 10.0), class_weights.shares((3.0, 10.0))


def f32(value):
    return jnp.asarray(value, jnp.float32)


IDENTITY, CLIP, NOISE = FeatureMap.identity(D), f32(0.05), f32(3.0)


def gradient(model=MODEL, clip=CLIP):
    params = PARAMS if model is MODEL else np.linspace(-0.5, 0.5, model.num_params(D))
    return ClippedGradient(model, f32(params), IDENTITY, f32(clip), NOISE)


@struct.dataclass
class OneByOne(ClippedGradient):
    """Summed as a query of somebody else's is, which says nothing of exact sums."""

    exact = Query.exact


#: Bounds so small that rows reach them.
WEIGHED = {
    "gradient": gradient(),
    "softmax": gradient(SOFTMAX),
    "mlp": gradient(MLP),
    "one by one": OneByOne(MODEL, f32(PARAMS), IDENTITY, CLIP, NOISE),
    "normalized": NormalizedGradient(MODEL, f32(PARAMS), IDENTITY, CLIP, f32(0.0), NOISE),
    "targets": TargetSum(1, NOISE),
    "classes": TargetSum(2, NOISE),
    "loss": ClippedLoss(MODEL, f32([PARAMS, -PARAMS]), CLIP, NOISE),
    "second moment": SecondMoment(D, CLIP, NOISE),
    "cross moment": CrossMoment(D, CLIP, NOISE, signed=True),
    "minimum": NoisyMinimum(MODEL, f32([PARAMS, -PARAMS]), CLIP, NOISE, "gumbel"),
}
DESCRIBE = {
    "feature sum": FeatureSum(D, CLIP, NOISE),
    "length": LengthSum(IDENTITY, CLIP, NOISE),
    "covariance": Covariance(IDENTITY, CLIP, NOISE),
    "bins": BinCounts(D, 200, NOISE),
    "correct": CorrectCount(MODEL, f32(PARAMS), NOISE),
}
EVERY_WEIGHED = pytest.mark.parametrize("query", WEIGHED.values(), ids=WEIGHED)

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


def neighbours(adjacency):
    places = [place for place, row in enumerate(TABLE) if row is not NULL]
    for place in places:
        without = TABLE[:place], TABLE[place + 1 :]
        if adjacency is Adjacency.ZERO_OUT:
            yield [*without[0], NULL, *without[1]]
        elif adjacency is Adjacency.ADD_REMOVE:
            yield [*without[0], *without[1]]
        else:
            yield from ([*without[0], other, *without[1]] for other in OTHERS)
            yield [*without[0], (*TABLE[place][:D], 1 - TABLE[place][D], 1), *without[1]]  # another label alone
    if adjacency is Adjacency.ADD_REMOVE:
        for place, other in itertools.product((0, 3, 5), OTHERS):
            yield [*TABLE[:place], other, *TABLE[place:]]


def stacked(tables):
    return Rows(*(jnp.asarray(np.stack(part)) for part in zip(*((r.x, r.y, r.mask) for r in tables), strict=True)))


_sums = jax.jit(lambda query, tables, weights: jax.lax.map(lambda rows: exact_sum(query, rows, None, weights), tables))


def in_units(query, tables, weights):
    """Exact sums in whole units i64[tables, k], and the units f64[k]."""
    with jax.enable_x64(True):
        total = _sums(query, tables, weights)
        return np.asarray(total.high, np.int64) * 2**32 + np.asarray(total.low, np.int64), np.asarray(total.unit)


ALONE = [row for row in [*TABLE, *OTHERS] if row is not NULL]


@functools.cache
def everything():
    """The table, its neighbours of all three kinds, where each kind lies, and last every row alone."""
    tables, places = [TABLE], {}
    for adjacency in Adjacency:
        more = list(neighbours(adjacency))
        places[adjacency] = slice(len(tables), len(tables) + len(more))
        tables += more
    return stacked(map(encoded, [*tables, *([row] for row in ALONE)])), places


def check_sensitivity(query, weights):
    steps, unit = in_units(query, everything()[0], weights)
    assert (unit == unit[0]).all()
    for adjacency, place in everything()[1].items():
        moved = (steps[place] - steps[0]) * unit[0]
        bound = query.bound
        if isinstance(query, Selection):
            assert np.abs(moved).max() <= float(bound)
            assert adjacency is Adjacency.REPLACE_ONE or ((moved >= 0).all(1) | (moved <= 0).all(1)).all()
        else:
            farthest = np.linalg.norm(moved, axis=1).max()
            assert farthest <= float(bound) * adjacency.sensitivity_factor * (1 + MARGIN)
        assert np.abs(moved).max() > 0.4 * float(bound)


@pytest.mark.slow(but=["gradient", "minimum"])
@EVERY_WEIGHED
def test_no_neighbour_moves_a_weighted_sum_by_more_than_the_bound(query):
    check_sensitivity(query, SHARES)


def test_planted_weights_that_are_not_divided_by_the_largest_are_caught():
    with pytest.raises(AssertionError):
        check_sensitivity(gradient(), SHARES * 10)


# ---------------------------------------------------------------------------------------------------- what is summed
def check_after_clipping(query):
    classes = np.array([row[D] for row in ALONE])
    (full, unit), (part, same_unit) = (in_units(query, everything()[0], w) for w in (SHARES * 0 + 1, SHARES))
    np.testing.assert_array_equal(unit, same_unit)
    full, part = (sums[-len(ALONE) :] * unit[-len(ALONE) :] for sums in (full, part))
    # What is left is half a unit of rounding.
    np.testing.assert_allclose(part, full * np.asarray(SHARES, np.float64)[classes][:, None], atol=1e-6)
    assert np.abs(full - part).max() > 0.1 * float(query.bound)


@EVERY_WEIGHED
def test_a_row_counts_its_share_of_what_it_counts_after_clipping(query):
    check_after_clipping(query)


@struct.dataclass
class WeighsBeforeClipping(ClippedGradient):
    def exact(self, lines):
        counted = lines.block.counted.astype(jnp.float64)

        def factor(norms):
            return jnp.minimum(counted, self.clip_norm / jnp.maximum(norms, 1e-12))

        in_full = lines.replace(block=lines.block.replace(counted=jnp.sign(counted)))
        return self.model.exact_gradient_sum(self.params, in_full.map(self.features), factor, self.bound)


def test_planted_weights_before_clipping_are_caught():
    with pytest.raises(AssertionError):
        check_after_clipping(WeighsBeforeClipping(MODEL, f32(PARAMS), IDENTITY, CLIP, NOISE))


@pytest.mark.slow(but=["second_moment"])
@pytest.mark.parametrize(
    "query", [WEIGHED["gradient"], WEIGHED["second moment"], WEIGHED["loss"]], ids=lambda q: q.name
)
def test_equal_weights_are_no_weights_bit_for_bit(query):
    for one, other in zip(
        in_units(query, everything()[0], class_weights.shares((7.0, 7.0))),
        in_units(query, everything()[0], None),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


# -------------------------------------------------------------------------------------------------------- the oracle
class Nothing(KeyNoise):
    def standard(self, distribution, shape):
        return jnp.zeros(shape)


def setup(weights=SHARES):
    made = Setup.create(MODEL, BUDGET.adjacency, Filter("rdp", BUDGET).price_list(), 100)
    return dataclasses.replace(made, class_weights=weights)


def asked(query, weights=SHARES, rows=None, noise=Nothing):
    rows = jax.tree.map(jnp.asarray, encoded(TABLE)) if rows is None else rows
    here = Oracle(
        reader_of(rows), setup(weights), Spending(f32(0), f32(1e9)), noise(jax.random.key(0)), jnp.zeros((), int)
    )
    return here, here.ask(query)


@pytest.mark.slow(but=["normalized"])
@pytest.mark.parametrize("name", ["gradient", "normalized", "loss", "second moment", "cross moment"])
def test_a_simulation_weighs_each_row_by_its_class(name):
    query, rows = WEIGHED[name], jax.tree.map(jnp.asarray, encoded(TABLE))
    one_by_one = jax.vmap(lambda x, y: query.add(query.empty(), Rows(x[None], y[None], jnp.ones(1))))
    counts = rows.mask * SHARES[rows.y.astype(int)]
    expected = counts @ jax.jit(one_by_one)(rows.x, rows.y)
    for given in (rows, ArraySource(encoded(TABLE), 2)):
        np.testing.assert_allclose(asked(query, rows=given)[1], expected, rtol=1e-4, atol=1e-7)


@pytest.mark.slow(cases=["covariance", "bins"])
@pytest.mark.parametrize("query", DESCRIBE.values(), ids=DESCRIBE)
def test_what_describes_rows_counts_all_in_full(query):
    np.testing.assert_array_equal(asked(query)[1], asked(query, weights=None)[1])


def test_every_shipped_query_is_weighed_describes_rows_or_is_refused():
    def descendants(cls):
        return {cls}.union(*map(descendants, cls.__subclasses__()))

    ours = {cls for cls in descendants(Query) if cls.__module__.startswith("l2p.") and not cls.__abstractmethods__}
    assert {cls for cls in ours if cls.additive and not cls.weighed} == set(map(type, DESCRIBE.values()))


def test_a_release_weighs_rows_in_memory_and_in_a_stream_alike():
    def total(rows):
        here = Oracle(reader_of(rows), setup(), Spending(f32(0), f32(1e9)), HostNoise([], ()), jnp.zeros((), int))
        return here._aggregate(gradient(), jnp.array(True))

    with jax.enable_x64(True):
        expected = in_units(gradient(), everything()[0], SHARES)[0][0]
        for found in (jax.jit(total)(jax.tree.map(jnp.asarray, encoded(TABLE))), total(ArraySource(encoded(TABLE), 3))):
            np.testing.assert_array_equal(np.asarray(found.high) * 2**32 + np.asarray(found.low), expected)


@pytest.mark.slow
def test_a_drawn_batch_is_weighed_by_the_classes_of_its_own_rows():
    rows = jax.tree.map(jnp.asarray, encoded(TABLE))
    with jax.enable_x64(True):
        lines = quantize(rows.x, rows.y, rows.mask)
        drawn = picked(lines, jnp.array([4, 1, 0]), jnp.array([1.0, 1.0, 0.0]))
        total = jax.jit(add_quantized)(WEIGHED["loss"], drawn, ExactSum.empty(2), SHARES).steps
    expected = in_units(WEIGHED["loss"], everything()[0], SHARES)[0][-len(ALONE) :]
    np.testing.assert_array_equal(total, expected[1] + expected[3])


def test_weights_change_neither_noise_nor_price():
    nobody = jax.tree.map(jnp.asarray, encoded([NULL]))
    (one, noised), (other, expected) = (asked(gradient(), w, nobody, KeyNoise) for w in (SHARES, None))
    np.testing.assert_array_equal(noised, expected)
    assert float(one.spending.spent) == float(other.spending.spent) > 0
    assert one.records[0].noise_multiplier == other.records[0].noise_multiplier


# ------------------------------------------------------------------------------------------------------------- units
def test_rows_of_one_person_weigh_at_most_one_each():
    weights = class_weights.shares((1.0, 4.0))
    for adjacency in Adjacency:
        steps, unit = in_units(units.GRADIENT, units.stacked(adjacency), weights)
        farthest = np.linalg.norm((steps[1:] - steps[0]) * unit[0], axis=1).max()
        most = units.sensitivity(units.GRADIENT, adjacency)
        assert 0.3 * most < farthest <= most * (1 + MARGIN + 1e-6)


def test_a_run_takes_units_and_weights_together():
    target = dataclasses.replace(WEIGHTED.target, weights=WEIGHTS)
    schema = dataclasses.replace(WEIGHTED, target=target, unit=Unit("person", 2))
    planned = plan_run(table(), admit("noisygd", BUDGET, MODEL, schema=schema), BUDGET, MODEL, schema=schema)
    assert planned.setup.rows_per_unit == 2
    np.testing.assert_array_equal(planned.setup.class_weights, SHARES)


# --------------------------------------------------------------------------------------------------------- whole runs
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


def train(schema, **changes):
    options = {"schema": schema, "key": jax.random.key(0)} | changes
    return l2p.private_train(rare(), "auto_clip", Budget(4.0, 1e-5), **options)


@pytest.fixture(scope="module")
def trained():
    return {"none": train(SCHEMA), "weighted": train(WEIGHTED)}


def recall(result):
    fresh = rare(seed=1)
    return (result.predict(fresh) == "yes")[fresh["sick"] == "yes"].mean()


def test_weights_raise_the_recall_of_a_rare_class(trained):
    assert recall(trained["none"]) < 0.1
    assert recall(trained["weighted"]) > 0.6


def test_weights_all_alike_train_the_same_model(trained):
    alike = dataclasses.replace(SCHEMA, target=Target("sick", ("no", "yes"), weights=(5, 5)))
    np.testing.assert_array_equal(train(alike).params, trained["none"].params)


def test_only_the_ratio_of_weights_matters(trained):
    scaled = dataclasses.replace(SCHEMA, target=Target("sick", ("no", "yes"), weights=(0.5, 6)))
    np.testing.assert_array_equal(train(scaled).params, trained["weighted"].params)


def test_the_card_says_that_classes_were_weighted(trained):
    said = [line for line in trained["weighted"].card.not_private if "weight" in line]
    assert len(said) == 1
    assert "public by declaration: 1 for class no, 12 for class yes" in said[0]
    assert not any("weight" in line for line in trained["none"].card.not_private)
    assert trained["weighted"].card.epsilon_certified == trained["none"].card.epsilon_certified


@pytest.mark.filterwarnings("ignore:simulation_seed is set")
def test_bounds_and_classes_take_weights_by_class(trained):
    data = rare()
    X, y = np.stack([data["a"], data["b"]], 1), data["sick"]
    options = {"bounds": (0, 1), "classes": ["no", "yes"], "class_weights": {"yes": 12, "no": 1}}
    schema = schema_of_pair((X, y), (0, 1), ["no", "yes"], class_weights={"yes": 12, "no": 1})
    assert schema.target.weights == (1.0, 12.0)
    result = l2p.private_train((X, y), "auto_clip", Budget(4.0, 1e-5), key=jax.random.key(0), **options)
    np.testing.assert_array_equal(result.params, trained["weighted"].params)
    made = PrivateClassifier(4.0, protector="auto_clip", simulation_seed=0, **options).fit(X, y)
    assert (made.predict(X) == "yes").mean() > 0.2
    assert any("12 for class yes" in line for line in made.card_.not_private)


@pytest.mark.slow
def test_apply_weighs_classes_keeps_the_schema_and_scores_all_rows_alike(tmp_path):
    WEIGHTED.write(tmp_path / "schema.json")
    for name, seed in (("ward", 0), ("test", 1)):
        rows = rare(seed=seed)
        text = "\n".join(["a,b,sick", *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))])
        (tmp_path / f"{name}.csv").write_text(text)
    args = ["apply", "--data", str(tmp_path / "ward.csv"), "--schema", str(tmp_path / "schema.json")]
    args += ["--epsilon", "4", "--delta", "1e-5", "--protector", "auto_clip", "--out", str(tmp_path / "run")]
    code, said = observed(lambda: main([*args, "--dry-run"]))
    assert code == 0, said
    assert "1 for class no, 12 for class yes" in said
    code, said = observed(lambda: main([*args, "--test", str(tmp_path / "test.csv"), "--seed", "0"]))
    assert code == 0, said
    made = l2p.load_model(tmp_path / "run")
    assert made.schema.target.weights == (1.0, 12.0)
    accuracy = (made.predict(rows) == rows["sick"]).mean()
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["accuracy"] == pytest.approx(accuracy)


# --------------------------------------------------------------------------------------------------------- refusals
BAD = {
    "too few": ((1,), "weights must be 2 numbers above 0"),
    "zero": ((1, 0), "weights must be 2 numbers above 0"),
    "negative": ((1, -1), "weights must be 2 numbers above 0"),
    "NaN": ((1, float("nan")), "weights must be 2 numbers above 0"),
    "infinite": ((1, float("inf")), "weights must be 2 numbers above 0"),
    "a text": ("12", "weights must be 2 numbers above 0"),
    "far apart": ((1, 20_000), "would be rounded to nothing"),
}


@pytest.mark.parametrize(("weights", "said"), BAD.values(), ids=BAD)
def test_what_is_no_weight_is_refused(weights, said):
    with pytest.raises(InputError, match=said):
        Target("sick", ("no", "yes"), weights=weights)


def test_a_number_to_predict_has_no_weights():
    with pytest.raises(InputError, match="but the target is a number"):
        Target("price", bounds=(0, 1), weights=(1, 2))
    with pytest.raises(InputError, match="but the target is a number"):
        schema_of_pair(pair(), (0, 1), None, (0, 1), {"no": 1})


def pair() -> tuple[np.ndarray, list[Value]]:
    return np.full((2, 1), 0.5), ["no", "yes"]


BY_CLASS = {
    "unknown": ({"no": 1, "maybe": 2}, "'maybe', which is none of the classes"),
    "left out": ({"no": 1}, "class 'yes' has no weight"),
    "balanced": ("balanced", "how frequent classes are is private"),
    "negative": ({"no": 1, "yes": -2}, "weights must be 2 numbers above 0"),
}


@pytest.mark.parametrize(("weights", "said"), BY_CLASS.values(), ids=BY_CLASS)
def test_weights_by_class_that_do_not_fit_are_refused(weights, said):
    with pytest.raises(InputError, match=said):
        l2p.private_train(pair(), "noisygd", BUDGET, bounds=(0, 1), classes=["no", "yes"], class_weights=weights)


def test_weights_without_declared_classes_quote_no_label():
    with pytest.raises(InputError, match="classes that are not declared") as refused:
        PrivateClassifier(1.0, bounds=(0, 1), class_weights={"yes": 2, "perhaps": 1}).fit(*map(np.asarray, pair()))
    assert "no'" not in str(refused.value)


@pytest.mark.parametrize("given", [{"schema": SCHEMA}, {}])
def test_weights_beside_a_schema_or_encoded_rows_are_refused(given):
    with pytest.raises(InputError, match="class_weights"):
        l2p.private_train(rare(10) if given else table(), "noisygd", BUDGET, class_weights=(1, 2), **given)


@pytest.mark.parametrize("method", sorted(HAND_DESIGNED))
def test_a_method_takes_weights_or_refuses_before_a_row_is_read(method):
    """Whatever asks for sums takes them."""
    budget = Budget(1.0, 1e-6, HAND_DESIGNED[method].adjacency or Adjacency.ZERO_OUT)
    model = "square" if method in ("adassp", "boosted_adassp", "dp_ls") else "logistic"
    check = functools.partial(admit, method, budget, model, schema=WEIGHTED, has_public=True)
    if HAND_DESIGNED[method](budget).additive:
        check()
        return
    with pytest.raises(InputError, match=r"solved on all rows at once|without noise"):
        check()
    files = {"data": "no such table.csv", "public": "nor such.csv"}
    with pytest.raises(InputError, match=r"solved on all rows at once|without noise"):
        l2p.private_train(**files, protector=method, budget=budget, schema=WEIGHTED, model=model, num_rows=200)


def test_a_solve_is_refused_by_the_oracle_before_it_is_charged():
    protector = HAND_DESIGNED["outpert"](BUDGET)
    here = Oracle(
        reader_of(jax.tree.map(jnp.asarray, encoded(TABLE))),
        setup(),
        Spending(f32(0), f32(1e9)),
        Nothing(jax.random.key(0)),
        f32(0),
    )
    params, state = protector.init(jnp.zeros(D + 1), here)
    with pytest.raises(InputError, match="solved on all rows at once"):
        protector.step(params, state, here)
    assert float(here.spending.spent) == 0


def test_a_choice_among_several_runs_refuses_weights(tmp_path):
    WEIGHTED.write(tmp_path / "schema.json")
    args = [
        "apply",
        "--data",
        "no such table.csv",
        "--schema",
        str(tmp_path / "schema.json"),
        "--out",
        str(tmp_path / "o"),
    ]
    code, said = observed(lambda: main([*args, "--epsilon", "1", "--delta", "1e-6", "--protector", "noisygd:private"]))
    assert code == 2
    assert "scores them by the share of rows whose label is predicted" in said
