import json

import numpy as np
import pytest

from meta_train.training.progress import _smoothed, draw


def lines(count: int, constrained: bool) -> list[dict]:
    printed = []
    for step in range(count):
        line = {"step": step, "score": 1.0 / (1 + step), "gradient_norm": 0.0, "largest_gradient_norm": float("inf")}
        if constrained:
            line |= {"constraint": -0.1, "constraint_abs": 0.1}
        if step % 5 == 4:
            line |= {"held_out_score": 0.5, "held_out_score_per_budget": [0.1] * 8}
        printed.append(line)
    return printed


@pytest.mark.long
def test_a_picture_is_drawn_at_any_moment(tmp_path):
    for count, constrained in ((0, False), (3, True), (40, True), (40, False)):
        written = "".join(json.dumps(line) + "\n" for line in lines(count, constrained))
        (tmp_path / "log.jsonl").write_text(written + '{"step": ')  # cut short
        path = draw(tmp_path)
        assert path.stat().st_size > 10_000
        path.unlink()


def test_smoothing_is_a_mean_of_what_is_known():
    values = [1.0, float("nan"), 3.0] + [5.0] * 27
    assert np.isfinite(_smoothed(values)).all()
    np.testing.assert_allclose(_smoothed(values)[:5], [1.0, 1.0, 2.0, 4.0, 13 / 3])
    assert np.isnan(_smoothed([float("nan")])).all()
