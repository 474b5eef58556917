"""Private training in one call: its refusals, its certificates, and the noise of a release."""

import csv
import dataclasses
import functools
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import scipy.stats

import l2p
from l2p.base import struct
from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.set_up import set_up
from l2p.models import Logistic
from l2p.privacy import Adjacency, Budget, Filter
from l2p.privacy.accountants import find
from l2p.privacy.card.events import decode_events
from l2p.privacy.cost.sampling import FixedSize, PermutationEpochs, Poisson
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.protectors import HAND_DESIGNED
from l2p.queries import ClippedGradient, FeatureSum
from l2p.release import api, private_run, run_noise
from l2p.run.protector import Protector
from l2p.run.run import run
from l2p.tables.schema import Number, Schema, Target
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource, RowSource
from l2p.task.task import Task
from meta_train.training.untrained import BUILDERS

BUDGET = Budget(2.0, 1e-6)
NUM_ROWS, NUM_FEATURES = 2000, 4


def table(num_rows=NUM_ROWS, seed=0):
    """Rows whose label is decided by a linear function of the features."""
    x = np.random.default_rng(seed).uniform(size=(num_rows, NUM_FEATURES)).astype(np.float32)
    y = (x @ np.array([3, -2, 1, 0]) > 1).astype(np.float32)
    return Rows(x, y, np.ones(num_rows, np.float32))


def accuracy(result, rows):
    return float(jnp.mean(Logistic().predict(result.params, jnp.asarray(rows.x)) == rows.y))


@struct.dataclass
class Echo(Protector):
    """Releases the noised gradient sum at zero, and asks for it in every step."""

    noise_multiplier: jax.Array
    clip_norm: jax.Array
    num_steps: int = struct.field(pytree_node=False, default=1)
    adaptive_noise = False

    def init(self, params, oracle):
        return params, ()

    def step(self, params, state, oracle):
        query = ClippedGradient(
            oracle.setup.model,
            jnp.zeros_like(params),
            FeatureMap.identity(params.shape[0] - 1),
            self.clip_norm,
            self.noise_multiplier,
        )
        return oracle.ask(query), state

    def finish(self, params, state, setup):
        return params


def echo(noise_multiplier, num_steps=1):
    return Echo(jnp.float32(noise_multiplier), jnp.float32(1.0), num_steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["noisygd", "agd"])
def test_a_release_learns_as_a_simulation_does(name):
    rows, fresh, budget = table(), table(seed=1), Budget(20.0, 1e-6)
    released = l2p.private_train(rows, name, budget)
    simulated = l2p.private_train(rows, name, budget, key=jax.random.key(0))
    # Over 150 releases AGD's accuracy had a mean of 0.979 and a standard deviation of 0.008 (at epsilon 2, 0.03), and
    # noisygd's one of 0.001, so that both bounds are 10 deviations away; without learning it is 0.5.
    assert accuracy(released, fresh) == pytest.approx(accuracy(simulated, fresh), abs=0.1)
    assert min(accuracy(released, fresh), accuracy(simulated, fresh)) > 0.8
    assert released.card.private_release
    assert "256 bits from the operating system, expanded by ChaCha20" in released.card.to_text().replace("\n", " ")
    assert not simulated.card.private_release
    assert "ChaCha20" not in simulated.card.randomness


@pytest.mark.slow(but=["add_remove"])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_releases_noise_has_the_scale_its_card_states(adjacency):
    multiplier, runs = 10.0, 100
    x = np.random.default_rng(0).uniform(size=(50, 63)).astype(np.float32)
    rows = Rows(x, np.ones(50, np.float32), np.ones(50, np.float32))
    budget = Budget(1.0, 1e-3, adjacency)
    results = [l2p.private_train(rows, echo(multiplier), budget, num_rows=50) for _ in range(runs)]
    released = np.stack([np.asarray(result.params, np.float64) for result in results])

    columns = np.column_stack([x, np.full(50, 0.5)]).astype(np.float64)
    gradients = -0.5 * columns  # sigmoid(0) - 1
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    clean = (gradients * np.minimum(1, 1 / norms)).sum(0)
    sigma = results[0].card.events[0]["queries"][0][1] * adjacency.sensitivity_factor
    noise = (released - clean).ravel()  # 6,400 draws, whose std has a standard error of 0.9 %

    assert results[0].card.events == [{"steps": [1, 1], "queries": [["gaussian", multiplier]]}]
    assert noise.std() == pytest.approx(sigma, rel=0.05)
    assert scipy.stats.kstest(noise / sigma, "norm").pvalue > 1e-6
    # Power: noise 15 % too small or too large is detected; in 200 simulated trials p stayed below 4e-7, against a
    # threshold of 1e-3 here. The thresholds are far apart because a release's noise cannot be fixed by a seed.
    for factor in (0.85, 1 / 0.85):
        assert scipy.stats.kstest(noise * factor / sigma, "norm").pvalue < 1e-3
    assert len(np.unique(noise)) > 0.99 * noise.size


