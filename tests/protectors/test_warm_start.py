"""Protectors that start from the minimum of public rows, and step along the directions in which they vary."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base import struct
from l2p.base.errors import InputError
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.set_up import set_up
from l2p.models import find_model
from l2p.oracle.setup import Setup
from l2p.privacy import Budget
from l2p.privacy.cap.filter import Filter
from l2p.protectors import PublicGeometry
from l2p.protectors.by_hand.gradient_descent import noisygd
from l2p.protectors.hand_designed import Problem
from l2p.protectors.with_public_rows.warm_start import POWER, RIDGE, WarmStart, public_directions
from l2p.queries import FeatureSum
from l2p.run.protector import Protector
from l2p.run.run import Simulation, advance, start
from l2p.task.rows import Rows
from l2p.task.task import Task

BUDGET, D = Budget(1.0, 1e-4), 5


def table(num_rows, seed, classes=2, used=D):
    """Rows that vary along the first `used` features only."""
    draw = np.random.default_rng(seed)
    x = np.full((num_rows, D), 0.3, np.float32)
    x[:, :used] = draw.uniform(size=(num_rows, used)) * np.linspace(1, 0.3, used)
    y = np.floor(classes * x[:, 0] * 0.999)
    return Rows(x, y.astype(np.float32), np.ones(num_rows, np.float32))


PRIVATE, PUBLIC = table(300, 0), table(40, 1)


def mean_loss(model, params, rows, ridge):
    losses = model.losses(params[None], jnp.asarray(rows.x), jnp.asarray(rows.y))[0]
    return losses @ rows.mask / rows.mask.sum() + ridge / 2 * params @ params


def begun(protector, model, private=PRIVATE, public=PUBLIC, steps=0):
    """Params for raw rows after so many steps, and the queries."""
    setup = Setup.create(model, BUDGET.adjacency, Filter("gdp", BUDGET).price_list(), len(private.y))
    noise = Simulation(jax.random.key(0))
    private, public = (jax.tree.map(jnp.asarray, rows) for rows in (private, public))
    run, records = start(protector, model.init(D), private, setup, noise, public)
    if steps:
        run, *_ = advance(protector, run, private, setup, noise, steps, public)
    return np.asarray(protector.finish(run.params, run.state, setup)), records


@pytest.mark.long
@pytest.mark.parametrize("name", ["logistic", "svm", "softmax:3"])
def test_a_run_starts_at_the_minimum_of_the_ridged_loss_on_public_rows_that_count(name):
    model = find_model(name)
    public = table(40, 1, len(model.labels))
    marked = dataclasses.replace(public, mask=(np.arange(40) % 4 > 0).astype(np.float32))
    params, records = begun(WarmStart(noisygd(Problem(BUDGET))), model, table(300, 0, len(model.labels)), marked)
    assert records == []
    value, slope = jax.value_and_grad(mean_loss, 1)(model, params, marked, 1 / 30)
    assert np.linalg.norm(slope) < 1e-4
    assert float(value) < float(mean_loss(model, model.init(D), marked, 1 / 30))


@pytest.mark.long
def test_what_buys_statistics_first_starts_at_the_same_point_in_its_own_coordinates():
    model = find_model("logistic")
    eigen = resolve("control-universal-logistic-synthetic:pretrained", Budget(1.0, 1e-4), "logistic").protector
    params, records = begun(eigen, model)
    plain, _ = begun(WarmStart(noisygd(Problem(BUDGET))), model)
    assert [record.query for record in records][:1] == ["feature_mean"]
    np.testing.assert_allclose(params, plain, rtol=1e-3, atol=1e-3)
    # Private rows move no start: it is read off public ones alone.
    on_other_rows, _ = begun(WarmStart(noisygd(Problem(BUDGET))), model, table(300, 7))
    np.testing.assert_array_equal(on_other_rows, plain)


@pytest.mark.long
@pytest.mark.parametrize("name", ["noisygd:projected", "control-universal-logistic-synthetic:projected"])
def test_projected_steps_stay_in_the_directions_of_public_rows(name):
    model, protector = find_model("logistic"), resolve(name, BUDGET, "logistic").protector
    public = table(40, 1, used=2)
    params, records = begun(protector, model, public=public, steps=2)
    assert records == []  # nothing is bought of the features
    assert np.abs(params[:2]).max() > 1e-3
    # Public rows do not vary along the others; rounding errors of a variance are floored, so that nothing explodes.
    np.testing.assert_allclose(params[2:D], 0, atol=1e-3 * np.abs(params[:2]).max())
    plain, _ = begun(noisygd(Problem(BUDGET)), model, public=public, steps=2)
    assert np.abs(plain[2:D]).max() > 1e-3


def test_directions_inside_a_run_are_those_of_the_class_for_rows_in_memory():
    inside, public = public_directions(jax.tree.map(jnp.asarray, PUBLIC)), PublicGeometry.of(PUBLIC.x, D)
    np.testing.assert_allclose(inside.center, public.center, rtol=1e-5)
    np.testing.assert_allclose(inside.variances, public.variances, rtol=1e-3)
    np.testing.assert_allclose(np.abs(inside.directions.T @ public.directions), np.eye(D), atol=1e-3)
    np.testing.assert_allclose(np.exp([inside.log_power[0], inside.log_ridge[0]]), [POWER, RIDGE], rtol=1e-5)
    for count, directions in ((3, 2), (1, 1)):
        few = public_directions(jax.tree.map(lambda leaf, count=count: jnp.asarray(leaf[:count]), PUBLIC))
        assert few.directions.shape == (D, directions)


def test_it_costs_what_the_protector_costs_and_says_what_it_is():
    inner, outer = resolve("agd", BUDGET, "logistic"), resolve("agd:pretrained", BUDGET, "logistic")
    for name in ("num_steps", "models", "mechanisms", "additive", "sampler", "adaptive_noise"):
        assert getattr(outer.protector, name) == getattr(inner.protector, name)
    assert (outer.name, outer.accountant) == ("agd:pretrained", inner.accountant)
    assert outer.protector.needs_public
    assert not inner.protector.needs_public


def test_the_control_that_stands_in_starts_from_public_rows_too():
    budget, model = Budget(50.0, 1e-4), find_model("logistic")
    named = resolve("minibatch:pretrained:projected", budget, "logistic")
    ran, _, _, warnings = set_up(named, budget, model, 5, 10**6, Rows(PUBLIC.x, PUBLIC.y, PUBLIC.mask))
    assert ran.name != named.name
    assert ran.name.endswith(":pretrained:projected")
    assert ran.protector.pretrained
    assert ran.protector.projected
    assert f"{ran.name} runs" in warnings[0]


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("agd:projected", "agd asks for more than one gradient per step"),
        ("noisygd:oracle", "'noisygd:oracle' is unknown"),
        ("nosuch:pretrained", "'nosuch' is unknown"),
        ("nonprivate:pretrained", "answers without noise"),
    ],
)
def test_what_cannot_start_so_is_refused(name, phrase):
    with pytest.raises(InputError, match=phrase):
        l2p.private_train(Task(PRIVATE, public=PUBLIC), name, BUDGET)


@struct.dataclass
class Still(Protector):
    """Asks in its one step, and stays where it is."""

    num_steps: int = struct.field(pytree_node=False, default=1)
    adaptive_noise = False

    def init(self, params, oracle):
        return params, ()

    def step(self, params, state, oracle):
        oracle.ask(FeatureSum(D, jnp.ones(()), jnp.float32(20.0)))
        return params, state

    def finish(self, params, state, setup):
        return params


@pytest.mark.slow
def test_a_release_starts_where_a_simulation_does():
    task = Task(PRIVATE, public=PUBLIC)
    ends = [l2p.private_train(task, WarmStart(Still()), BUDGET, key=key).params for key in (None, jax.random.key(0))]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6)
    np.testing.assert_allclose(ends[0], begun(WarmStart(Still()), find_model("logistic"))[0], rtol=1e-4, atol=1e-5)
    assert np.abs(ends[0]).max() > 0.1
