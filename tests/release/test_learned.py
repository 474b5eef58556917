"""The card's sentence on what a run learned: none without answers, and otherwise what its answers show."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p import Budget, InputError, Rows, private_train
from l2p.base import struct
from l2p.privacy.card import html, learned
from l2p.privacy.ledger.ledger import Cost, Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.protectors.by_hand.bolt_on import BoltOn
from l2p.protectors.by_hand.noisy_sgd import NoisySGD, SampledSGD
from l2p.protectors.stepwise.stepwise import Stepwise
from l2p.release.api import load
from l2p.release.tuning.split_tuning import split_tuning

N, D = 2000, 6
BUDGET = Budget(1.0, 1e-5)
RANDOM = np.random.default_rng(7)
X = RANDOM.uniform(size=(N, D)).astype(np.float32)
CLEAR = Rows(X, (X[:, 0] + 0.2 * RANDOM.normal(size=N) > 0.5).astype(np.float32), np.ones(N, np.float32))


def coins(seed):
    """Rows whose labels are coins that know nothing of the features."""
    random = np.random.default_rng(seed)
    return Rows(
        random.uniform(size=(N, D)).astype(np.float32), random.integers(2, size=N).astype(np.float32), CLEAR.mask
    )


def sentence(rows, protector, epsilon, seed):
    return private_train(rows, protector, Budget(epsilon, 1e-5), key=jax.random.key(seed)).learned


#: Its gradients are short after few steps, so that little adds up along one line.
SOON = [("control-universal", 0.1), ("control-universal", 8.0)]
BATCHES = pytest.param("dpsgd", 8.0, marks=pytest.mark.slow)  # compiles for 16 seconds


@pytest.mark.long(cases=["dpsgd-8.0"])
@pytest.mark.parametrize(
    ("protector", "epsilon"),
    [("noisygd", 0.1), ("noisygd", 8.0), ("auto_clip", 0.1), ("auto_clip", 8.0), *SOON, BATCHES],
)
def test_coins_are_not_taken_for_something_learned(protector, epsilon):
    """The budgets include one so large that the chance in the rows is far above the noise."""
    sentences = [sentence(coins(seed), protector, epsilon, seed) for seed in range(10)]
    assert sentences.count(learned.NOISE) >= 9


@pytest.mark.parametrize(("protector", "epsilon"), [("noisygd", 2.0), ("auto_clip", 2.0), ("control-universal", 2.0)])
def test_a_clear_table_is_told_from_noise_and_only_with_enough_budget(protector, epsilon):
    assert [sentence(CLEAR, protector, epsilon, seed) for seed in range(5)].count(learned.SIGNAL) == 5
    assert [sentence(CLEAR, protector, 0.002, seed) for seed in range(5)].count(learned.NOISE) == 5


def test_a_release_says_it_on_its_card_and_its_result():
    result = private_train(CLEAR, "noisygd", Budget(2.0, 1e-5))
    assert result.learned == result.card.learned == learned.SIGNAL
    assert "Learned Something: the answers of this run stand out" in " ".join(result.card.to_text().split())
    assert "stand out from noise and chance" in html.render(result.card)
    assert learned.SIGNAL not in result.card.warnings


def test_answers_of_another_kind_do_not_tell():
    assert private_train(CLEAR, BoltOn(N, num_passes=1), BUDGET).learned == learned.UNTOLD


# ------------------------------------------------------------------------------ runs that return what they began with
@pytest.mark.parametrize("kind", [BoltOn, NoisySGD, SampledSGD])
def test_a_plan_for_fewer_rows_is_refused_before_anything_is_reserved(tmp_path, kind):
    budget = Budget(1.0, 1e-5)
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", budget, "basic", limit_of("basic", budget))
    with pytest.raises(InputError, match=rf"planned for at most {N - 1} rows, but the table has {N}"):
        private_train(CLEAR, kind(N - 1, num_passes=1), budget, ledger=ledger)
    assert ledger.entries() == []
    assert ledger.left() == Cost(1.0, 1e-5)


def test_parts_have_the_size_that_candidates_are_planned_for():
    """2,000 rows make three parts of 666, and 2 rows are over."""
    planned = BoltOn(N // 3, num_passes=1)
    chosen = split_tuning(CLEAR, [planned, planned], Budget(2.0, 1e-5), key=jax.random.key(0))
    assert np.any(np.asarray(chosen.params))
    assert chosen.result.learned == learned.UNTOLD


@struct.dataclass
class Deaf(Stepwise):
    """Asks with so little noise that no budget pays for it."""

    def query(self, params, features, plan, setup):
        return super().query(params, features, plan, setup).replace(noise_multiplier=jnp.float32(1e-3))


@pytest.mark.parametrize(("name", "side_queries", "sentence"), [
    ("noisygd", False, learned.NOTHING), ("noisygd_mean", True, learned.NO_STEP),
])  # fmt: skip
def test_a_run_whose_steps_are_refused_warns_and_says_so(name, side_queries, sentence):
    method = load(name, BUDGET)
    deaf = Deaf(**{field.name: getattr(method, field.name) for field in dataclasses.fields(method)})
    result = private_train(CLEAR, deaf, BUDGET, key=jax.random.key(0))
    assert (result.steps, bool(result.trace), result.stop_reason) == (0, side_queries, "budget")
    assert result.learned == sentence
    assert sentence in result.card.warnings


def test_params_that_never_move_are_told():
    still = load("noisygd", BUDGET)
    still = dataclasses.replace(
        still, projector=jax.tree.map(lambda leaf: jnp.full_like(leaf, -jnp.inf), still.projector)
    )
    result = private_train(CLEAR, still, BUDGET, key=jax.random.key(0))
    assert len(result.trace) == result.steps == 50
    assert result.learned == learned.UNMOVED
    assert learned.UNMOVED in result.card.warnings


@pytest.mark.filterwarnings("ignore:simulation_seed is set")
def test_estimators_warn_of_a_fit_that_learned_nothing():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from l2p.estimators import PrivateClassifier
    from l2p.estimators.messages import NothingLearnedWarning

    method = load("noisygd", BUDGET)
    deaf = Deaf(**{field.name: getattr(method, field.name) for field in dataclasses.fields(method)})
    model = PrivateClassifier(epsilon=1.0, protector=deaf, bounds=(0, 1), classes=(0, 1), simulation_seed=0)
    with pytest.warns(NothingLearnedWarning, match="no query of this run was answered"):
        model.fit(np.asarray(CLEAR.x), np.asarray(CLEAR.y))
    assert model.result_.learned == learned.NOTHING