def test_no_two_releases_and_every_two_simulations_are_alike():
    rows, key = table(200), jax.random.key(3)
    first, second = (l2p.private_train(rows, "noisygd", Budget(2.0, 1e-4)).params for _ in range(2))
    assert not np.any(first == second)
    again, same = (l2p.private_train(rows, "noisygd", Budget(2.0, 1e-4), key=key) for _ in range(2))
    chex.assert_trees_all_equal(again.params, same.params)


@pytest.mark.slow
def test_a_simulation_in_chunks_is_the_one_run(monkeypatch):
    monkeypatch.setattr(private_run, "CHUNK", 7)
    rows, key = table(200), jax.random.key(3)
    budget = Budget(2.0, 1e-4)
    result = l2p.private_train(rows, "agd", budget, key=key)
    setup = l2p.Setup.create(Logistic(), budget.adjacency, Filter("rdp", budget).price_list(), 200)
    params, final, _, _ = jax.jit(run)(api.load("agd", budget), jnp.zeros(NUM_FEATURES + 1), rows, setup, key)
    assert result.steps == int(final.step)
    np.testing.assert_allclose(result.params, params, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, jax.random.key(0)], ids=["release", "simulation"])
def test_a_run_that_exhausts_its_budget_stops_early_and_says_so(key):
    mu = np.sqrt(Filter("gdp", BUDGET).limit)
    protector = echo(np.sqrt(5.5) / mu, num_steps=1000)  # five fit, the sixth does not
    result = l2p.private_train(table(), protector, BUDGET, key=key)
    assert (result.steps, result.stop_reason, len(result.trace)) == (5, "budget", 5)
    assert result.card.events[0]["steps"] == [1, 5]
    assert result.card.epsilon_certified < BUDGET.epsilon
    assert l2p.private_train(table(), protector.replace(num_steps=5), BUDGET, key=key).stop_reason == "max_steps"


@pytest.mark.slow(but=["agd"])
@pytest.mark.parametrize("name", ["noisygd", "agd"])
def test_the_card_prices_again_to_what_was_certified(name):
    card = l2p.private_train(table(), name, BUDGET).card
    certified = card.filter().certify(card.answered(), card.adaptive_noise)
    assert card.epsilon_certified == certified <= BUDGET.epsilon
    assert len(card.answered()) == sum(kind["count"] for kind in card.mechanisms)
    assert all(float(np.float32(query.noise_multiplier)) == query.noise_multiplier for query in card.answered())
    assert card.theorem == find(card.accountant).theorem
    json.loads(card.to_json())


@pytest.mark.slow
def test_a_checkpoint_brings_its_accountant_sources_and_range(tmp_path):
    path = tmp_path / "paper.safetensors"
    ranges = {"log_signal": [0.7, 8.7], "num_features": [24, 104]}
    card = {"sources": ["adult"], "accountant": "ctcdp", "range": ranges}
    checkpoint.save(BUILDERS["paper"](jax.random.key(0)), path, card)
    result = l2p.private_train(table(), str(path), BUDGET)
    assert result.card.accountant == "ctcdp"
    assert result.card.adaptive_noise
    assert result.card.epsilon_certified == BUDGET.epsilon
    assert result.card.protector["sources"] == ["adult"]
    assert result.card.protector["sha256"] == checkpoint.load(path).sha256
    out_of_range, nothing_learned = result.card.warnings
    assert "4 features are outside the protector's range, 24 to 104" in out_of_range
    assert nothing_learned == result.learned  # its networks are untrained
    assert any("adult" in sentence for sentence in result.card.not_private)


