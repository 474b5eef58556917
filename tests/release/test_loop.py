"""A loop of one's own with `l2p.optax`: the steps that private_train takes, counted whatever the loop does."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.privacy.card.learned import NOISE, NOTHING, SIGNAL, UNTOLD
from l2p.privacy.independent import compose
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.release.losses.loop_noise import NO_UPDATE
from l2p.release.verification import verify
from tests.release.losses import DATA, NETWORKS, NUM_ROWS, START, cross_entropy, logistic

BUDGET, KEY = l2p.Budget(1.0, 1e-5), jax.random.key(3)
#: Of almost no noise.
GENEROUS = l2p.Budget(1e6, 1e-5)


def planned(method="noisygd", budget=BUDGET, params=START, num_rows=NUM_ROWS, **options):
    return l2p.optax(method, budget, params=params, num_rows=num_rows, **options)


def step_of(transformation, loss=logistic):
    """A compiled step (params, state, batch, mask) -> (params, state)."""

    @jax.jit
    def step(params, state, batch, mask=None):
        total = l2p.clipped_sum(loss, params, batch, transformation.clipping, mask=mask)
        updates, state = transformation.update(total, state, params)
        return optax.apply_updates(params, updates), state

    return step


def trained(transformation, num_steps, params=START, loss=logistic, data=DATA, mask=None):
    step, state = step_of(transformation, loss), transformation.init(params)
    for _ in range(num_steps):
        params, state = step(params, state, data, mask)
    return params, state


@pytest.mark.slow(but=["auto_clip"])
@pytest.mark.parametrize("method", ["noisygd", "auto_clip"])
def test_a_loop_takes_the_steps_that_private_train_takes(method):
    params, _ = trained(planned(method, GENEROUS, num_steps=5, key=KEY), 5)
    protector = l2p.load(method, GENEROUS).replace(num_steps=5)
    result = l2p.private_train(DATA, protector, GENEROUS, model=logistic, params=START, key=KEY)
    np.testing.assert_allclose(np.concatenate(params), np.concatenate(result.params), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_an_optax_optimizer_gets_the_mean_gradient_with_noise_of_the_planned_size():
    adam, clip_norm = optax.adam(0.1), 0.5
    ours = planned(adam, GENEROUS, num_steps=3, sampling_rate=1, clip_norm=clip_norm, key=KEY)
    params, _ = trained(ours, 3)
    state, expected = adam.init(START), START
    for _ in range(3):
        total = l2p.clipped_sum(logistic, expected, DATA, clip_norm)
        mean = jax.tree.map(lambda leaf: leaf / NUM_ROWS, total.tree)
        updates, state = adam.update(mean, state, expected)
        expected = optax.apply_updates(expected, updates)
    np.testing.assert_allclose(np.concatenate(params), np.concatenate(expected), rtol=1e-3)


@pytest.mark.slow
def test_batches_without_a_row_get_the_noise_that_the_card_states():
    params, rate = jnp.zeros(20_000), 0.01
    descent = optax.sgd(1.0)
    ours = planned(descent, params=params, num_steps=10, sampling_rate=rate, clip_norm=2.0, key=KEY)
    loss = lambda params, row: params.sum() * row["x"].sum()  # noqa: E731
    noise, _ = trained(ours, 1, params, loss, mask=np.zeros(NUM_ROWS))
    card = ours.card()
    (multiplier, _) = card.mechanisms[0]["noise_multiplier"]
    assert float(noise.std()) == pytest.approx(multiplier * 2.0 / (rate * NUM_ROWS), rel=0.03)
    assert abs(float(noise.mean())) < 4 * float(noise.std()) / 20_000**0.5
    assert card.sampler == {"name": "Poisson", "sampling_rate": rate}


def test_batches_are_drawn_from_the_loops_own_randomness():
    plans = [planned("dpsgd", num_steps=200, key=key) for key in (KEY, KEY, None)]
    drawn = [[lines[mask] for lines, mask in ours.batches()] for ours in plans]
    assert all(map(np.array_equal, drawn[0], drawn[1]))
    for batches in (drawn[0], drawn[2]):
        assert len(batches) == 200
        assert all(len(set(batch)) == len(batch) for batch in batches)
        counts = np.bincount(np.concatenate(batches), minlength=NUM_ROWS)
        assert counts.mean() == pytest.approx(10, abs=0.8)
        assert counts.std() == pytest.approx((200 * 0.05 * 0.95) ** 0.5, rel=0.2)
    assert len({lines.shape for lines, _ in planned("dpsgd", num_steps=200).batches()}) == 1
    full = list(planned(num_steps=2).batches(num_lines=7))
    assert [lines.tolist() for lines, mask in full if mask.all()] == [list(range(7))] * 2


def test_noise_is_reproduced_by_a_key_and_by_nothing_else():
    runs = [np.concatenate(trained(planned(num_steps=2, key=key), 2)[0]) for key in (KEY, KEY, None, None)]
    assert np.array_equal(runs[0], runs[1])
    assert len({run.tobytes() for run in runs}) == 3


@pytest.mark.long(cases=["linen"])
@pytest.mark.slow
@pytest.mark.parametrize("library", NETWORKS)
def test_networks_of_any_library_are_trained(library):
    params, apply = NETWORKS[library]()
    arrays, rest = eqx.partition(params, eqx.is_inexact_array)
    loss = lambda arrays, row: cross_entropy(apply)(eqx.combine(arrays, rest), row)  # noqa: E731
    ours = planned("dpsgd", params=params, num_steps=2)
    moved, state = trained(ours, 2, arrays, loss, mask=np.arange(NUM_ROWS) % 20 == 0)
    assert jax.tree.structure(moved) == jax.tree.structure(arrays)
    assert int(state.count) == 2
    card = ours.card()
    size = sum(leaf.size for leaf in jax.tree.leaves(arrays))
    assert (card.model, card.steps, card.num_features) == (f"custom:{size}", 2, 4)


@pytest.mark.slow
def test_the_card_is_verified_priced_again_and_says_what_the_loop_vouches_for(tmp_path):
    ours = planned("dpsgd")
    trained(ours, 200, mask=np.ones(NUM_ROWS))
    card = ours.card()
    (tmp_path / "card.json").write_text(card.to_json())
    assert l2p.Card.from_json(tmp_path / "card.json") == card
    findings = verify(card)
    assert (findings.known_by, findings.problems, findings.remarks, findings.rehearsed) == ("name", [], [], True)
    composed = compose(card.filter(), card.answered(), card.adaptive_noise)
    assert composed.epsilon <= card.epsilon_certified * (1 + 1e-6)
    assert card.private_release
    assert card.stop_reason == "max_steps"
    assert card.float_mode.startswith("float32: ")
    assert "each row with the declared probability" in card.not_private[0]
    for edit in ({"float_mode": "exact"}, {"not_private": card.not_private[1:]}, {"steps": 100}):
        assert verify(dataclasses.replace(card, **edit)).problems


def test_a_loop_that_ends_early_is_certified_for_its_whole_budget():
    ours = planned("noisygd")
    trained(ours, 3)
    card = ours.card()
    assert (card.steps, card.max_steps, card.stop_reason, card.epsilon_certified) == (3, 50, "loop", 1.0)
    assert sum(kind["count"] for kind in card.mechanisms) == 3
    assert verify(card).problems == []


@pytest.mark.slow
def test_the_card_says_whether_the_answers_stand_out_from_noise():
    for epsilon, learned in ((50.0, SIGNAL), (0.01, NOISE)):
        ours = planned("noisygd", l2p.Budget(epsilon, 1e-5), num_steps=5, key=KEY)
        trained(ours, 5)
        assert ours.card().learned == learned
    alone = planned(num_steps=5)
    trained(alone, 1)
    assert alone.card().learned == UNTOLD
    assert planned(num_steps=5).card().learned == NOTHING


def test_an_answer_that_is_thrown_away_counts():
    ours = planned(num_steps=5)
    step, state = step_of(ours), ours.init(START)
    first, second = step(START, state, DATA), step(START, state, DATA)  # from one state
    assert not np.array_equal(np.concatenate(first[0]), np.concatenate(second[0]))
    assert int(second[1].count) == 2
    totals = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), first[0])
    jax.vmap(lambda params: step(params, second[1], DATA))(totals)
    assert ours.card().steps == 4


def test_a_program_of_another_loop_adds_no_noise_to_this_one():
    loops = []

    @jax.jit
    def step(params, state):  # which reads the newest loop where it is traced, as a cell of a notebook may
        return loops[-1].update(l2p.clipped_sum(logistic, params, DATA, loops[-1].clipping), state, params)

    for _ in range(2):
        loops.append(planned(num_steps=3))
        _, state = step(START, loops[-1].init(START))
        step(START, state)
    assert [ours.card().steps for ours in loops] == [2, 2]
    assert step._cache_size() == 2


def test_a_loop_that_goes_on_from_a_saved_state_counts_on():
    ours = planned(num_steps=5)
    params, state = trained(ours, 3)
    again = planned(num_steps=5)
    assert len(list(again.batches(state))) == 2
    step, saved = step_of(again), jax.tree.map(jnp.asarray, jax.device_get(state))
    params, state = step(params, saved, DATA)
    step(params, state, DATA)
    with pytest.raises(InputError, match=r"beyond the 5 that noise is planned for"):
        again.update(l2p.clipped_sum(logistic, params, DATA, again.clipping), state.replace(count=jnp.int32(5)), params)
    assert again.card().steps == 5


@pytest.mark.parametrize(
    "other",
    [{"budget": l2p.Budget(8.0, 1e-5)}, {"key": KEY}, {"num_rows": NUM_ROWS + 1}, {"num_steps": 6}],
    ids=["another budget", "a simulation", "another number of rows", "another number of steps"],
)
def test_a_loop_goes_on_from_no_state_of_another_plan(other):
    """Its card would say that the answers before had this plan's noise."""
    before = planned(**{"num_steps": 5, **other})
    params, state = trained(before, 2)
    again = planned(num_steps=5)
    total = l2p.clipped_sum(logistic, params, DATA, again.clipping)
    for refused in (lambda: again.update(total, state, params), lambda: again.batches(state)):
        with pytest.raises(InputError, match="of a loop that was planned otherwise"):
            refused()
    with pytest.raises(jax.errors.JaxRuntimeError, match="of a loop that was planned otherwise"):
        jax.block_until_ready(step_of(again)(params, state, DATA))
    card = again.card()
    assert card.steps == 0
    assert NO_UPDATE in card.warnings


