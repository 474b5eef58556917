"""Every field of every query outside the range that its proof is for."""

import dataclasses
import importlib
import inspect
import math
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p import queries
from l2p.base.errors import InputError
from l2p.models import Hinge, HuberSVM, Quadratic, Square
from l2p.oracle import Oracle, reader_of
from l2p.oracle.setup import Setup
from l2p.oracle.sums import exact_sum
from l2p.privacy import Adjacency, Filter, Spending
from l2p.privacy.sensitivity.passes import Passes
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.by_hand.private_meta import MetaDescent
from l2p.queries import (
    ApproximateMinimum,
    Descent,
    EngineResult,
    FewestErrors,
    Minimizer,
    NoisyPasses,
    OnePass,
    PassDescent,
    PerturbedMinimum,
    Query,
    SampledPasses,
    SecondMoment,
)
from l2p.queries.selection import Selection
from l2p.task.exact_sums import MARGIN
from l2p.task.noise import KeyNoise
from tests.queries.conformance import (
    BUDGET,
    CLIP,
    COUNT,
    LINE,
    MAP,
    MODEL,
    NOISE,
    NOT_NEGATIVE,
    NOTHING,
    PARAMS,
    POINT,
    POSITIVE,
    QUERIES,
    ROWS,
    TENSORS,
    TURNED,
    WIDTH,
    D,
    Harmless,
    N,
    Raises,
    Refused,
    check_sensitivity,
    f32,
    gradient,
    in_units,
    line_search,
    losses,
    maps,
    minimum,
    neighbours,
    normalized,
    stacked_exact,
    table,
)

BASIC = Filter("basic", BUDGET).price_list()
SHARE = Refused((0.0, 1.0, -0.2, 1.2, *NOTHING))
ROWS_N = Refused((0.0, 0.5, -3.0, *NOTHING))
PUBLIC_POINT = Refused(tuple(f32(PARAMS).at[1].set(bad) for bad in NOTHING))
#: Models with an unbounded gradient, with unbounded curvature, and with an invalid width of the kink.
SMOOTH = Refused((Square(), Hinge(), HuberSVM(-0.1)))
POINTS = Harmless(tuple(f32(LINE).at[1, 1].set(bad) for bad in NOTHING))
KIND = Raises(("laplace", "gaussian"), InputError)

descent = Descent(MODEL, f32(PARAMS), f32(CLIP), f32(0.1), f32(1.0), f32(N), f32(NOISE))
perturbed = PerturbedMinimum(
    MODEL, f32(PARAMS), f32(CLIP), f32(0.1), f32(N), f32(0.4), BASIC.log_delta, BASIC.least * (1 + 1e-6)
)
approximate = ApproximateMinimum(perturbed, f32(0.1), f32(1e-3), perturbed.noise_multiplier)
drawn = PassDescent(
    MODEL, Passes(N, 0.25, order="with_replacement"), f32(PARAMS), perturbed.noise_multiplier, BASIC.log_delta,
    mechanism="objective", tail=1e-9,
)  # fmt: skip
noisy = NoisyPasses(MODEL, Passes(N, 0.25, rule="inverse_power"), f32(PARAMS), f32(NOISE))
sampled = SampledPasses(MODEL, Passes(N, 0.25), f32(PARAMS), BASIC.log_delta, perturbed.noise_multiplier, in_ball=False)
PROBLEMS = Raises((-1, 0, 2.5, 3), InputError)
#: A plan is checked when it is made; see privacy/test_passes.py.
PLAN = Harmless()

one_pass = OnePass(MODEL, f32(PARAMS), table(3, 5), f32(CLIP), f32(2.0), f32(1.0), f32(N), f32(NOISE))