@pytest.mark.slow
def test_outside_its_range_the_control_runs_in_place_of_a_protector(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path,))
    wide, narrow = ({"num_features": ends, "log_signal": [0.7, 8.7]} for ends in ([2, 9], [24, 104]))
    start = BUILDERS["control"](jax.random.key(0))
    checkpoint.save(start, tmp_path / "control-mine.safetensors", {"sources": ["adult"], "range": wide})
    control = checkpoint.load("control-mine")
    card = {
        "sources": ["adult"],
        "config": {"warm_start": "control-mine"},
        "warm_start_arrays_sha256": control.arrays_sha256,
    }
    path, key = tmp_path / "mine.safetensors", jax.random.key(1)
    louder = dataclasses.replace(start, averaging=start.averaging + 2.0)
    checkpoint.save(louder, path, card | {"range": narrow})

    params = l2p.private_train(table(), "control-mine", BUDGET, key=key).params
    result = l2p.private_train(table(), "mine", BUDGET, key=key)
    np.testing.assert_array_equal(result.params, params)
    assert (result.card.protector["name"], result.card.protector["sha256"]) == ("control-mine", control.sha256)
    assert result.card.warnings == ["mine was not trained for this range; its control control-mine runs instead."]
    # Inside its range it runs itself, also if only the control's card has changed.
    checkpoint.save(start, tmp_path / "control-mine.safetensors", {"sources": ["adult"], "range": wide, "more": 1})
    assert l2p.private_train(table(), "mine", BUDGET, key=key).card.protector["name"] == "control-mine"
    checkpoint.save(louder, path, card | {"range": wide})
    assert not np.array_equal(l2p.private_train(table(), "mine", BUDGET, key=key).params, params)
    # A control has no networks, so it runs itself everywhere.
    checkpoint.save(louder, tmp_path / "control-other.safetensors", card | {"range": narrow})
    other = l2p.private_train(table(), "control-other", BUDGET, key=key)
    assert other.card.protector["name"] == "control-other"
    checkpoint.save(louder, path, card | {"range": narrow, "warm_start_arrays_sha256": "0" * 64})
    changed = l2p.private_train(table(), "mine", BUDGET, key=key)
    assert changed.card.protector["name"] == "mine"
    assert "range, 24 to 104" in changed.card.warnings[0]


def test_where_its_networks_gained_nothing_a_protectors_control_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path,))
    start = BUILDERS["control"](jax.random.key(0))
    checkpoint.save(start, tmp_path / "control-mine.safetensors", {"sources": ["adult"]})
    control = checkpoint.load("control-mine").arrays_sha256
    here = float(set_up(resolve("control-mine", BUDGET, "logistic"), BUDGET, Logistic(), 4, 100)[2].log_signal)

    def names(mean, error, edge, by_model=None, **by_source):
        """What runs with a gain of `mean` up to log(mu N) = `edge` and none above; by source and model, other gains."""
        gains = {"log_signal": [0.0, edge, 9.0], "mean": [mean, 0.0], "standard_error": [error, 0.01]}
        for part, parts in (("by_source", by_source), ("by_model", by_model)):
            if parts is not None:
                gains[part] = {name: {"mean": [m, 0.0], "standard_error": [e, 0.01]} for name, (m, e) in parts.items()}
        card = {"sources": ["adult"], "config": {"warm_start": "control-mine"}, "warm_start_arrays_sha256": control}
        checkpoint.save(start, tmp_path / "mine.safetensors", card | {"held_out": {"gains": gains}})
        named, _, _, warnings = set_up(resolve("mine", BUDGET, "logistic"), BUDGET, Logistic(), 4, 100)
        return named.name, warnings

    assert names(0.05, 0.01, here + 0.1) == ("mine", [])
    said = [
        "At this budget control-mine runs: on held-out tasks the networks of mine did no better than it, over all of "
        "them or with this model, or did worse on those of one source."
    ]
    assert names(0.05, 0.03, here + 0.1) == ("control-mine", said)
    assert names(-0.05, 0.01, here + 0.1) == ("control-mine", said)
    assert names(0.05, 0.01, here - 0.1) == ("control-mine", said)
    assert names(0.05, 0.01, here + 0.1, adult=(0.2, 0.01), digits=(-0.01, 0.01)) == ("mine", [])
    assert names(0.05, 0.01, here + 0.1, adult=(0.2, 0.01), digits=(-0.03, 0.01)) == ("control-mine", said)
    # Where gains are known by model, a loss on one source is no loss of all models with it.
    gained, little, lost = (0.2, 0.01), (0.01, 0.01), (-0.01, 0.01)
    assert names(0.05, 0.01, here + 0.1, {"logistic": gained, "svm": lost}, digits=(-0.03, 0.01)) == ("mine", [])
    assert names(0.05, 0.01, here + 0.1, {"logistic": little, "svm": gained}) == ("mine", [])
    assert names(0.05, 0.01, here + 0.1, {"logistic": lost, "svm": gained}) == ("control-mine", said)
    assert names(0.05, 0.03, here + 0.1, {"logistic": gained, "svm": gained}) == ("control-mine", said)


