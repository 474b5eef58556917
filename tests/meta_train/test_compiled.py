"""What a training compiled is kept in its folder."""

import jax
import pytest

from meta_train.__main__ import COMPILED, keep_compiled


@pytest.fixture
def no_cache():
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


def test_what_is_compiled_is_kept_with_the_training_unless_a_cache_is_there(tmp_path, no_cache):
    keep_compiled(tmp_path / "first")
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "first" / COMPILED)
    keep_compiled(tmp_path / "second")
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "first" / COMPILED)
