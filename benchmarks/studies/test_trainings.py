"""Whole trainings on several shapes and along public directions."""

import dataclasses

import numpy as np

from l2p.checkpoints import checkpoint
from l2p.protectors import Centering, PublicGeometry
from meta_train.evaluation import budgets
from meta_train.training.loop import meta_train
from tests.meta_train.training.test_loop import ALONG_DIRECTIONS, CONFIG, assert_same_directions, directions_of


def test_a_training_cycles_through_shapes_and_evaluates_all_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(budgets, "PLANNED", 3)
    shapes = {"num_features": (3, 5), "num_classes": (4, 3), "sampling_rates": (0.5, 0.25)}
    drawn = {"source": "synthetic:classes:3", "model": "softmax:3", "log_signal": (3.0, 6.0), "num_steps": 5}
    config = dataclasses.replace(CONFIG, steps=2, accountant="rdp", gain_rounds=1, **shapes, **drawn)
    held_out = checkpoint.load(meta_train(config, tmp_path)).card["held_out"]
    assert np.isfinite(held_out["held_out_score_per_budget"]).all()
    assert held_out["gains"]["tasks"] == 2


def test_a_training_along_public_directions_keeps_them_and_ships_them(tmp_path):
    config = dataclasses.replace(CONFIG, num_steps=4, unseen=(7, 9), **ALONG_DIRECTIONS)
    found = checkpoint.load(meta_train(config, tmp_path))
    assert_same_directions(found.protector.purchase(PublicGeometry), directions_of(7, 9))
    assert found.protector.purchase(Centering) is None
    assert found.card["range"]["num_features"] == [64, 64]