@pytest.mark.slow
def test_a_signal_outside_the_trained_range_is_a_warning(tmp_path):
    path = tmp_path / "mine.safetensors"
    checkpoint.save(BUILDERS["control"](jax.random.key(0)), path, {"sources": [], "range": {"log_signal": [7.9, 8.7]}})
    assert "is below the protector's range" in l2p.private_train(table(), str(path), BUDGET).card.warnings[0]
    many = l2p.private_train(table(), str(path), Budget(2.0, 1e-12), num_rows=10**4, key=jax.random.key(0))
    assert many.card.warnings == []
    assert many.card.num_rows == 10**4


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({"protector": "nonprivate"}, "without noise"),
        ({"protector": "censos"}, "unknown"),
        ({"model": "forest"}, "model 'forest' is unknown"),
        ({"accountant": "fourier"}, "accountant 'fourier' is unknown"),
        ({"accountant": "paper_13"}, "no theorem for full batch"),
        ({"accountant": "pld"}, "no theorem for full batch"),
        ({"protector": "agd", "accountant": "pld"}, "no theorem for full batch"),
        ({"protector": "plain-adult", "accountant": "pld"}, "no theorem for full batch"),
        ({"protector": "dpsgd", "accountant": "gdp"}, "no theorem for Poisson"),
        ({"protector": "agd", "accountant": "gdp"}, "cannot price"),
        ({"budget": Budget(1.0, 1e-3)}, "below 1/N"),
        ({"num_rows": 10**7}, "below 1/N"),
        ({"params": np.zeros(3, np.float32)}, "params have shape"),
        ({"key": 0}, "needs a JAX key"),
        ({"model": "square", "kind": "multiclass"}, "model square learns a regression or binary target"),
    ],
)
def test_what_does_not_fit_is_refused_before_rows_are_read(options, phrase):
    arguments = {"protector": "noisygd", "budget": BUDGET} | options
    shapes = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, table()))  # rows that cannot be read
    with pytest.raises(InputError, match=phrase):
        l2p.private_train(shapes, arguments.pop("protector"), arguments.pop("budget"), **arguments)


def test_rows_of_the_wrong_shape_are_refused():
    rows = table()
    with pytest.raises(InputError, match=r"x, y and mask have 2, 2 and 1 axes, but must be \[n, d\], \[n\] and \[n\]"):
        l2p.private_train(rows.replace(y=rows.y[:, None]), "noisygd", BUDGET)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [2.0, 0.5, -1.0, np.nan])
def test_only_a_simulation_may_weigh_rows(weight):
    rows = table()
    rows.mask[7] = weight
    with pytest.raises(InputError, match="other than 0 and 1"):
        l2p.private_train(rows, "noisygd", BUDGET)
    l2p.private_train(rows, "noisygd", BUDGET, key=jax.random.key(0))


@pytest.mark.slow
def test_null_rows_and_rows_that_are_not_finite_contribute_nothing():
    rows, key = table(), jax.random.key(0)
    null = dataclasses.replace(rows, mask=np.where(np.arange(NUM_ROWS) < 50, 0, rows.mask).astype(np.float32))
    broken = dataclasses.replace(rows, x=np.where(np.arange(NUM_ROWS)[:, None] < 50, np.nan, rows.x))
    first, second = (l2p.private_train(part, "noisygd", BUDGET, key=key).params for part in (null, broken))
    np.testing.assert_array_equal(first, second)
    assert np.all(np.isfinite(l2p.private_train(broken, "noisygd", BUDGET).params))


def test_public_rows_are_named_on_the_card():
    task = Task(private=table(), public=table(30, seed=2))
    card = l2p.private_train(task, "noisygd", BUDGET).card
    assert any("30 public rows" in sentence for sentence in card.not_private)


def test_a_contradicted_filter_withholds_the_result(monkeypatch):
    monkeypatch.setattr("l2p.privacy.cap.filter.Filter.spent", lambda self, answered: np.inf)
    with pytest.raises(RuntimeError, match="withhold the result"):
        l2p.private_train(table(), "noisygd", BUDGET)


@pytest.mark.parametrize("lines", [NUM_ROWS, NUM_ROWS - 100])
def test_noise_is_planned_once_for_the_lines_that_there_are(monkeypatch, lines):
    plan, planned = run_noise.plan_noise, []
    monkeypatch.setattr(run_noise, "plan_noise", lambda *args: planned.append(args[2]) or plan(*args))
    budget = dataclasses.replace(BUDGET, adjacency="add_remove")
    l2p.private_train(table(lines), "noisygd", budget, num_rows=NUM_ROWS)
    assert planned == [lines]


def test_a_run_compiles_once_for_all_budgets(monkeypatch):
    chex.clear_trace_counter()
    traced = jax.jit(chex.assert_max_traces(private_run.advance, n=1), static_argnames="num_steps")
    monkeypatch.setattr(private_run, "_advance", traced)
    for epsilon in (0.5, 1.0, 2.0):
        l2p.private_train(table(), "noisygd", Budget(epsilon, 1e-6))


