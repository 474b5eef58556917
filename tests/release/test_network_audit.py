"""Canaries in a release of a network: nobody who sees all params tells them apart better than the card allows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.compare.audit.membership import auc_ceiling, threshold_attack

COUNT = 2000
#: Whole numbers beyond 2^24 make null rows: canaries that are left out.
ABSENT = 2**25
PARAMS = {"table": jnp.zeros((COUNT, 3)), "out": jnp.array([[-3.0, 3.0], [2.0, -2.0], [-4.0, 4.0]])}


def loss(params, row):
    """Every canary has a line of the table for itself, whose gradient is as long as clipping lets it be."""
    return -jax.nn.log_softmax(jnp.tanh(params["table"][row["token"]]) @ params["out"])[1]


def attacked(epsilon, exactness):
    """The card of a release in which every second canary is, by a coin, and what all of its params tell of them."""
    budget = l2p.Budget(epsilon, 1e-5)
    is_in = np.random.default_rng().random(COUNT) < 0.5
    data = {"token": np.where(is_in, np.arange(COUNT), ABSENT)}
    protector = l2p.load("noisygd", budget).replace(num_steps=5)
    result = l2p.private_train(data, protector, budget, model=loss, params=PARAMS, exactness=exactness)
    moved = -np.asarray(result.params["table"]) @ np.asarray(PARAMS["out"] @ jnp.array([-1.0, 1.0]))
    return result.card, threshold_attack(moved[is_in], moved[~is_in])


@pytest.mark.slow(but=["exact"])
@pytest.mark.parametrize("exactness", ["exact", "float32"])
def test_an_audit_of_a_release_reaches_its_claim_and_stays_below(exactness):
    card, attack = attacked(2.0, exactness)
    assert card.private_release
    ceiling = auc_ceiling(card.mu)
    # 5 standard errors: a false alarm in three million runs.
    assert ceiling - 0.02 - 5 * attack.standard_error < attack.auc < ceiling + 5 * attack.standard_error
    assert ceiling - 0.02 - 5 * attack.standard_error > 0.55


@pytest.mark.slow
def test_an_audit_finds_a_release_of_four_times_the_budget():
    claimed, _ = attacked(1.0, "exact")
    _, attack = attacked(4.0, "exact")
    assert attack.auc > auc_ceiling(claimed.mu) + 5 * attack.standard_error
