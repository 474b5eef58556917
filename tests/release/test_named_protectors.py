"""Protectors by name or file: their accountant and sources, and the control that runs outside their range."""

import dataclasses

import chex
import jax
import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.set_up import set_up
from l2p.models import Logistic
from l2p.privacy import Budget
from meta_train.training.untrained import BUILDERS
from tests.release.tables import BUDGET, table


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
    of_another = l2p.private_train(table(), "control-other", BUDGET, key=key)
    assert of_another.card.protector["name"] == "control-other"
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
        """Protector that runs for a gain `mean` up to log(mu N) = `edge`, none above, others by source and model."""
        gains = {"log_signal": [0.0, edge, 9.0], "mean": [mean, 0.0], "standard_error": [error, 0.01]}
        for part, parts in (("by_source", by_source), ("by_model", by_model)):
            if parts is not None:
                gains[part] = {name: {"mean": [m, 0.0], "standard_error": [e, 0.01]} for name, (m, e) in parts.items()}
        card = {"sources": ["adult"], "config": {"warm_start": "control-mine"}, "warm_start_arrays_sha256": control}
        checkpoint.save(start, tmp_path / "mine.safetensors", card | {"held_out": {"gains": gains}})
        named, _, _, warnings = set_up(resolve("mine", BUDGET, "logistic"), BUDGET, Logistic(), 4, 100)
        return named.name, warnings

    assert names(0.05, 0.01, here + 0.1) == ("mine", [])
    warnings = [
        "At this budget control-mine runs: on held-out tasks the networks of mine did no better than it, over all of "
        "them or with this model, or did worse on those of one source."
    ]
    assert names(0.05, 0.03, here + 0.1) == ("control-mine", warnings)
    assert names(-0.05, 0.01, here + 0.1) == ("control-mine", warnings)
    assert names(0.05, 0.01, here - 0.1) == ("control-mine", warnings)
    assert names(0.05, 0.01, here + 0.1, adult=(0.2, 0.01), digits=(-0.01, 0.01)) == ("mine", [])
    assert names(0.05, 0.01, here + 0.1, adult=(0.2, 0.01), digits=(-0.03, 0.01)) == ("control-mine", warnings)
    # Where gains are known by model, a loss on one source is no loss of all models with it.
    gained, little, lost = (0.2, 0.01), (0.01, 0.01), (-0.01, 0.01)
    assert names(0.05, 0.01, here + 0.1, {"logistic": gained, "svm": lost}, digits=(-0.03, 0.01)) == ("mine", [])
    assert names(0.05, 0.01, here + 0.1, {"logistic": little, "svm": gained}) == ("mine", [])
    assert names(0.05, 0.01, here + 0.1, {"logistic": lost, "svm": gained}) == ("control-mine", warnings)
    assert names(0.05, 0.03, here + 0.1, {"logistic": gained, "svm": gained}) == ("control-mine", warnings)


@pytest.mark.slow
def test_a_signal_outside_the_trained_range_is_a_warning(tmp_path):
    path = tmp_path / "mine.safetensors"
    checkpoint.save(BUILDERS["control"](jax.random.key(0)), path, {"sources": [], "range": {"log_signal": [7.9, 8.7]}})
    assert "is below the protector's range" in l2p.private_train(table(), str(path), BUDGET).card.warnings[0]
    many = l2p.private_train(table(), str(path), Budget(2.0, 1e-12), num_rows=10**4, key=jax.random.key(0))
    assert many.card.warnings == []
    assert many.card.num_rows == 10**4


def test_load_gives_protectors_by_name_or_file(tmp_path):
    assert l2p.load("agd", BUDGET).num_steps == 1024
    with pytest.raises(InputError, match="budget"):
        l2p.load("agd")
    control = BUILDERS["control"](jax.random.key(0))
    checkpoint.save(control, tmp_path / "mine.safetensors", {"sources": []})
    chex.assert_trees_all_equal(l2p.load(tmp_path / "mine.safetensors"), control)