def test_steps_beyond_the_plan_and_after_the_card_are_refused():
    ours = planned(num_steps=2)
    step = step_of(ours)
    params, state = trained(ours, 2)
    total = l2p.clipped_sum(logistic, params, DATA, ours.clipping)
    with pytest.raises(InputError, match="beyond the 2 that noise is planned for, and the budget covers no more; end"):
        ours.update(total, state, params)
    with pytest.raises(jax.errors.JaxRuntimeError, match="beyond the 2 that noise is planned for"):
        jax.block_until_ready(step(params, state, DATA))
    assert ours.card().steps == 2
    with pytest.raises(InputError, match="after card"):
        ours.update(total, ours.init(START), START)
    with pytest.raises(InputError, match="has given its card already"):
        ours.card()


def test_the_ledger_reserves_the_loop_and_settles_it(tmp_path):
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "gdp", limit_of("gdp", BUDGET))
    ours = planned(ledger=ledger)
    (entry,) = ledger.entries()
    assert entry.state == "reserved"
    with pytest.raises(InputError, match="this run asks for"):
        planned(ledger=ledger)
    trained(ours, 10)
    card = ours.card()
    (entry,) = ledger.entries()
    assert (entry.state, entry.counted.amount) == ("settled", card.composition["counted"])
    assert entry.counted.amount == pytest.approx(entry.reserved.amount / 5, rel=1e-3)


def test_it_chains_and_scans_and_frozen_parameters_stay():
    params = {"head": START, "base": jnp.ones(3), "tables": jnp.arange(3)}
    ours = planned(params=params, trainable=lambda path: path.startswith("head"), num_steps=4)
    halved = optax.chain(ours, optax.scale(0.5))

    def loss(params, row):
        return logistic(params["head"], row) + params["base"].sum()

    def step(carry, _):
        params, state = carry
        total = l2p.clipped_sum(loss, params, DATA, ours.clipping)
        updates, state = halved.update(total, state, params)
        return (optax.apply_updates(params, updates), state), None

    (moved, _), _ = jax.lax.scan(step, (params, halved.init(params)), length=4)
    assert np.array_equal(moved["base"], params["base"])
    assert np.array_equal(moved["tables"], params["tables"])
    assert not np.array_equal(moved["head"][0], START[0])
    assert ours.card().steps == 4
    assert isinstance(ours, optax.GradientTransformation)
