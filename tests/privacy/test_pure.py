"""Pure differential privacy: delta 0 is accepted where noise and accountant are pure, and stated and charged as 0."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from l2p import Budget, InputError, Rows, private_train
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.named import describe
from l2p.commands.cli import main
from l2p.models import MODELS, Logistic
from l2p.privacy.accountants import find, for_runs
from l2p.privacy.accountants.basic import _signal
from l2p.privacy.cap import planning
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.sampling import FixedSize, FullBatch, Poisson
from l2p.privacy.events import Adjacency, Answered
from l2p.privacy.independent import compose
from l2p.privacy.ledger.ledger import Cost, Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.by_hand.bolt_on import BoltOn
from l2p.queries.pass_descent import PassDescent
from l2p.release.tuning.private_tuning import private_tuning
from l2p.task.noise import KeyNoise
from l2p.task.sources import ArraySource

PURE = Budget(1.0, 0.0)
X = np.random.default_rng(0).uniform(size=(500, 3)).astype(np.float32)
ROWS = Rows(X, (X[:, 0] > 0.5).astype(np.float32), np.ones(500, np.float32))
MODEL = Logistic()
SAMPLERS = (FullBatch(), Poisson(0.05), FixedSize(20, 500))
SHORT = BoltOn(500, num_passes=1, noise="gamma")


def test_a_pure_release_states_and_charges_delta_0_and_verifies(tmp_path, capsys):
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", PURE, "basic", limit_of("basic", PURE))
    result = private_train(ROWS, "bolt_on", PURE, ledger=ledger)
    card = result.card
    assert (card.accountant, card.delta, card.epsilon_certified) == ("basic", 0.0, 1.0)
    assert [kind["mechanism"] for kind in card.mechanisms] == ["gamma"]
    assert [entry.counted for entry in ledger.entries()] == [Cost(1.0, 0.0)]
    assert "(epsilon = 1, delta = 0)-differential privacy" in card.to_text()
    assert "for a probability of 0" not in card.to_text()
    assert any("e^-36" in sentence for sentence in card.not_private)
    result.save(tmp_path / "run")
    assert main(["account", "--card", str(tmp_path / "run/card.json"), "--verify", "--table", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["holds"], report["rehearsed"]) == (True, True)
    assert report["independent"]["epsilon"] == pytest.approx(1.0, rel=1e-4)
    assert all(row["epsilon"] is None and "delta 0" in row["note"] for row in report["table"])


def test_a_pure_run_at_a_delta_above_0_is_charged_none(tmp_path):
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", PURE, "basic", limit_of("basic", PURE))
    result = private_train(ROWS, SHORT, Budget(0.75, 1e-6), ledger=ledger)
    assert (result.card.accountant, result.card.delta) == ("basic", 1e-6)
    assert ledger.left() == Cost(0.25, 0.0)
    with pytest.raises(InputError, match="no run like it fits"):  # a run that needs its delta finds none
        private_train(ROWS, "noisygd", Budget(0.1, 1e-6), ledger=ledger)


@pytest.mark.parametrize("name", HAND_DESIGNED)
def test_every_method_is_pure_at_delta_0_or_refused(name):
    budget = HAND_DESIGNED[name].budget(PURE)
    model = "logistic" if "logistic" in HAND_DESIGNED[name](Budget(1.0, 1e-6), num_rows=500).models else "square"
    if name in ("bolt_on", "bolt_on_sc", "scs13"):
        named = resolve(name, budget, model, num_rows=500)
        assert (set(named.protector.mechanisms), named.filter(budget).name) == ({"gamma"}, "basic")
        return
    with pytest.raises(InputError, match=r"pure differential privacy|without noise"):
        resolve(name, budget, model, num_rows=500).filter(budget)


@pytest.mark.parametrize("accountant", [accountant.name for accountant in for_runs() if not accountant.pure])
def test_other_accountants_certify_nothing_at_delta_0(accountant):
    adjacency = next(
        adjacency for adjacency in Adjacency if any(find(accountant).covers(s, adjacency) for s in SAMPLERS)
    )
    sampler = next(s for s in SAMPLERS if find(accountant).covers(s, adjacency))
    with pytest.raises(InputError, match="certifies no epsilon there"):
        Filter(accountant, Budget(1.0, 0.0, adjacency), sampler)


class Unread(ArraySource):
    """Rows that must not be read."""

    solves = True

    def blocks(self):
        raise AssertionError("a row was read")


@pytest.mark.parametrize("method", ["universal", "noisygd", "bst14", SHORT.replace(noise="gaussian")])
def test_what_cannot_be_pure_is_refused_before_a_row_is_read_or_anything_spent(tmp_path, method):
    budget = Budget(1.0, 0.0, "replace_one") if method == "bst14" else PURE
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", budget, "basic", limit_of("basic", budget))
    with pytest.raises(InputError, match="pure differential privacy"):
        private_train(Unread(ROWS, 100), method, budget, ledger=ledger)
    assert not ledger.entries()


def test_a_choice_among_runs_is_not_pure():
    with pytest.raises(InputError, match="proved for a delta above 0"):
        private_tuning(ROWS, [SHORT], PURE)


@pytest.mark.parametrize(
    ("method", "budget"),
    [
        ("scs13", PURE),
        ("scs13", Budget(1.0, 1e-6)),
        ("bst14", Budget(1.0, 1e-6, Adjacency.REPLACE_ONE)),
    ],
    ids=str,
)
def test_rivals_that_take_the_whole_budget_at_once_verify(tmp_path, capsys, method, budget):
    accountant = "basic" if method == "scs13" else None
    card = private_train(ROWS, method, budget, accountant=accountant).card
    assert (card.accountant, card.delta) == ("basic", budget.delta)
    (tmp_path / "card.json").write_text(card.to_json())
    assert main(["account", "--card", str(tmp_path / "card.json"), "--verify", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["holds"], report["rehearsed"]) == (True, True)
    assert report["independent"]["epsilon"] == pytest.approx(1.0, rel=1e-4)


def test_one_pure_query_takes_the_accountant_that_prices_it_best():
    """Priced as zCDP it would have several times the noise."""
    named = describe(SHORT, "mine", MODELS["logistic"])
    assert named.accountant == "basic"
    least = {
        name: float(Filter(name, Budget(1.0, 1e-6)).price_list().noise_multiplier(jnp.float32(limit), "gamma"))
        for name in ("basic", "rdp")
        for limit in [Filter(name, Budget(1.0, 1e-6)).limit]
    }
    assert least["rdp"] > 4 * least["basic"]
    assert describe(dataclasses.replace(SHORT, noise="gaussian"), "mine", MODELS["logistic"]).accountant == "gdp"


def test_the_signal_of_a_pure_budget_is_the_gaussian_that_covers_it():
    """mu-Gaussian-DP whose trade-off curve is nowhere above that of epsilon-privacy and touches it."""
    for epsilon in (0.1, 1.0, 5.0):
        mu, alpha = _signal(epsilon, 0.0), np.linspace(1e-9, 1 - 1e-9, 4001)
        gaussian = stats.norm.cdf(stats.norm.ppf(1 - alpha) - mu)
        pure = np.maximum(np.maximum(0.0, 1 - np.exp(epsilon) * alpha), np.exp(-epsilon) * (1 - alpha))
        assert (gaussian <= pure + 1e-9).all()
        assert (pure - gaussian).min() < 1e-3
    assert math.isfinite(_signal(1e6, 0.0))


@pytest.mark.parametrize("classes", [1, 3])
def test_gamma_noise_is_pure_by_brute_force(classes):
    """Answers on neighbours whose results are as far apart as may be: no event's odds differ by more than e^epsilon."""
    size, m, draws = 2, 0.5, 200_000
    start, no_delta = jnp.zeros(size * classes), jnp.float32(-jnp.inf)
    query = PassDescent(MODEL, SHORT.plan(MODEL), start, jnp.float32(m), no_delta, classes, 1.0, "gamma")
    bound = float(query.bound)

    @jax.jit
    @jax.vmap
    def answers(key):
        return query.release(jnp.zeros(size * classes), KeyNoise(key), Adjacency.ZERO_OUT)

    z = np.asarray(answers(jax.random.split(jax.random.key(0), draws)), np.float64)
    # Each problem moves by bound / K at most: here along its first coordinate.
    shift = np.zeros(size * classes)
    shift[:classes] = bound / classes

    def log_density(at):
        return -np.sqrt(np.square(at.reshape(-1, size, classes)).sum(1)).sum(1) / (m * bound)

    assert (log_density(z) - log_density(z - shift)).max() <= 1 / m + 1e-9
    # The density is the one that was drawn from: lengths are Gamma(size) in units of m * bound.
    lengths = np.sqrt(np.square(z.reshape(-1, size, classes)).sum(1)).ravel() / (m * bound)
    assert stats.kstest(lengths[:20_000], stats.gamma(size).cdf).pvalue > 1e-4
    # Events far along the shift come close to the bound, so nothing smaller than e^epsilon would hold.
    event = (z.reshape(-1, size, classes)[:, 0] > bound).all(1).mean()
    moved = (z.reshape(-1, size, classes)[:, 0] + bound / classes > bound).all(1).mean()
    assert event * math.exp(1 / m) * 1.05 > moved > event * 1.5


