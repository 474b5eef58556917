"""Constants become polynomials in log(mu N) that change nothing until they are tuned."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Logistic
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.conditioning import value
from l2p.protectors.learned.tunable import around, combine, lift, partition, tunable, with_tuned
from l2p.run.run import run
from l2p.task.rows import Rows

BUDGET = Budget(0.5, 1e-6)


@struct.dataclass
class Inner:
    rate: jax.Array
    scale: jax.Array
    fixed: ClassVar[tuple[str, ...]] = ("scale",)


@struct.dataclass
class Outer:
    inner: Inner
    count: jax.Array
    others: dict[str, jax.Array]
    size: int = struct.field(pytree_node=False, default=3)
    fixed: ClassVar[tuple[str, ...]] = ("others",)


def outer(rate: float, size: int = 3) -> Outer:
    inner = Inner(jnp.array([rate]), jnp.array([2.0]))
    return Outer(inner, jnp.array([4]), {"a": jnp.ones(1)}, size)


def test_integers_and_fixed_fields_are_never_tuned_wherever_they_lie():
    assert jax.tree.leaves(tunable(outer(1.0))) == [True, False, False, False]


@pytest.mark.slow
def test_settings_around_others_differ_in_what_may_be_tuned_alone():
    keys = jax.random.split(jax.random.key(0), 200)
    start = outer(1.0).replace(inner=Inner(jnp.zeros((2, 3)), jnp.array([2.0])))
    drawn = [around(start, 1.5, key) for key in keys]
    for neighbour in drawn:
        assert jax.tree.structure(neighbour) == jax.tree.structure(start)
        assert (neighbour.inner.scale.item(), neighbour.count.item(), neighbour.others["a"].item()) == (2.0, 4, 1.0)
    rates = np.array([neighbour.inner.rate for neighbour in drawn])
    moves = (rates != 0).all((1, 2))
    assert moves.sum() == (rates != 0).any((1, 2)).sum() == pytest.approx(100, abs=35)
    # The second power moves half as much; 5 standard deviations of some 300 draws.
    assert rates[moves].std((0, 2)) == pytest.approx([1.5, 0.75], rel=5 / np.sqrt(2 * 3 * moves.sum()))
    assert np.array_equal(around(start, 1.5, keys[0]).inner.rate, rates[0])


def test_partition_takes_integers_out_and_combine_puts_them_back():
    floats, others = partition(outer(1.0))
    assert len(jax.tree.leaves(floats)) == 3
    assert [leaf.dtype for leaf in jax.tree.leaves(others)] == [jnp.int32]
    combined = combine(floats, others)
    assert jax.tree.structure(combined) == jax.tree.structure(outer(1.0))
    assert combined.count.tolist() == [4]


def test_a_lift_has_the_values_of_every_start_at_its_own_budget():
    signals = (0.7, 3.0, 8.7)
    lifted = lift([outer(rate, size) for rate, size in ((1.0, 2), (5.0, 3), (-2.0, 4))], signals)
    rates = [float(value(lifted.inner.rate, jnp.float32(signal))) for signal in signals]
    np.testing.assert_allclose(rates, [1.0, 5.0, -2.0], rtol=1e-5)
    assert (lifted.inner.scale.shape, lifted.count.tolist(), lifted.size) == ((1,), [4], 3)


@pytest.mark.long(cases=["dpsgd"])
@pytest.mark.slow
@pytest.mark.parametrize("name", ["noisygd", "dpsgd"])
def test_a_lifted_method_runs_to_the_same_bits(name):
    start = HAND_DESIGNED[name](BUDGET).replace(num_steps=5)
    lifted = lift([start] * 3, (0.7, 4.0, 8.7))
    assert all(leaf.shape == (3,) for leaf in jax.tree.leaves(lifted))
    generator = np.random.default_rng(0)
    rows = Rows(generator.random((60, 4)).astype(np.float32), generator.integers(0, 2, 60) * 1.0, np.ones(60))
    planned = Filter("rdp", BUDGET, start.sampler, 5).price_list()
    setup = Setup.create(Logistic(), BUDGET.adjacency, planned, 60)
    outcomes = [
        jax.jit(run)(protector, jnp.zeros(5), rows, setup, jax.random.key(0))[0] for protector in (start, lifted)
    ]
    assert np.array_equal(*outcomes)
    assert float(jnp.abs(outcomes[0]).max()) > 0.0


def test_a_tuned_method_keeps_what_it_derives_from_the_run_at_hand():
    tuned = lift([outer(7.0, size=2)] * 2, (1.0, 2.0))
    merged = with_tuned(outer(1.0, size=9), tuned)
    assert merged.size == 9
    assert merged.inner.rate.tolist() == [7.0, 0.0]


def test_tuned_fields_of_another_method_are_refused():
    with pytest.raises(InputError, match="other fields"):
        with_tuned(HAND_DESIGNED["noisygd"](BUDGET), HAND_DESIGNED["agd"](BUDGET))