def test_a_saved_result_predicts_from_its_files_alone(tmp_path):
    rows = table()
    result = l2p.private_train(rows, "noisygd", BUDGET)
    columns, bounds = ["a", "b", "c", "d"], dict.fromkeys("dcba", (-1.0, 1.0))
    result.save(tmp_path / "new", columns, bounds, (2.0, 5.0), "label")
    with safetensors.safe_open(tmp_path / "new" / "model.safetensors", framework="numpy") as file:
        weights, bias, metadata = file.get_tensor("weights"), file.get_tensor("bias"), file.metadata()
    assert (weights.dtype, weights.shape, bias.shape) == (np.float32, (NUM_FEATURES,), (1,))
    assert metadata["model"] == "logistic"
    assert json.loads(metadata["columns"]) == columns
    assert json.loads(metadata["bounds"]) == {name: [-1.0, 1.0] for name in "abcd"}
    assert (json.loads(metadata["classes"]), json.loads(metadata["target"])) == ([2.0, 5.0], "label")
    expected = Logistic().margin(result.params, jnp.asarray(rows.x))
    np.testing.assert_allclose(rows.x @ weights + bias, expected, rtol=1e-4, atol=1e-4)

    assert l2p.Card.from_json(tmp_path / "new" / "card.json") == result.card
    assert (tmp_path / "new" / "card.txt").read_text() == result.card.to_text()


def test_the_trace_has_one_line_per_granted_query(tmp_path):
    result = l2p.private_train(table(), "agd", BUDGET)
    result.save(tmp_path, list("abcd"), dict.fromkeys("abcd", (0.0, 1.0)), None, "label")
    with (tmp_path / "trace.csv").open() as file:
        lines = list(csv.DictReader(file))
    header = "step,query,mechanism,noise_multiplier,sampling_rate,clip_norm,cost,spent,share_spent"
    assert ",".join(lines[0]) == header
    assert len(lines) == sum(kind["count"] for kind in result.card.mechanisms)
    assert {line["sampling_rate"] for line in lines} == {"1.0"}
    assert {line["mechanism"] for line in lines} == {"gaussian", "exponential"}
    shares = [float(line["share_spent"]) for line in lines]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 1 + 1e-6


# ------------------------------------------------------------------------------------------------------------ batches
def centred(sampler, **fields):
    """DP-SGD on batches, after a query for the mean of all rows."""
    purchases = BUILDERS["control"](jax.random.key(0)).purchases
    return dataclasses.replace(HAND_DESIGNED["noisygd"](BUDGET), sampler=sampler, purchases=purchases, **fields)


@functools.cache
def poisson_run(accountant=None):
    return l2p.private_train(table(), "dpsgd", BUDGET, accountant=accountant)


def read_card(card, folder):
    (folder / "card.json").write_text(card.to_json())
    return l2p.Card.from_json(folder / "card.json")


@pytest.mark.parametrize("accountant", [None, "ctcdp"])
def test_dpsgd_is_a_release_that_learns_from_batches_and_whose_card_says_so(accountant, tmp_path):
    result = poisson_run(accountant)
    card = result.card
    assert accuracy(result, table(seed=1)) > 0.85  # 0.97 with a standard deviation of 0.009, over 80 releases
    assert (card.accountant, card.private_release, card.steps) == (accountant or "rdp", True, 200)
    assert card.sampler == {"name": "Poisson", "sampling_rate": 0.05}
    assert card.envelope is None
    assert 0.99 * BUDGET.epsilon < card.epsilon_certified <= BUDGET.epsilon
    assert card.filter().certify(card.answered(), card.adaptive_noise) == card.epsilon_certified
    assert read_card(card, tmp_path) == card
    # On all rows the same queries would cost far more.
    whole = Filter("gdp", BUDGET)
    assert whole.spent(card.answered()) > 10 * whole.limit


SAMPLERS = {
    "Poisson": (Poisson(0.05), Adjacency.ADD_REMOVE, "rdp"),
    "Poisson, replace_one": (Poisson(0.05), Adjacency.REPLACE_ONE, "rdp"),
    "fixed-size": (FixedSize(100, NUM_ROWS), Adjacency.REPLACE_ONE, "rdp"),
    "permutation epochs": (PermutationEpochs(300, NUM_ROWS), Adjacency.ZERO_OUT, "gdp"),
}


