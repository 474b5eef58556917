"""AdaMix and its relatives: steps, limits without noise, what they read, and what they refuse."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN, MODELS, Logistic, Softmax, Square
from l2p.models.mlp import MLP
from l2p.oracle import MAX_BOUND, MIN_BOUND, Oracle, reader_of
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency, Budget, Filter
from l2p.privacy.cap.spending import Spending
from l2p.privacy.cost.convert import gdp_mu
from l2p.protectors import (
    HAND_DESIGNED,
    Decaying,
    PublicClip,
    PublicLength,
    PublicMirror,
    PublicSubspace,
    PublicSum,
    Stepwise,
)
from l2p.protectors.hand_designed import log_constant, logit_constant
from l2p.protectors.stepwise.public_rows import PublicGradients, check_classes, projected
from l2p.protectors.stepwise.schedulers import Observation
from l2p.protectors.with_public_rows.adamix import CLIPPED_RATE, SIGMA, descent, steps_for
from l2p.protectors.with_public_rows.adamix_theory import lipschitz_on_unit_rows
from l2p.run.run import plan_noise, run
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows

K, D, N, M, STEPS = 3, 4, 60, 9, 5
MODEL, KEY, BUDGET = Softmax(K), jax.random.key(1), Budget(1.0, 1e-5)
ZERO = jnp.zeros(MODEL.num_params(D))
WIDE = Decaying(log_constant(50.0), jnp.zeros(1))
MIXED = ("adamix", "adamix_projected", "adamix_theory", "ngd", "pda_dpmd", "public_moments")


def table(seed, size):
    random = np.random.default_rng(seed)
    y = np.arange(size) % K
    x = 0.3 * random.normal(size=(size, D)) + np.eye(K, D)[y]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return Rows(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), jnp.ones(size))


PRIVATE, PUBLIC = table(0, N), table(1, M)


def setup(budget=None):
    here = Setup.create(MODEL, Adjacency.ZERO_OUT, Filter("gdp", BUDGET).price_list(), N)
    if budget is not None:
        here = here.replace(price_list=here.price_list.replace(budget=jnp.float32(budget)), cap=jnp.float32(budget))
    return here


NO_NOISE = setup(1e12)
go = jax.jit(run)


def lines(rows):
    return np.c_[np.asarray(rows.x, float), np.full(len(rows.y), INTERCEPT_COLUMN)]


def gradients(params, rows):
    """Every row's gradient f64[n, d + 1, K]."""
    margins = lines(rows) @ params
    likely = np.exp(margins - margins.max(1, keepdims=True))
    residuals = likely / likely.sum(1, keepdims=True) - np.eye(K)[np.asarray(rows.y, int)]
    return lines(rows)[:, :, None] * residuals[:, None, :]


def test_steps_of_the_papers_settings_are_206_and_not_14():
    """The paper prints rho = T^2 / (2 sigma^2), which would give 14 steps."""
    budget = Budget(3.0, 1e-5)
    assert steps_for(budget) == HAND_DESIGNED["adamix"](budget).num_steps == 206
    mu = gdp_mu(3.0, 1e-5)
    assert math.sqrt(206) / SIGMA <= mu < math.sqrt(207) / SIGMA
    assert math.floor(mu * SIGMA) == 14
    assert steps_for(budget, 2 * SIGMA) in (4 * 206, 4 * 206 + 1, 4 * 206 + 2, 4 * 206 + 3)


def test_a_budget_too_small_for_one_step_at_sigma_still_gives_one():
    assert steps_for(Budget(0.01, 1e-5)) == 1
    assert steps_for(Budget(1000.0, 1e-5)) == 2000


@pytest.mark.slow
def test_without_noise_and_with_all_directions_adamix_is_gradient_descent_on_both_sets():
    protector = Stepwise(
        WIDE,
        PublicSubspace(PublicSum(descent(2.0)), D + 1, "rows"),
        purchases=(PublicLength(jnp.float32(1.0)),),
        num_steps=STEPS,
    )
    params, ended, _, _ = go(protector, ZERO, PRIVATE, NO_NOISE, KEY, PUBLIC)
    expected = np.zeros((D + 1, K))
    for _ in range(STEPS):
        total = gradients(expected, PRIVATE).sum(0) + gradients(expected, PUBLIC).sum(0)
        # The decay is 0.01 over the sum of the losses of private rows, whose mean this is.
        expected -= 2.0 * (total / (N + M) + 0.01 / N * expected)
    assert int(ended.step) == STEPS
    np.testing.assert_allclose(params, expected.ravel(), rtol=1e-4, atol=1e-4)
    assert np.abs(expected).max() > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("matrix", ["total", "rows"])
