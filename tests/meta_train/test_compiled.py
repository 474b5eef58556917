"""What a training compiled is kept for others, in the user's cache."""

import jax
import pytest

from meta_train.__main__ import COMPILED, keep_compiled


@pytest.fixture
def no_cache():
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


def test_what_is_compiled_is_kept_in_the_users_cache_unless_another_is_named(tmp_path, no_cache, monkeypatch):
    monkeypatch.delenv("L2P_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "l2p" / COMPILED)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "l2p" / COMPILED)