PASSES = {
    "loss": SMOOTH, "plan": PLAN, "start": PUBLIC_POINT, "log_delta": Refused((0.0, 0.1, -20.5, *NOTHING)),
    "num_classes": PROBLEMS, "norm_bound": Refused((0, -1)), "mechanism": Raises(("laplace",), InputError),
    "tail": Raises((0,), InputError), "snapshots": Raises((True,), InputError),
}  # fmt: skip
#: Every field of every query, except `noise_multiplier`; those of a query with a row are there.
RANGES: list[tuple[Query, dict[str, Refused | Raises | Harmless]]] = [
    (gradient(), {"clip_norm": POSITIVE, "params": POINT, "features": maps(MAP), "model": Harmless((TENSORS,))}),
    (normalized(0.01), {
        "clip_norm": POSITIVE, "stability": Refused((-1e-3, np.nan, -np.inf)), "params": POINT, "features": maps(MAP),
        "model": Harmless((TENSORS,)),
    }),
    (QUERIES["gradient norm"], {"gradient": Refused(tuple(map(gradient, POSITIVE.values)))}),
    (QUERIES["bin counts"], {"num_columns": WIDTH, "num_bins": Harmless((1, 3, 300))}),
    (losses(), {"clip_norm": POSITIVE, "candidates": POINTS, "model": Harmless()}),
    (QUERIES["second moment, mapped"], {"norm_bound": POSITIVE, "num_features": WIDTH, "features": maps(TURNED)}),
    (QUERIES["covariance"], {"norm_bound": POSITIVE, "features": maps(TURNED)}),
    (QUERIES["class counts"], {"num_classes": Raises((-1, 0, 2.5))}),
    (QUERIES["least eigenvalue"], {
        "moment": Refused(tuple(SecondMoment(D, f32(bad), f32(NOISE)) for bad in POSITIVE.values)),
    }),
    (QUERIES["cross moment"], {"norm_bound": POSITIVE, "num_features": WIDTH, "signed": Harmless((True,))}),
    (QUERIES["class moment"], {
        "norm_bound": POSITIVE, "num_features": WIDTH, "num_classes": Raises((-1, 0, 1, 2.5)),
    }),
    (QUERIES["hessian"], {
        "model": Refused((Hinge(), HuberSVM(-0.1))), "norm_bound": POSITIVE, "params": POINT,
    }),
    (minimum("gumbel", LINE), {
        "clip_norm": POSITIVE, "candidates": POINTS, "mechanism": KIND, "model": Harmless(),
    }),
    (FewestErrors(MODEL, f32(LINE), f32(NOISE)), {"candidates": POINTS, "mechanism": KIND, "model": Harmless()}),
    (line_search("gumbel"), {
        "clip_norm": POSITIVE, "params": POINT, "direction": POINT, "mechanism": KIND, "model": Harmless(),
        "sizes": Harmless(tuple(f32([bad, 0.0, 0.2, 0.4]) for bad in NOTHING)),
    }),
    (descent, {
        "model": SMOOTH, "start": PUBLIC_POINT, "norm_bound": POSITIVE, "ridge": NOT_NEGATIVE, "num_rows": ROWS_N,
        "step_size": Refused((0.0, -1.0, 2.0 + 1e-6, *NOTHING)), "num_iterations": COUNT,
    }),
    (perturbed, {
        "model": SMOOTH, "start": PUBLIC_POINT, "norm_bound": POSITIVE, "ridge": NOT_NEGATIVE, "num_rows": ROWS_N,
        "share": SHARE, "log_delta": Refused((0.0, 0.1, *NOTHING)), "published": Harmless(),
    }),
    (approximate, {
        "minimum": Refused((perturbed.replace(share=f32(1.5)), perturbed.replace(ridge=f32(-1.0)))),
        "output_share": SHARE, "tolerance": NOT_NEGATIVE,
    }),
    (drawn, PASSES),
    (EngineResult(**{field.name: getattr(drawn, field.name) for field in dataclasses.fields(drawn)}), PASSES),
    (noisy, {
        "loss": SMOOTH, "plan": PLAN, "start": PUBLIC_POINT, "num_classes": PROBLEMS, "norm_bound": Refused((0, -1)),
        "mechanism": Raises(("laplace", "objective"), InputError),
    }),
    (sampled, {
        "loss": SMOOTH, "plan": PLAN, "start": PUBLIC_POINT, "log_delta": Refused((0.0, 0.1, *NOTHING)),
        "num_classes": PROBLEMS, "norm_bound": Refused((0, -1)), "in_ball": Raises((True,), InputError),
    }),
    (MetaDescent(HAND_DESIGNED["noisygd"](BUDGET), None, f32(CLIP), f32(0.1), f32(NOISE), 2, 3), {
        # Simulated runs clip gradients after any feature map.
        "protector": Harmless(), "setup": Harmless(), "learning_rate": Harmless(), "clip_norm": POSITIVE,
        "num_outer": COUNT, "num_blocks": COUNT,
    }),
    (one_pass, {
        "model": Refused((Hinge(), HuberSVM(-0.1), Quadratic())), "start": PUBLIC_POINT, "public": Harmless(),
        "norm_bound": POSITIVE, "radius": POSITIVE, "num_rows": ROWS_N,
        "step_size": Refused((0.0, -1.0, 2.0 + 1e-6, *NOTHING)),
    }),
    # No finite budget pays for it.
    (Minimizer(MODEL, f32(PARAMS), f32(NOISE)), {"model": Harmless(), "start": Harmless(), "features": Harmless()}),
    *((row.query, row.ranges) for row in ROWS.values() if row.ranges),
]  # fmt: skip


def rows_of(kind):
    """(query, field, value) of every row of the table of this kind."""
    cases = [
        pytest.param(query, field, value, id=f"{type(query).__name__}-{field}-{index}")
        for query, fields in RANGES
        for field, row in fields.items()
        if isinstance(row, kind)
        for index, value in enumerate(row.values)
    ]
    assert cases
    return cases


def moved(query, field, value):
    return query.replace(**{field: f32(value) if isinstance(value, float) else value})


