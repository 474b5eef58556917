"""Declared bounds: what is read, and what is refused."""

import json
import re

import pytest

from l2p.data import prepare, read_bounds
from l2p.errors import InputError
from l2p.schema import Target
from tests.data.ward import BOUNDS, refusal, table

NO_NUMBERS = [[0], [0, 1, 2], 5, "01", ["0", "1"], [None, 1], [True, 2]]
NO_NUMBERS += [[float("nan"), 1], [0, float("inf")], [0, 10**400]]
REASONS = [(pair, "must be two finite numbers") for pair in NO_NUMBERS]
REASONS += [([1, 1], "[1, 1] leave no room between low and high"), ([2, 1], "[2, 1] leave no room")]
REASONS += [([-1e308, 1e308], "[-1e+308, 1e+308] are too far apart: cells are divided by high - low")]


@pytest.mark.parametrize(("pair", "reason"), REASONS, ids=lambda value: str(value)[:20])
def test_malformed_bounds_are_refused(tmp_path, pair, reason):
    path = tmp_path / "bounds.json"
    path.write_text(json.dumps({"age": [0, 1], "dose": pair}))
    for refused in (refusal(read_bounds, path), refusal(prepare, table(), "label", BOUNDS | {"dose": pair})):
        assert refused.startswith(f"bounds of column 'dose' {reason}")
    with pytest.raises(InputError, match=re.escape(reason)):
        Target("dose", bounds=pair)


def test_bounds_are_a_json_object(tmp_path):
    path = tmp_path / "bounds.json"
    assert "there is no file" in refusal(read_bounds, path)
    for text in ("", "{", "[[0, 1]]", "3"):
        path.write_text(text)
        assert "JSON" in refusal(read_bounds, path)
    path.write_text('{"age": [0, 120], "dose": [-0.5, 1e3]}')
    assert read_bounds(path) == {"age": (0.0, 120.0), "dose": (-0.5, 1000.0)}
