"""Sums of float32 numbers in a release of a user's loss: their price, their noise, and what the card says of them."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.privacy.card.custom import EXACT, FLOAT32_SUMS, RESTS_ON
from l2p.privacy.cost.sampling import Poisson
from l2p.privacy.independent import compose
from l2p.release.verification import verify
from tests.release.losses import DATA, NUM_ROWS, START, logistic
from tests.release.tables import table

BUDGET = l2p.Budget(1.0, 1e-5)
#: Of almost no noise.
GENEROUS = l2p.Budget(1e6, 1e-5)


def train(protector="noisygd", budget=BUDGET, data=DATA, loss=logistic, params=START, **options):
    return l2p.private_train(data, protector, budget, model=loss, params=params, **options)


def blocks():
    return l2p.BlockSource(
        lambda: ({name: array[start : start + 64] for name, array in DATA.items()} for start in range(0, NUM_ROWS, 64)),
        NUM_ROWS,
    )


@pytest.mark.parametrize("data", [DATA, blocks()], ids=["in memory", "in blocks"])
def test_it_takes_the_steps_of_whole_numbers(data):
    protector = l2p.load("noisygd", GENEROUS).replace(num_steps=3)
    exact, float32 = (train(protector, GENEROUS, data, exactness=level).params for level in ("exact", "float32"))
    np.testing.assert_allclose(np.concatenate(float32), np.concatenate(exact), rtol=1e-3, atol=1e-4)
    assert np.abs(np.concatenate(exact)).max() > 0.1


def test_its_card_says_so_and_has_the_price_of_whole_numbers():
    protector = l2p.load("dpsgd", BUDGET).replace(num_steps=4, sampler=Poisson(0.1))
    exact, card = (train(protector, exactness=level).card for level in ("exact", "float32"))
    assert (exact.float_mode, card.float_mode) == (EXACT, FLOAT32_SUMS)
    assert [RESTS_ON in each.not_private for each in (exact, card)] == [False, True]
    assert (card.events, card.mechanisms, card.epsilon_certified) == (
        exact.events,
        exact.mechanisms,
        exact.epsilon_certified,
    )
    assert card.private_release
    assert compose(card.filter(), card.answered(), card.adaptive_noise).epsilon <= card.epsilon_certified * (1 + 1e-6)
    assert verify(card).problems == []
    assert verify(dataclasses.replace(card, not_private=exact.not_private)).problems
    assert verify(dataclasses.replace(exact, float_mode=FLOAT32_SUMS)).problems


def test_its_noise_is_as_wide_as_the_card_states():
    params, protector = jnp.zeros(20_000), l2p.load("noisygd", BUDGET).replace(num_steps=1)
    result = train(
        protector, loss=lambda params, row: 0.0 * params.sum() * row["y"], params=params, exactness="float32"
    )
    (multiplier, _), (norm, _) = (result.card.mechanisms[0][name] for name in ("noise_multiplier", "clip_norm"))
    rate = 0.5  # of noisygd, in its first step
    noise = np.asarray(result.params) * NUM_ROWS / norm / multiplier / rate
    assert float(noise.std()) == pytest.approx(1.0, rel=0.03)
    assert abs(float(noise.mean())) < 4 / 20_000**0.5


REFUSED = {
    "another level": ({"exactness": "float64"}, "exactness is 'float64', but sums are of whole numbers or of float32"),
    "a table": (
        {"exactness": "float32", "data": table(40), "loss": "logistic", "params": None},
        "which is about a loss of your own",
    ),
    "a choice among losses": (
        {"exactness": "float32", "protector": "agd"},
        "is no Gaussian sum, and what float32 does",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_such_sum_is_for_is_refused(case):
    options, says = REFUSED[case]
    with pytest.raises(InputError, match=says):
        train(**options)