def test_a_projection_keeps_the_first_singular_vectors_of_the_public_gradient(matrix):
    """One step of clipped, projected private gradients is all that it makes."""
    projector = PublicSubspace(descent(1.0), 2, matrix)
    protector = Stepwise(PublicClip(WIDE, logit_constant(0.5)), projector, num_steps=1)
    params, _, (_, (record,)), _ = go(protector, ZERO, PRIVATE, NO_NOISE, KEY, PUBLIC)
    public, private = gradients(np.zeros((D + 1, K)), PUBLIC), gradients(np.zeros((D + 1, K)), PRIVATE)
    norms = np.linalg.norm(private.reshape(N, -1), axis=1)
    clip_norm = np.median(np.linalg.norm(public.reshape(M, -1), axis=1))
    assert float(record.clip_norm[0]) == pytest.approx(clip_norm, rel=1e-5)
    assert 0 < (norms > clip_norm).sum() < N
    wide = public.sum(0) if matrix == "total" else public.transpose(1, 0, 2).reshape(D + 1, -1)
    first = np.linalg.svd(wide)[0][:, :2]
    mean = (private * np.minimum(1.0, clip_norm / norms)[:, None, None]).mean(0)
    np.testing.assert_allclose(params, -(first @ first.T @ mean).ravel(), atol=2e-5)


@pytest.mark.parametrize(("name", "leaves"), [("adamix_projected", False), ("adamix", True)])
def test_only_the_projected_form_moves_along_the_total_public_gradient_alone(name, leaves):
    """Algorithm 2 takes the singular vectors of the total gradient, which are fewer than those of the rows' gradients:
    here two of five."""
    protector = HAND_DESIGNED[name](BUDGET, MODEL).without(PublicLength).replace(num_steps=1)
    sums = protector.projector if leaves else protector.projector.projector
    decay = sums.projector.log_decay
    start, *_ = go(protector.replace(projector=descent(1e-12)), ZERO, PRIVATE, NO_NOISE, KEY, PUBLIC)
    after, *_ = go(protector, ZERO, PRIVATE, NO_NOISE, KEY, PUBLIC)
    start, after = (np.asarray(params, float).reshape(D + 1, K) for params in (start, after))
    # The L2 term moves params along themselves, at the learning rate times lambda / N.
    moved = after - (1.0 - CLIPPED_RATE * float(jnp.exp(decay[0])) / N) * start
    assert np.linalg.norm(moved) > 0.1
    total = gradients(start, PUBLIC).sum(0)
    within = np.linalg.svd(total)[0][:, : K - 1]
    outside = np.linalg.norm(moved - within @ within.T @ moved)
    assert outside > 0.1 if leaves else outside < 1e-3


def test_noise_then_projection_is_noise_in_the_subspace():
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(D + 1, 2)))[0]
    noise = np.random.default_rng(1).normal(size=(4000, D + 1, K))
    shown = np.array([projected(jnp.asarray(draw.ravel()), jnp.asarray(directions)) for draw in noise[:50]])
    inside = (directions.T @ noise).reshape(4000, -1)
    np.testing.assert_allclose(np.cov(inside.T), np.eye(2 * K), atol=0.1)
    back = (directions @ (directions.T @ noise[:50])).reshape(50, -1)
    np.testing.assert_allclose(shown, back, atol=1e-5)


@pytest.mark.slow
def test_the_clip_norm_is_a_quantile_of_public_norms_and_ignores_null_rows():
    rows = PUBLIC.replace(mask=PUBLIC.mask.at[4].set(0.0), x=PUBLIC.x.at[2, 0].set(jnp.nan))
    params = jnp.arange(ZERO.size) / 3.0
    public_gradients = PublicGradients.at(MODEL, params, rows)
    norms = np.linalg.norm(gradients(np.asarray(params).reshape(D + 1, K), PUBLIC).reshape(M, -1), axis=1)
    counted_norms = np.delete(norms, [2, 4])
    for share in (0.0, 0.37, 0.9, 1.0):
        assert float(public_gradients.quantile(jnp.float32(share))) == pytest.approx(
            np.quantile(counted_norms, share), rel=1e-4
        )
    np.testing.assert_allclose(public_gradients.norms(), np.where(np.isin(np.arange(M), [2, 4]), 0.0, norms), rtol=1e-4)