def test_dp_accounting_agrees_on_queries_that_are_private_as_a_whole():
    for mechanism, delta in (("gamma", 0.0), ("gumbel", 1e-6), ("objective", 1e-6)):
        filter = Filter("basic", Budget(0.5, delta))
        assert compose(filter, [Answered(1, mechanism, 2.0)], False).epsilon == pytest.approx(0.5, rel=1e-4)
        # A query too many or too little noise is found out.
        assert compose(filter, [Answered(1, mechanism, 2.0)] * 2, False).epsilon > 0.9
        assert compose(filter, [Answered(1, mechanism, 1.8)], False).epsilon > 0.55


@pytest.mark.parametrize("name", planning.names())
@pytest.mark.parametrize("options", [("--epsilon", "1", "--steps", "5"), ("--epsilon", "1", "--noise-multiplier", "5")])
def test_gaussian_steps_are_not_planned_for_delta_0(capsys, name, options):
    words = ["account", "--delta", "0", "--accountant", name, *options]
    assert main(words) == 2
    assert "delta is 0, which asks for pure differential privacy" in capsys.readouterr().err


def test_a_plan_for_delta_0_is_refused_in_a_sentence(capsys):
    assert main(["plan", "--rows", "3000", "--features", "2", "--epsilon", "1", "--delta", "0"]) == 2
    assert "delta is 0, which asks for pure differential privacy" in capsys.readouterr().err