@jax.jit
def answered_at_all(query):
    """True if the oracle grants it, the charge, and the answer, which is 1 if granted."""
    name = {"objective": "basic", "gaussian": "gdp"}.get(query.event().mechanism, "rdp")
    setup = Setup.create(MODEL, BUDGET.adjacency, Filter(name, BUDGET).price_list(), N)
    spending = Spending(f32(0), f32(1e6))  # room for all that has a price
    oracle = Oracle(reader_of(table(pad=0)), setup, spending, KeyNoise(jax.random.key(0)), jnp.zeros((), int))
    answer = oracle.ask(query)
    return oracle.records[0].granted, oracle.spending.spent, answer


@pytest.fixture
def door(monkeypatch):
    """The oracle without the queries' own computations, which are tested elsewhere."""
    monkeypatch.setattr(Oracle, "_answer", lambda self, query, granted: jnp.ones(()))
    return answered_at_all


def test_every_query_can_be_had_from_the_face_of_its_room():
    files = [importlib.import_module(file.name) for file in pkgutil.iter_modules(queries.__path__, "l2p.queries.")]
    classes = {
        cls
        for file in files
        for cls in list(vars(file).values())
        if inspect.isclass(cls) and issubclass(cls, Query) and not inspect.isabstract(cls)
    }
    assert {cls.__name__ for cls in classes} <= set(queries.__all__)
    assert all(getattr(queries, cls.__name__) is cls for cls in classes)


def test_every_field_of_every_query_has_its_row():
    def descendants(cls):
        return {cls}.union(*map(descendants, cls.__subclasses__()))

    shipped = {cls for cls in descendants(Query) if cls.__module__.startswith("l2p.") and not inspect.isabstract(cls)}
    assert {type(query) for query, _ in RANGES} == shipped
    for query, fields in RANGES:
        named = {field.name for field in dataclasses.fields(query)}
        assert fields.keys() | {"noise_multiplier"} == named, type(query)


@pytest.mark.slow(cases=["Descent-model-*", "PerturbedMinimum-model-0"])
@pytest.mark.parametrize(("query", "field", "value"), rows_of(Refused))
def test_a_field_outside_the_range_of_its_proof_has_no_bound_and_is_refused_at_no_charge(door, query, field, value):
    granted, spent, answer = door(query)
    assert (bool(granted), float(answer)) == (True, 1.0)
    assert float(spent) > 0
    bad = moved(query, field, value)
    assert math.isnan(float(bad.bound))
    granted, spent, answer = door(bad)
    assert (bool(granted), float(spent), float(answer)) == (False, 0.0, 0.0)


@pytest.mark.parametrize("query", [descent, perturbed, approximate, one_pass], ids=lambda query: query.name)
def test_a_solve_is_refused_for_a_table_of_more_rows_than_its_proof_divides_by(door, query):
    for count, allowed in ((N, True), (N - 1, False)):
        inner = query.minimum if query is approximate else query
        sized = inner.replace(num_rows=f32(count))
        granted, spent, _ = door(query.replace(minimum=sized) if query is approximate else sized)
        assert (bool(granted), float(spent) > 0) == (allowed, allowed)


@pytest.mark.parametrize("noise", [0.0, -1.0, *NOTHING])
@pytest.mark.parametrize("query", [query for query, _ in RANGES], ids=lambda query: type(query).__name__)
def test_noise_that_is_none_is_refused_at_no_charge(door, query, noise):
    granted, spent, _ = door(query.replace(noise_multiplier=f32(noise)))
    assert (bool(granted), float(spent)) == (False, 0.0)


@pytest.mark.parametrize(("query", "field", "value"), rows_of(Raises))
def test_a_static_field_that_means_nothing_raises_before_anything_runs(query, field, value):
    row = dict(next(fields for kind, fields in RANGES if kind is query))[field]

    def ask(rows):
        setup = Setup.create(MODEL, BUDGET.adjacency, Filter("rdp", BUDGET).price_list(), N)
        bad = moved(query, field, value)
        bad = bad.replace(setup=setup) if isinstance(query, MetaDescent) else bad
        spending = Spending(f32(0), setup.cap)
        Oracle(reader_of(rows), setup, spending, KeyNoise(jax.random.key(0)), jnp.zeros((), int)).ask(bad)
        if query.additive:
            with jax.enable_x64(True):
                exact_sum(bad, rows)  # as a release adds up

    with pytest.raises(row.error):
        jax.eval_shape(ask, table(pad=0))


@pytest.mark.slow(cases=["BinCounts-num_bins-*", "Covariance-features-*", "LengthSum-features-*", "*Gradient-params-0"])
@pytest.mark.parametrize(("query", "field", "value"), rows_of(Harmless))
def test_the_bound_holds_whatever_a_field_says_that_only_contributions_depend_on(query, field, value):
    bad = moved(query, field, value)
    assert float(bad.bound) == float(query.bound)
    with jax.enable_x64(True):
        steps, unit = in_units(stacked_exact()(bad, neighbours(Adjacency.REPLACE_ONE)))
    assert np.isfinite(unit).all()
    assert (unit == unit[0]).all()
    margin = 0 if isinstance(query, Selection) else MARGIN
    check_sensitivity(bad, (steps[1:] - steps[0]) * unit[0], float(bad.bound) * (1 + margin), Adjacency.REPLACE_ONE)
