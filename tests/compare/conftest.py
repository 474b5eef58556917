"""A small comparison, for tests that run one."""

import pytest

from l2p.compare.config import CompareConfig


@pytest.fixture
def config(tmp_path):
    methods = ("noisygd", "nonprivate")
    return CompareConfig("breast_cancer", tmp_path, methods=methods, epsilon=(0.5, 2.0), delta=1e-5, seeds=2)
