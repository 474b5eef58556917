"""Options that compile quickly."""

import importlib.metadata

import jax
import pytest

from l2p.base import compiled


@pytest.fixture(autouse=True)
def _forgotten():
    compiled.quick_options.cache_clear()
    yield
    compiled.quick_options.cache_clear()


@pytest.mark.skipif(
    not importlib.metadata.version("jaxlib").startswith("0.10."),
    reason="newer ones have dropped one of the options, so none is used",
)
def test_options_are_known_to_this_jax_and_change_no_result():
    options = compiled.quick_options()
    assert options == compiled.QUICK
    plain, quick = (
        float(jax.jit(lambda x: (x * 3 + 1) / 7, compiler_options=compiler_options)(2.0))
        for compiler_options in ({}, options)
    )
    assert plain == pytest.approx(quick, rel=1e-6)


def test_options_that_this_jax_does_not_know_are_left_out(monkeypatch):
    monkeypatch.setattr(compiled, "QUICK", {"xla_no_such_option": 1})
    assert compiled.quick_options() == {}


def test_there_are_none_for_other_backends(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert compiled.quick_options() == {}