@functools.cache
def released(name, which):
    """(params, clip norms) of a run on one of two private tables, with answers of zeros: its budget is nothing."""
    protector = dataclasses.replace(HAND_DESIGNED[name](BUDGET, MODEL, N), num_steps=STEPS)
    here = setup().replace(cap=jnp.float32(0.0))
    rows = PRIVATE if which == 0 else PRIVATE.replace(y=(PRIVATE.y + 1) % K, x=PRIVATE.x * 7.0)
    params, ended, (_, records), _ = go(protector, ZERO, rows, here, KEY, PUBLIC)
    return np.asarray(params), np.asarray(records[0].clip_norm), ended


@pytest.mark.long(but=["adamix", "pda_dpmd"])
@pytest.mark.slow
@pytest.mark.parametrize("name", MIXED)
def test_nothing_but_a_paid_answer_depends_on_private_rows(name):
    """A quantile over private rows, say, would differ here: the clipping norm is asked for before it is refused."""
    (params, clip_norms, ended), (others, other_clip_norms, _) = released(name, 0), released(name, 1)
    np.testing.assert_array_equal(params, others)
    np.testing.assert_array_equal(clip_norms, other_clip_norms)
    assert not bool(ended.alive)
    assert np.all(clip_norms > 0)


@pytest.mark.slow
def test_a_clip_from_private_rows_would_be_caught():
    """Planted bug: a scheduler that is handed private rows as if they were public ones."""
    scheduler = PublicClip(WIDE, logit_constant(0.9))
    protector = Stepwise(scheduler, descent(1.0), num_steps=1)
    here = setup().replace(cap=jnp.float32(0.0))

    def clip_norm(private):
        _, _, (_, (record,)), _ = go(protector, ZERO, PRIVATE, here, KEY, private)
        return float(record.clip_norm[0])

    assert clip_norm(PRIVATE) != clip_norm(PRIVATE.replace(x=PRIVATE.x * 7.0))


@pytest.mark.parametrize("size", [1e19, 1e30, math.inf])
def test_no_answer_ends_a_run_by_a_clip_that_the_oracle_refuses(size):
    """A run whose noise is fixed would else end early on some tables, and be certified for what it had spent."""
    model, rows = Square(), Rows(jnp.ones((2, 1)), jnp.ones(2), jnp.ones(2))
    public = PublicGradients.at(model, jnp.full(2, size, jnp.float32), rows)
    observation = Observation(jnp.zeros(2), jnp.ones(()), jnp.zeros(()), None, public)
    scheduler = PublicClip(WIDE, logit_constant(0.9))
    plan, _ = scheduler(
        (),
        observation,
        Oracle(reader_of(rows), NO_NOISE, Spending(jnp.float32(0), jnp.float32(1)), KeyNoise(KEY), jnp.int32(0)),
        1,
    )
    assert not scheduler.adaptive
    assert MIN_BOUND <= float(plan.clip_norm) <= MAX_BOUND


def test_a_run_of_the_theory_is_its_own_recursion():
    protector = HAND_DESIGNED["adamix_theory"](BUDGET, MODEL, N).replace(num_steps=STEPS)
    params, ended, _, _ = go(protector, ZERO, PRIVATE, NO_NOISE, KEY, PUBLIC)
    reference = np.asarray(ended.state.reference, float).reshape(D + 1, K)
    lipschitz = lipschitz_on_unit_rows(MODEL)
    mu = float(NO_NOISE.price_list.mu)
    decay = 2.0 * math.sqrt(ZERO.size) * lipschitz / (mu * 5.0)
    current, average = reference, 0.0
    for number in range(1, STEPS + 1):
        average = average + 2.0 * number / (STEPS * (STEPS + 1)) * current
        total = gradients(current, PRIVATE).sum(0) + gradients(current, PUBLIC).sum(0) + decay * (current - reference)
        current = current - 2.0 / (decay * (number + 1)) * total
        current *= min(1.0, 20.0 / np.linalg.norm(current))
    np.testing.assert_allclose(params, np.ravel(average), rtol=2e-3, atol=2e-3)
    assert np.linalg.norm(reference) > 0.5


