"""Declared bounds: what is read, and what is refused."""

import json

import pytest

from l2p.data import prepare, read_bounds
from tests.data.ward import BOUNDS, refusal, table

PAIRS = [[0], [0, 1, 2], 5, "01", ["0", "1"], [None, 1], [True, 2], [1, 1], [2, 1]]
PAIRS += [[float("nan"), 1], [0, float("inf")], [-1e308, 1e308], [0, 10**400]]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: str(pair)[:20])
def test_malformed_bounds_are_refused(tmp_path, pair):
    path = tmp_path / "bounds.json"
    path.write_text(json.dumps({"age": [0, 1], "dose": pair}))
    reason = "bounds of column 'dose' must be two finite numbers [low, high] with low < high"
    assert refusal(read_bounds, path) == reason
    assert refusal(prepare, table(), "label", BOUNDS | {"dose": pair}) == reason


def test_bounds_are_a_json_object(tmp_path):
    path = tmp_path / "bounds.json"
    assert "there is no file" in refusal(read_bounds, path)
    for text in ("", "{", "[[0, 1]]", "3"):
        path.write_text(text)
        assert "JSON" in refusal(read_bounds, path)
    path.write_text('{"age": [0, 120], "dose": [-0.5, 1e3]}')
    assert read_bounds(path) == {"age": (0.0, 120.0), "dose": (-0.5, 1000.0)}
