"""No scheduler gets past the budget, and no mechanism is charged without a theorem or a declaration."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.oracle.trace import trace_of
from l2p.privacy import Answered, Event, Filter
from l2p.protectors import HAND_DESIGNED
from l2p.queries import FeatureSum, NoisyMinimum
from l2p.run.run import plan_noise, run
from tests.oracle.scripts import (
    BUDGET,
    KEY,
    MODEL,
    ROWS,
    STEPS,
    ZERO,
    D,
    N,
    Script,
    even,
    f32,
    mean,
    opened,
    script,
    setup,
    simulate,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gdp", "zcdp", "rdp", "ctcdp"])
def test_no_scheduler_gets_past_the_budget_or_past_a_number_that_is_none(name):
    here, random, count = setup(name), np.random.default_rng(1), 200
    poison = np.array([math.nan, 0.0, math.inf, -math.inf, -1.0, 1e-45, 1e-30])
    scale = even(STEPS, here.price_list)
    multipliers = scale * np.exp(random.uniform(-1, 1, (count, STEPS, 2)))
    multipliers = np.where(
        random.random(multipliers.shape) < 0.1, random.choice(poison, multipliers.shape), multipliers
    )
    multipliers[0] = math.nan
    multipliers[1] = 1e30
    multipliers = multipliers.astype(np.float32)
    many = jax.jit(jax.vmap(lambda values: run(Script(values), ZERO, ROWS, here, KEY)))
    params, ended, (_, records), _ = many(jnp.asarray(multipliers))
    granted = np.stack([record.granted for record in records], -1)
    for index in range(count):
        events = [Answered(1, "gaussian", value) for value in multipliers[index][granted[index]]]
        total = Filter(name, BUDGET).spent(events)
        assert total <= Filter(name, BUDGET).limit
        assert total <= float(ended.spending.spent[index])
        grants = granted[index].ravel()
        assert not np.any(np.diff(grants.astype(int)) > 0)  # once refused, always refused: NaN stops
        assert np.all(multipliers[index].ravel()[grants] > 0)
    assert not granted[0].any()
    assert granted[1].all()
    assert np.all(np.isfinite(params[2:]))
    kinds = granted.reshape(count, -1).sum(1)
    assert len(np.unique(kinds)) > 6  # some runs stopped early, some late, some never


@pytest.mark.parametrize("clip", [math.nan, math.inf, 0.0, -1.0, 1e-42, 3e-38, 1e38])
def test_a_clip_norm_that_cannot_scale_noise_is_refused(clip):
    # Noise is a multiple of the clip norm: near 0 the product vanishes in float32, near infinity sums overflow first.
    oracle = opened()
    answer = oracle.ask(mean(2 * even(1), clip))
    assert bool(oracle.refused)
    assert np.array_equal(answer, np.zeros(D))
    assert float(oracle.spending.spent) == 0


def test_nothing_is_granted_when_the_budget_is_zero_and_everything_when_there_is_no_cap():
    protector = script(np.full((2, 1), 1e-2))
    _, ended, _, _ = simulate(protector, ZERO, ROWS, setup(cap=f32(0.0)), KEY)
    assert int(ended.step) == 0
    _, ended, _, _ = simulate(protector, ZERO, ROWS, setup(cap=f32(math.inf)), KEY)
    assert int(ended.step) == 2
    assert float(ended.spending.spent) == pytest.approx(2 / 1e-2**2, rel=1e-5)


@pytest.mark.parametrize("traced", [True, False])
def test_a_mechanism_without_a_theorem_is_refused_while_tracing(traced):
    protector = HAND_DESIGNED["agd"](BUDGET).replace(num_steps=2)
    with pytest.raises(InputError, match=r"gdp.*exponential"):  # noqa: PT012
        if traced:
            jax.eval_shape(run, protector, ZERO, ROWS, setup("gdp"), KEY)
        else:
            opened().ask(NoisyMinimum(MODEL, jnp.ones((4, D + 1)), f32(1), f32(1e3), "exponential"))
    jax.eval_shape(run, protector, ZERO, ROWS, setup("rdp"), KEY)


@struct.dataclass
class Undeclared(Script):
    """Asks for Gaussian sums, but declares selections only."""

    mechanisms: ClassVar[tuple[str, ...]] = ("exponential",)


def test_a_mechanism_that_is_not_declared_is_refused_while_tracing():
    with pytest.raises(TypeError, match=r"'gaussian', which its protector does not declare.* here exponential"):
        jax.eval_shape(run, Undeclared(f32([[9.0]])), ZERO, ROWS, setup("rdp"), KEY)
    with pytest.raises(TypeError, match="add it there"):
        plan_noise(Undeclared(f32([[9.0]])), ZERO, N, D, setup("rdp"))


@struct.dataclass
class Thin(FeatureSum):
    """A mean whose noise is declared sinh-normal, to follow its tail parameter."""

    tail: float = struct.field(pytree_node=False, default=math.inf)

    def event(self):
        return Event("sinh_normal", self.noise_multiplier, self.tail)


def test_the_tail_of_a_noise_is_priced_and_recorded():
    def oracle_after(tail):
        oracle = opened(name="ctcdp")
        oracle.ask(Thin(D, f32(1), f32(50.0), tail))
        return oracle

    tail = 8.1 * Filter("ctcdp", BUDGET).order
    (record,) = oracle_after(tail).records
    assert bool(record.granted)
    row = trace_of([record], [])[0]
    assert row.tail == tail
    assert (row.step, row.mechanism, row.noise_multiplier) == (0, "sinh_normal", 50.0)
    spent = Filter("ctcdp", BUDGET).spent([row])
    assert float(oracle_after(tail).spending.spent) == pytest.approx(spent, rel=2e-6)
    assert not bool(oracle_after(tail / 2).records[0].granted)  # no theorem at the order counted at