@pytest.mark.slow
def test_one_public_pass_reads_every_row_once():
    protector = HAND_DESIGNED["adamix_theory"](BUDGET, MODEL, N).replace(num_steps=1)
    params, _, _, _ = go(protector, ZERO, PRIVATE, setup().replace(cap=jnp.float32(0.0)), KEY, PUBLIC)
    order, current = np.asarray(jax.random.permutation(jax.random.key(0), M)), np.zeros((D + 1, K))
    for number, place in enumerate(order, 1):
        current = current - 2.0 / (0.1 * (number + 1)) * gradients(current, PUBLIC)[place]
        current *= min(1.0, 20.0 / np.linalg.norm(current))
    np.testing.assert_allclose(params, current.ravel(), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_mirror_descent_starts_with_private_gradients_and_ends_with_public_ones():
    protector = Stepwise(WIDE, PublicMirror(descent(2.0), jnp.log(jnp.array([0.5]))), num_steps=4)  # K = 2
    _, _, _, path = jax.jit(functools.partial(run, observe=lambda params: params))(
        protector, ZERO, PRIVATE, NO_NOISE, KEY, PUBLIC
    )
    current = np.zeros((D + 1, K))
    for step, alpha in enumerate((1.0, math.cos(math.pi / 4), 0.0, 0.0)):
        mixed = alpha * gradients(current, PRIVATE).mean(0) + (1 - alpha) * gradients(current, PUBLIC).mean(0)
        current = current - 2.0 * (mixed + 0.01 / N * current)
        np.testing.assert_allclose(path[step], current.ravel(), atol=1e-4)


@pytest.mark.slow
def test_public_moments_divide_features_by_the_roots_of_their_gradients_moments():
    protector = HAND_DESIGNED["public_moments"](BUDGET, MODEL, N).replace(num_steps=1, public_start=None)
    protector = protector.replace(scheduler=WIDE, public_length=None)
    params, _, _, _ = go(protector, ZERO, PRIVATE, NO_NOISE, KEY, PUBLIC)
    zeros = np.zeros((D + 1, K))
    roots = np.sqrt(np.square(gradients(zeros, PUBLIC)).sum(2).mean(0))[:D]
    inverse = 1 / (roots + 0.1 * np.sqrt(np.mean(roots**2)))
    scaled = gradients(zeros, PRIVATE).mean(0) * np.append(inverse / inverse.mean(), 1.0)[:, None]
    np.testing.assert_allclose(params, -CLIPPED_RATE * scaled.ravel(), rtol=1e-4, atol=1e-4)


# ----------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize("name", MIXED)
def test_without_public_rows_it_is_refused_when_it_is_traced(name):
    protector = HAND_DESIGNED[name](BUDGET, MODEL, N)
    assert protector.needs_public
    with pytest.raises(InputError, match="learns from public rows, and there are none"):
        plan_noise(protector, ZERO, N, D, setup())


def test_the_baseline_reads_no_public_rows():
    assert not HAND_DESIGNED["fully_private"](BUDGET).needs_public


@pytest.mark.parametrize("name", MIXED)
def test_a_class_without_public_rows_is_refused(name):
    protector = HAND_DESIGNED[name](BUDGET, MODEL, N)
    few = PUBLIC.replace(mask=jnp.where(PUBLIC.y == 1, 0.0, 1.0))
    with pytest.raises(InputError, match="no row of 1 of the 3 declared classes"):
        protector.check_public(few, MODEL, "multiclass")
    check_classes(PUBLIC, MODEL, "multiclass")


@pytest.mark.parametrize(("matrix", "most"), [("total", K - 1), ("rows", 2)])
def test_more_directions_than_the_rank_are_refused(matrix, most):
    """Residuals of a softmax sum to zero over classes; and rows here lie in a plane."""
    public = PUBLIC
    if matrix == "rows":
        public = PUBLIC.replace(x=jnp.zeros((M, D)).at[:, 0].set(jnp.arange(M) / M))
    here, protector = setup(), Stepwise(WIDE, PublicSubspace(descent(1.0), most + 1, matrix), num_steps=1)
    with pytest.raises(InputError, match=f"has rank {most}, and singular vectors beyond"):
        protector.check_public(public, here.model, here.kind)
    fits = protector.replace(projector=protector.projector.replace(num_directions=most))
    fits.check_public(public, here.model, here.kind)


@pytest.mark.long
def test_a_model_whose_params_are_no_matrix_has_no_directions():
    model = MLP(2)
    public = PublicGradients.at(model, model.init(D), PUBLIC.replace(y=PUBLIC.y % 2))
    assert public.norms().shape == (M,)  # but norms, for a clip
    with pytest.raises(InputError, match="no matrix of features and classes"):
        public.directions(1)


def test_the_theory_refuses_rows_of_another_length():
    protector = HAND_DESIGNED["adamix_theory"](BUDGET, MODEL, N)
    protector.check_public(PUBLIC, MODEL, "multiclass")
    with pytest.raises(InputError, match="rows of length 1"):
        protector.check_public(PUBLIC.replace(x=2.0 * PUBLIC.x), MODEL, "multiclass")
    with pytest.raises(InputError, match="bounded derivatives"):
        protector.check_model(MLP(2))


def test_a_public_length_scales_rows_to_it():
    public = PUBLIC.replace(x=4.0 * PUBLIC.x, mask=PUBLIC.mask.at[0].set(0.0))
    features = PublicLength(jnp.float32(2.0))(D, _Oracle(public))
    assert float(features.scale) == pytest.approx(0.5, rel=1e-5)
    assert np.all(features.center == 0)
    centred = PublicLength(jnp.float32(2.0), centered=True)(D, _Oracle(public))
    counted_rows = np.asarray(public.x)[1:]
    np.testing.assert_allclose(centred.center, counted_rows.mean(0), atol=1e-6)
    assert np.square(centred.apply(counted_rows)).sum(1).mean() == pytest.approx(4.0, rel=1e-4)


@dataclasses.dataclass
class _Oracle:
    public: Rows


@pytest.mark.slow
def test_logistic_regression_runs_with_every_part():
    binary = jax.tree.map(lambda leaf: leaf, PUBLIC).replace(y=jnp.minimum(PUBLIC.y, 1.0))
    here = Setup.create(Logistic(), Adjacency.ZERO_OUT, Filter("gdp", BUDGET).price_list(), N)
    protector = HAND_DESIGNED["adamix"](BUDGET, MODELS["logistic"], N).replace(num_steps=STEPS)
    rows = PRIVATE.replace(y=jnp.minimum(PRIVATE.y, 1.0))
    params, ended, _, _ = go(protector, jnp.zeros(D + 1), rows, here, KEY, binary)
    assert int(ended.step) == STEPS
    assert np.isfinite(params).all()
    assert np.abs(params).max() > 0.5


# ------------------------------------------------------------------------------------------------ rows of other lengths
def long_rows(seed, size, weights):
    """Rows in [0, 1]^20, several times as long as 1 and nearly along one line, and numbers nearly linear in them."""
    random = np.random.default_rng(seed)
    x = 0.9 * random.random((size, 1)) + 0.1 * random.random((size, 20))
    y = np.clip(x @ weights + 0.02 * random.normal(size=size), 0.0, 1.0)
    return Rows(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), jnp.ones(size))


