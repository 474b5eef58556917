"""Trainings by meta-gradients and by random search, of which the better one ships."""

import pytest
import safetensors.numpy

from l2p.checkpoints import checkpoint
from meta_train.training import search
from meta_train.training.gradient_against_search import GRADIENT_RUNS
from meta_train.training.loop import meta_train
from tests.meta_train.training.test_gradient_against_search import TINY


def test_the_better_trial_ships_with_the_score_of_each_and_resumes_to_the_same_bits(tmp_path, monkeypatch):
    config = TINY.but(steps=4)
    trained = meta_train(config, tmp_path / "whole")
    card = checkpoint.load(trained).card
    scores = {method: trial["held_out_score"] for method, trial in card["trials"].items()}
    assert card["won"] == min(scores, key=lambda method: scores[method])
    assert card["held_out"]["held_out_score"] == scores[card["won"]]
    assert card["trials"]["search"]["steps"] == GRADIENT_RUNS * card["trials"]["gradient"]["steps"]
    assert card["config"]["kind"] == "comparison"

    compiled = search.compiled

    def interrupted(*arguments):
        update = compiled(*arguments)

        def step(state, number):
            if number == 11:
                raise KeyboardInterrupt
            return update(state, number)

        return step

    monkeypatch.setattr(search, "compiled", interrupted)
    with pytest.raises(KeyboardInterrupt):
        meta_train(config, tmp_path / "cut")
    monkeypatch.undo()
    first, second = (safetensors.numpy.load_file(path) for path in (trained, meta_train(config, tmp_path / "cut")))
    assert first.keys() == second.keys()
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)