def test_under_add_remove_n_is_declared_and_never_read_off_the_table():
    budget = Budget(2.0, 1e-6, Adjacency.ADD_REMOVE)
    with pytest.raises(InputError, match="pass num_rows"):
        l2p.private_train(table(), "noisygd", budget)
    cards = [l2p.private_train(table(rows), "noisygd", budget, num_rows=2000).card for rows in (2000, 1999)]
    assert [card.num_rows for card in cards] == [2000, 2000]
    assert any("N as it was declared" in sentence for sentence in cards[0].not_private)
    # A simulation has no guarantee, but its card is printed like any other.
    with pytest.raises(InputError, match="pass num_rows"):
        l2p.private_train(table(), "noisygd", budget, key=jax.random.key(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_trace_states_for_every_query_how_likely_a_row_was_read(name, tmp_path):
    sampler, adjacency, accountant = SAMPLERS[name]
    budget = Budget(2.0, 1e-6, adjacency)
    result = l2p.private_train(table(), centred(sampler, num_steps=20), budget, num_rows=NUM_ROWS)
    card = result.card
    result.save(tmp_path, list("abcd"), dict.fromkeys("abcd", (0.0, 1.0)), None, "label")
    with (tmp_path / "trace.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["step"], line["query"]) for line in lines[:2]] == [("0", "feature_mean"), ("1", "clipped_gradient")]
    assert [float(line["sampling_rate"]) for line in lines] == [1.0] + [sampler.rate()] * 20
    assert 0.98 < float(lines[-1]["share_spent"]) <= 1 + 1e-6
    assert (card.accountant, card.sampler["name"]) == (accountant, sampler.name)
    assert card.filter().certify(card.answered(), card.adaptive_noise) == card.epsilon_certified <= budget.epsilon
    assert card.filter().sampler == sampler
    assert l2p.Card.from_json(tmp_path / "card.json") == card


@pytest.mark.slow
def test_a_run_on_batches_streams():
    rows = table()
    result = l2p.private_train(ArraySource(rows, 512), centred(Poisson(0.05), num_steps=6), BUDGET)
    assert result.card.sampler["name"] == "Poisson"
    assert (result.steps, result.card.private_release) == (6, True)
    assert result.card.epsilon_certified > 0.98 * BUDGET.epsilon


@pytest.mark.slow(cases=["None"])
@pytest.mark.parametrize("num_rows", [None, 1990, 2010])
def test_a_declared_number_of_rows_is_also_the_samplers(num_rows, tmp_path):
    budget, protector = Budget(2.0, 1e-6, Adjacency.REPLACE_ONE), centred(FixedSize(100, NUM_ROWS), num_steps=5)
    if num_rows is None:
        card = l2p.private_train(table(), protector, budget).card
        assert read_card(card, tmp_path) == card  # a card has to be readable again
    else:
        with pytest.raises(InputError, match=f"set up for 2000 rows, but the table has {num_rows}"):
            l2p.private_train(table(), protector, budget, num_rows=num_rows)


@pytest.mark.slow
def test_a_privacy_loss_distribution_buys_dpsgd_less_noise_and_certifies_its_envelope(tmp_path):
    filter_run, envelope_run = poisson_run(), poisson_run("pld")
    card = envelope_run.card
    assert (card.accountant, card.steps, card.adaptive_noise) == ("pld", 200, False)
    assert 0.99 * BUDGET.epsilon < card.epsilon_certified <= BUDGET.epsilon
    envelope = decode_events(card.envelope)
    assert [query.step for query in envelope] == list(range(1, 201))
    least = np.array([query.noise_multiplier for query in envelope])
    noise = np.array([row.noise_multiplier for row in envelope_run.trace])
    assert np.all(noise >= least)
    assert np.all(noise < 1.002 * least)
    assert noise.max() < 0.96 * min(row.noise_multiplier for row in filter_run.trace)
    assert card.filter().certify(card.answered(), card.adaptive_noise) == card.epsilon_certified
    assert read_card(card, tmp_path) == card


def test_a_privacy_loss_distribution_is_refused_where_noise_depends_on_answers():
    paper = dataclasses.replace(BUILDERS["paper"](jax.random.key(0)), sampler=Poisson(0.05))
    with pytest.raises(InputError, match="depends on earlier answers"):
        l2p.private_train(Unread(), paper, BUDGET, accountant="pld")


class Unread(RowSource):
    """Rows that must not be read."""

    num_rows, num_features = NUM_ROWS, NUM_FEATURES

    def blocks(self):
        pytest.fail("a row was read")


# ------------------------------------------------------------------------------------------------------------- ledgers
def ledger_at(path, unit="gdp", epsilon=3.0, delta=1e-5, adjacency=Adjacency.ZERO_OUT):
    budget = Budget(epsilon, delta, adjacency)
    return Ledger.create(path / "ward.ledger", "ward", budget, unit, limit_of(unit, budget))


def test_a_run_is_reserved_in_its_ledger_and_settled(tmp_path):
    ledger = ledger_at(tmp_path)
    card = l2p.private_train(table(), "noisygd", BUDGET, ledger=ledger.path).card
    (entry,) = ledger.entries()
    spent = Filter("gdp", ledger.budget).spent(card.answered())
    assert (entry.state, entry.counted.amount) == ("settled", spent)
    assert spent <= entry.reserved.amount
    assert entry.reserved.amount == pytest.approx(Filter("gdp", BUDGET).limit, rel=1e-6)
    assert card.composition == {
        "data_set": "ward",
        "unit": "gdp: mu^2",
        "reservation": entry.id,
        "spent_before": 0.0,
        "counted": spent,
        "limit": ledger.limit.amount,
    }
    assert read_card(card, tmp_path) == card
    # Another run of this size does not fit and is refused before it reads a row; a smaller one fits.
    with pytest.raises(InputError, match="it must not start"):
        l2p.private_train(Unread(), "noisygd", Budget(3.0, 1e-6), ledger=ledger)
    second = l2p.private_train(table(), "noisygd", Budget(1.0, 1e-6), ledger=ledger).card
    assert second.composition["spent_before"] == spent
    assert [entry.state for entry in ledger.entries()] == ["settled", "settled"]


def test_a_ledger_that_cannot_be_opened_is_refused_before_the_table_is_read(tmp_path):
    schema = Schema({"age": Number(0, 9)}, Target("back", classes=("no", "yes")))
    simulated = {"ledger": ledger_at(tmp_path), "key": jax.random.key(0)}
    for options in ({"ledger": tmp_path / "nosuch.ledger"}, simulated):
        with pytest.raises(InputError, match=r"there is no ledger|a ledger cannot count"):
            l2p.private_train(tmp_path / "nosuch.csv", "noisygd", BUDGET, schema=schema, **options)


@pytest.mark.parametrize(("unit", "accountant"), [("zcdp", "zcdp"), ("gdp", "zcdp"), ("rdp", "gdp"), ("zcdp", "gdp")])
def test_a_ledger_counts_runs_of_other_accountants_in_its_own_unit(tmp_path, unit, accountant):
    ledger = ledger_at(tmp_path, unit)
    card = l2p.private_train(table(), "noisygd", BUDGET, accountant=accountant, ledger=ledger).card
    (entry,) = ledger.entries()
    assert card.composition["counted"] == entry.counted.amount == Filter(unit, ledger.budget).spent(card.answered())
    assert 0.999 * entry.reserved.amount < entry.counted.amount <= entry.reserved.amount < ledger.limit.amount


def test_a_basic_ledger_counts_runs_on_batches_by_their_epsilon_and_other_units_refuse_them(tmp_path):
    ledger = ledger_at(tmp_path, "basic")
    card = l2p.private_train(table(), "dpsgd", BUDGET, ledger=ledger).card
    (entry,) = ledger.entries()
    assert entry.counted == (card.epsilon_certified, BUDGET.delta)
    with pytest.raises(InputError, match="must not start"):
        l2p.private_train(Unread(), "dpsgd", BUDGET, ledger=ledger)
    (tmp_path / "sums").mkdir()
    sums = ledger_at(tmp_path / "sums", "rdp")
    with pytest.raises(InputError, match="does not convert to"):
        l2p.private_train(Unread(), "dpsgd", BUDGET, ledger=sums)
    assert sums.entries() == []


def test_a_run_that_crashes_counts_in_full(tmp_path, monkeypatch):
    ledger = ledger_at(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(private_run, "_train", lambda *_: (_ for _ in ()).throw(MemoryError("out of memory")))
        with pytest.raises(MemoryError) as caught:
            l2p.private_train(table(), "noisygd", BUDGET, ledger=ledger)
    (entry,) = ledger.entries()
    (note,) = caught.value.__notes__
    assert (
        f"({entry.id}) stays in the ledger of ward and counts as spent: l2p ledger show {ledger.path} lists it" in note
    )
    assert (entry.state, entry.counted) == ("reserved", entry.reserved)
    with pytest.raises(InputError, match="must not start"):
        l2p.private_train(Unread(), "noisygd", Budget(3.0, 1e-6), ledger=ledger)
    ledger.release(entry.id, "the machine had no memory, before its first query")
    assert l2p.private_train(table(), "noisygd", BUDGET, ledger=ledger).card.composition["spent_before"] == 0.0


def test_an_interrupt_passes_on_with_a_note_on_what_stays_reserved_and_only_on_that(tmp_path, monkeypatch):
    ledger, interrupt = ledger_at(tmp_path), KeyboardInterrupt
    reserve, settle = Ledger.reserve, Ledger.settle
    noted = {}
    for name, method, change in (
        ("before it is reserved", "reserve", lambda *_: (_ for _ in ()).throw(interrupt)),
        ("once it is reserved", "reserve", lambda *args: (reserve(*args), (_ for _ in ()).throw(interrupt))),
        ("before it is settled", "settle", lambda *_: (_ for _ in ()).throw(interrupt)),
        ("once it is settled", "settle", lambda *args: (settle(*args), (_ for _ in ()).throw(interrupt))),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, method, change)
            with pytest.raises(interrupt) as caught:
                l2p.private_train(table(), "noisygd", Budget(0.5, 1e-6), ledger=ledger)
        noted[name] = [
            entry.id in note for note in getattr(caught.value, "__notes__", []) for entry in ledger.entries()[-1:]
        ]
    assert noted == {
        "before it is reserved": [],
        "once it is reserved": [True],
        "before it is settled": [True],
        "once it is settled": [],
    }
    assert [entry.state for entry in ledger.entries()] == ["reserved", "reserved", "settled"]
    with pytest.raises(InputError, match="must not start") as caught:
        l2p.private_train(Unread(), "noisygd", Budget(4.0, 1e-6), ledger=ledger)
    assert not hasattr(caught.value, "__notes__")


def test_a_result_that_is_withheld_counts_in_full(tmp_path, monkeypatch):
    ledger = ledger_at(tmp_path)
    monkeypatch.setattr("l2p.privacy.cap.filter.Filter.spent", lambda self, answered: np.inf)
    with pytest.raises(RuntimeError, match="withhold the result"):
        l2p.private_train(table(), "noisygd", BUDGET, ledger=ledger)
    (entry,) = ledger.entries()
    assert (entry.state, entry.counted) == ("reserved", entry.reserved)


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({"key": jax.random.key(0)}, "a ledger cannot count it as private"),
        ({"budget": Budget(2.0, 1e-6, Adjacency.REPLACE_ONE)}, "counts zero_out neighbours"),
        ({"protector": "agd"}, "exponential"),
        ({"budget": Budget(50.0, 1e-6)}, "must not start"),
        ({"ledger": "nowhere/ward.ledger"}, "there is no ledger"),
    ],
    ids=["simulation", "adjacency", "no price in its unit", "more than there is", "no file"],
)
def test_a_ledger_refuses_what_it_cannot_count_before_rows_are_read(tmp_path, options, phrase):
    ledger = ledger_at(tmp_path)
    arguments = {"protector": "noisygd", "budget": BUDGET, "ledger": ledger} | options
    with pytest.raises(InputError, match=phrase):
        l2p.private_train(Unread(), arguments.pop("protector"), arguments.pop("budget"), **arguments)
    assert ledger.entries() == []


def test_a_ledger_s_delta_must_mean_something_for_the_rows_of_its_runs(tmp_path):
    ledger = ledger_at(tmp_path, delta=1e-3)
    with pytest.raises(InputError, match="below 1/N"):
        l2p.private_train(Unread(), "noisygd", BUDGET, ledger=ledger)
    assert ledger.entries() == []


def test_what_cannot_be_traced_is_refused_before_anything_is_reserved(tmp_path):
    @struct.dataclass
    class Undeclared(Echo):
        mechanisms = ("exponential",)

    ledger = ledger_at(tmp_path, "rdp")
    with pytest.raises(TypeError, match="does not declare"):
        l2p.private_train(
            Unread(), Undeclared(jnp.float32(9.0), jnp.float32(1.0)), BUDGET, accountant="rdp", ledger=ledger
        )
    assert ledger.entries() == []


def test_load_gives_protectors_by_name_or_file(tmp_path):
    assert l2p.load("agd", BUDGET).num_steps == 1024
    with pytest.raises(InputError, match="budget"):
        l2p.load("agd")
    control = BUILDERS["control"](jax.random.key(0))
    checkpoint.save(control, tmp_path / "mine.safetensors", {"sources": []})
    chex.assert_trees_all_equal(l2p.load(tmp_path / "mine.safetensors"), control)


def test_noise_that_selections_have_no_price_for_cannot_be_chosen(tmp_path):
    forged = dataclasses.replace(HAND_DESIGNED["agd"](Budget(1.0, 1e-4)), selection="gaussian")
    with pytest.raises(InputError, match="selection with gaussian noise"):
        api.private_train(table(), forged, Budget(1.0, 1e-4))
    with pytest.raises(InputError, match="its selection is 'gaussian' where exponential or gumbel belongs"):
        checkpoint.save(forged, tmp_path / "forged.safetensors", {"sources": []})


@pytest.mark.slow
def test_noise_that_may_depend_on_answers_is_certified_at_the_cap_unless_said_otherwise():
    @struct.dataclass
    class Careless(Protector):
        num_steps: int = struct.field(pytree_node=False, default=1)

        def init(self, params, oracle):
            return params, ()

        def step(self, params, state, oracle):
            oracle.ask(FeatureSum(params.shape[0] - 1, jnp.float32(1.0), jnp.float32(1e3)))
            return params, state

        def finish(self, params, state, setup):
            return params

    card = api.private_train(table(), Careless(), Budget(1.0, 1e-4)).card
    assert card.adaptive_noise
    assert card.epsilon_certified == 1.0