@pytest.mark.long
@pytest.mark.parametrize("name", ["adamix", "ngd", "pda_dpmd", "fully_private"])
def test_least_squares_does_not_diverge(name):
    """Gradients of least squares grow with the error: at softmax's rates every step is longer than the last."""
    weights = np.random.default_rng(9).dirichlet(np.ones(20))
    private, public = long_rows(0, 200, weights), long_rows(1, 30, weights)
    model, budget = Square(), Budget(50.0, 1e-5)
    protector = HAND_DESIGNED[name](budget, MODELS["square"]).replace(num_steps=40)
    here = Setup.create(model, Adjacency.ZERO_OUT, Filter("gdp", budget).price_list(), 200, "regression")
    start = model.init(20)
    params = go(protector, start, private, here, KEY, public if protector.needs_public else None)[0]
    losses = model.losses(jnp.stack([params, start]), private.x, private.y).mean(1)
    assert losses[0] < losses[1]


@pytest.mark.slow
def test_public_moments_step_does_not_depend_on_how_long_rows_are():
    """The method once diverged on features in [0, 1], at a rate for centred rows of length 1."""
    random = np.random.default_rng(3)
    y = np.arange(200) % 2
    x = jnp.asarray(random.random((200, 4)) + 0.5 * y[:, None], jnp.float32)
    both = [Rows(scale * x, jnp.asarray(y, jnp.float32), jnp.ones(200)) for scale in (1.0, 8.0)]
    protector = HAND_DESIGNED["public_moments"](BUDGET, MODELS["logistic"]).replace(num_steps=20)
    here = Setup.create(Logistic(), Adjacency.ZERO_OUT, Filter("gdp", Budget(50.0, 1e-5)).price_list(), 200)
    margins = []
    for rows in both:
        params = go(protector, jnp.zeros(5), rows, here, KEY, jax.tree.map(lambda leaf: leaf[:20], rows))[0]
        margins.append(np.asarray(Logistic().margin(params, rows.x)))
    np.testing.assert_allclose(*margins, rtol=0.02, atol=0.02)
