"""Options that compile quickly."""

import jax
import pytest

from meta_train import compiling


@pytest.fixture(autouse=True)
def _forgotten():
    compiling.quick_options.cache_clear()
    yield
    compiling.quick_options.cache_clear()


def test_options_are_known_to_this_jax_and_change_no_result():
    options = compiling.quick_options()
    assert options == compiling.QUICK
    plain, quick = (
        float(jax.jit(lambda x: (x * 3 + 1) / 7, compiler_options=compiler_options)(2.0))
        for compiler_options in ({}, options)
    )
    assert plain == pytest.approx(quick, rel=1e-6)


def test_options_that_this_jax_does_not_know_are_left_out(monkeypatch):
    monkeypatch.setattr(compiling, "QUICK", {"xla_no_such_option": 1})
    assert compiling.quick_options() == {}


def test_there_are_none_for_other_backends(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert compiling.quick_options() == {}
