"""Variants of methods: starts from public rows, their directions, and settings chosen in hindsight."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.compare import hindsight, results
from l2p.compare.auxiliary import Auxiliary, public_geometry, public_solution
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import load_rows
from l2p.compare.methods import find_method
from l2p.compare.runner import compare, main
from l2p.models import MODELS
from l2p.privacy.budget import Budget
from l2p.protectors import HAND_DESIGNED
from l2p.run.simulate import mean_loss, simulate, split


def frozen(tmp_path, name="still", **fields):
    """A checkpoint that stays where it starts: NoisyGD with a vanishing learning rate."""
    start = HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5))
    rates = {**start.projector.hyperparameters, "learning_rate": jnp.array([-40.0])}
    path = tmp_path / f"{name}.safetensors"
    projector = dataclasses.replace(start.projector, hyperparameters=rates)
    checkpoint.save(dataclasses.replace(start, projector=projector, **fields), path, {"sources": []})
    return str(path)


@pytest.mark.long
def test_a_pretrained_run_starts_from_the_public_solution(tmp_path):
    still = frozen(tmp_path)
    centred = frozen(tmp_path, "centred", purchases=checkpoint.load("control-minibatch").protector.purchases[:1])
    methods = (still, f"{still}:pretrained", f"{centred}:pretrained")
    config = CompareConfig(
        "digits:3,5", tmp_path / "out", methods=methods, epsilon=(1.0,), delta=1e-5, seeds=1, aux="digits:4,6"
    )
    plain, raw, mapped = compare(config)
    model = MODELS["logistic"]
    public, rows = load_rows(dataclasses.replace(config, data="digits:4,6")), load_rows(config)
    solution = public_solution(model, public)
    assert float(mean_loss(solution, model, public)) < 0.01
    assert plain["test_loss"] == pytest.approx(math.log(2.0), rel=1e-5)
    expected = float(mean_loss(solution, model, split(rows, 0).test))
    assert expected > 1.0
    # The centred one runs in other coordinates, and starts at the same point in them.
    assert raw["test_loss"] == pytest.approx(expected, rel=1e-4)
    assert mapped["test_loss"] == pytest.approx(expected, rel=1e-2)


@pytest.mark.long
def test_a_projected_run_steps_along_the_directions_of_the_public_set(tmp_path):
    methods = ("noisygd", "noisygd:projected", "noisygd:projected:oracle", "noisygd:private:projected", "agd:projected")
    config = CompareConfig(
        "digits:3,5", tmp_path / "out", methods=methods, epsilon=(0.3,), delta=1e-5, seeds=4, aux="digits:4,6"
    )
    rows = compare(config)
    accuracy = {name: [row["test_accuracy"] for row in rows if row["method"] == name] for name in methods}
    assert all(None not in accuracy[name] for name in methods[:4])
    assert accuracy["noisygd:projected"] != accuracy["noisygd"]
    assert np.mean(accuracy["noisygd:projected:oracle"]) > np.mean(accuracy["noisygd:projected"])
    assert "cannot be run in other directions" in rows[-1]["note"]
    public, budget = load_rows(dataclasses.replace(config, data="digits:4,6")), Budget(0.3, 1e-5)
    geometry = public_geometry(public)
    lent = find_method("noisygd:projected", [budget], MODELS["logistic"], 292, auxiliary=Auxiliary(geometry=geometry))
    assert lent.protectors[budget].purchases == (geometry,)
    # It uses nothing of the compared set.
    np.testing.assert_allclose(geometry.center, np.asarray(public.x).mean(0), atol=1e-6)


@pytest.mark.slow
def test_a_pretrained_method_needs_the_same_features_and_other_rows(config, monkeypatch):
    methods = ("noisygd", "noisygd:pretrained", "noisygd:tuned:pretrained")
    config = dataclasses.replace(config, methods=methods, epsilon=(2.0,), seeds=1, aux="digits:3,5")
    noisygd, *others = compare(config)
    assert results.is_scored(noisygd)
    for row in others:
        assert "65 parameters, where this table needs 31" in row["note"]
        assert not results.is_scored(row)


@pytest.mark.long
def test_oracle_settings_are_the_best_of_those_tried_and_are_not_certified(config):
    config = dataclasses.replace(config, methods=("noisygd", "noisygd:oracle"), epsilon=(0.5,), seeds=2)
    main(config)
    rows = compare(config)
    assert [row["epsilon_certified"] == math.inf for row in rows] == [False, False, True, True]
    assert sum(row["train_loss"] for row in rows[2:]) < sum(row["train_loss"] for row in rows[:2])
    summary = (config.out / "summary.md").read_text()
    assert "\n| noisygd:oracle † | 0." in summary
    assert "not honest" in summary
    assert "At ε = 0.5, noisygd has the best test accuracy of the private methods" in summary
    # The search's own objective, on its own splits and noise.
    table, model, budget = load_rows(config), MODELS["logistic"], Budget(0.5, 1e-5)
    honest = find_method("noisygd", [budget], model, 456).prepare(budget, model, table)
    best_in_hindsight = find_method("noisygd:oracle", [budget], model, 456).prepare(budget, model, table)
    outcome = simulate(
        [honest.protector, best_in_hindsight.protector], [honest.setup, best_in_hindsight.setup], table, hindsight.SEEDS
    )
    losses = [
        [float(mean_loss(params, model, split(table, seed).private)) for params in outcome.params[i]]
        for i, seed in enumerate(hindsight.SEEDS)
    ]
    before, after = np.mean(losses, 0)
    assert after < before - 0.01
    assert not set(hindsight.SEEDS) & set(range(1000))


@pytest.mark.slow(
    cases=["change5-the directions in which it reads rows are fixed", "change8-nothing for :pretrained to change"]
)
@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"methods": ("noisygd:pretrained",)}, "no auxiliary set is named"),
        ({"methods": ("noisygd:pretrained",), "aux": "breast_cancer"}, "shares rows with breast_cancer"),
        ({"methods": ("noisygd:pretrained",), "aux": "nosuch"}, "nosuch"),
        ({"methods": ("noisygd:pretrained",), "aux": "digits"}, "multiclass"),
        ({"methods": ("noisygd:projected",)}, "METHOD:projected takes something from a public set"),
        (
            {"methods": ("paper-adult:projected",), "aux": "digits:3,5"},
            "the directions in which it reads rows are fixed",
        ),
        ({"methods": ("nosuch:oracle",)}, "'nosuch' is unknown"),
        ({"methods": ("nonprivate:oracle",)}, "nothing for :oracle to change"),
        ({"methods": ("nonprivate:pretrained",), "aux": "digits:3,5"}, "nothing for :pretrained to change"),
    ],
)
def test_variants_that_make_no_sense_are_refused_before_anything_runs(config, change, phrase):
    with pytest.raises(InputError, match=phrase):
        compare(dataclasses.replace(config, **change))
    assert list(config.out.iterdir()) == []
