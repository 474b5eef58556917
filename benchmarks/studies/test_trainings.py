"""Whole trainings on several shapes."""

import numpy as np

from l2p.checkpoints import checkpoint
from meta_train.config import EveryModel
from meta_train.evaluation import budgets
from meta_train.recipes import resolve
from meta_train.training.loop import meta_train
from meta_train.training.starting_points import starting_point
from tests.meta_train.training.test_loop import CONFIG, SIZES


def test_a_training_cycles_through_shapes_and_evaluates_all_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(budgets, "PLANNED", 3)
    shapes = {"num_features": (3, 5), "num_classes": (4, 3), "sampling_rates": (0.5, 0.25)}
    drawn = {"source": "synthetic:classes:3", "model": "softmax:3", "log_signal": (3.0, 6.0), "num_steps": 5}
    config = CONFIG.but(steps=2, accountant="rdp", gain_rounds=1, **shapes, **drawn)
    held_out = checkpoint.load(meta_train(config, tmp_path)).card["held_out"]
    assert np.isfinite(held_out["held_out_score_per_budget"]).all()
    assert held_out["gains"]["tasks"] == 2


def test_one_training_is_on_tasks_of_every_kind_and_the_card_names_them_all(tmp_path):
    sources, models = ("breast_cancer", "synthetic:classes:3", "synthetic:numbers"), ("logistic", "softmax:3", "square")
    several = {"sources": sources, "models": models, "gain_rounds": 2, "num_features": (3, 4, 5), "num_steps": 4}
    config = EveryModel.of("tiny", "noisygd", **{**SIZES, "steps": 3, "eval_every": 3}, **several)
    assert [str(config.tasks.find_model(shape)) for shape in config.shapes] == ["logistic", "softmax:3", "square"]
    by_shape = budgets.budgets_of_shapes(config.simulated, config.tasks, starting_point(config))
    assert [by_shape[shape].kind for shape in config.shapes] == ["binary", "multiclass", "regression"]
    path = meta_train(config, tmp_path)
    card = checkpoint.load(path).card
    assert np.isfinite(card["held_out"]["held_out_score_per_budget"]).all()
    assert card["models"] == ["logistic", "softmax", "square"]
    assert card["sources"] == ["breast_cancer", "synthetic:classes:3", "synthetic:numbers"]
    assert card["range"]["num_classes"] == [2, 3]
    gains = card["held_out"]["gains"]
    assert list(gains["by_source"]) == [" ".join(pair) for pair in zip(sources, models, strict=True)]
    assert gains["tasks"] == sum(group["tasks"] for group in gains["by_source"].values())
    assert list(gains["by_model"]) == ["logistic", "softmax", "square"]
    assert gains["tasks"] == sum(group["tasks"] for group in gains["by_model"].values())
    assert resolve.like(str(path)) == config
