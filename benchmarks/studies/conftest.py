"""Studies run with the settings of the tests: `pytest benchmarks/studies`, part of .ci/full."""

from tests.conftest import *  # noqa: F403
