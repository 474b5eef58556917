"""No compiled program that is kept on disk holds a row or anything computed from rows."""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from l2p.base import kept_programs
from l2p.base.kept_programs import kept_programs as keeping
from l2p.privacy.budget import Budget
from l2p.release import private_run
from l2p.release.api import private_train
from l2p.run.run import advance

NUM_ROWS = 38
TABLES = [np.random.default_rng(seed).random((NUM_ROWS, 2), np.float32) for seed in range(2)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a user who has set none; tests have one of their own."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jax.clear_caches()
    yield tmp_path / "cache" / "l2p" / "compiled"
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def programs(folder):
    """The kept programs by name."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def release(x, adjacency="zero_out"):
    y = (x[:, 0] > x[:, 1]).astype(int)
    budget = Budget(1.0, 1e-5, adjacency)
    return private_train((x, y), "noisygd", budget, bounds=(0, 1), classes=(0, 1), num_rows=NUM_ROWS)


def told(folder):
    """What the programs of releases of two tables of one size tell: those that differ, and those that hold a row."""
    release(TABLES[0])
    first = programs(folder)
    jax.clear_caches()
    release(TABLES[1])
    both = programs(folder)
    rows = [row.astype(dtype).tobytes() for x in TABLES for row in x for dtype in (np.float32, np.float64)]
    holding = {name for name, content in both.items() if any(row in zlib.decompress(content) for row in rows)}
    return set(both) - set(first), holding, len(first)


@pytest.mark.slow
def test_programs_are_the_same_whatever_the_rows_and_few(folder):
    differing, holding, number = told(folder)
    assert (differing, holding) == (set(), set())
    assert 2 <= number <= 20


def a_cell(rows):
    mean = float(rows.x.mean())
    return lambda rows: rows.replace(x=rows.x + mean)


def all_cells(rows):
    cells = np.asarray(rows.x)
    return lambda rows: rows.replace(x=jnp.asarray(cells))


@pytest.mark.long(cases=["a_cell"])
@pytest.mark.slow
@pytest.mark.parametrize("plant", [a_cell, all_cells])
def test_a_closure_over_rows_is_found(folder, monkeypatch, plant):
    def leaking(protector, run, rows, *others, **options):
        changed = plant(rows)
        return jax.jit(lambda rows, *others: advance(protector, run, changed(rows), *others, **options))(rows, *others)

    monkeypatch.setattr(private_run, "_advance", leaking)
    differing, holding, _ = told(folder)
    assert differing
    assert bool(holding) == (plant is all_cells)


@pytest.mark.slow
def test_nothing_is_kept_where_the_number_of_lines_is_private(folder):
    with keeping():
        release(TABLES[0], "add_remove")
    assert programs(folder) == {}


@pytest.mark.slow
def test_nothing_is_kept_of_a_loss_which_may_hold_rows(folder):
    some = TABLES[0][:3].copy()

    def loss(params, row):
        return jnp.square(some @ params - row["x"][0]).sum()

    private_train({"x": TABLES[0]}, "noisygd", Budget(1.0, 1e-5), model=loss, params=jnp.zeros(2))
    assert programs(folder) == {}


def compiled(value):
    """Compile a program that no other test has."""
    with keeping():
        return float(jax.jit(lambda x: x * value + 1.0)(2.0))


def test_a_folder_that_is_deleted_spoilt_or_closed_changes_nothing_but_time(folder, recwarn, capfd):
    assert (compiled(3.25), compiled(3.25)) == (7.5, 7.5)  # the second is read
    (path,) = (path for path in folder.rglob("*") if path.is_file())
    for spoil in (path.unlink, lambda: path.write_bytes(b"no program"), lambda: path.parent.chmod(0o770)):
        spoil()
        jax.clear_caches()
        assert compiled(3.25) == 7.5
    assert jax.config.jax_compilation_cache_dir is None
    assert path.read_bytes() == b"no program"  # of a folder that others may write to
    assert (recwarn.list, *capfd.readouterr()) == ([], "", "")  # nor does XLA print anything


def test_only_what_is_compiled_meanwhile_is_kept_and_settings_of_jax_win(folder, tmp_path):
    jax.jit(lambda x: x * 3.5)(2.0)
    assert not folder.exists()
    jax.config.update("jax_enable_compilation_cache", False)
    compiled(3.75)
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    compiled(3.75)
    assert not folder.exists()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")


def test_programs_that_were_used_longest_ago_are_deleted(folder, monkeypatch):
    compiled(4.25)
    (oldest,) = (path for path in folder.rglob("*") if path.is_file())
    compiled(4.5)
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())  # no two are equally long
    monkeypatch.setattr(kept_programs, "MOST_BYTES", total - 1)
    compiled(4.5)
    assert not oldest.exists()
    assert len(programs(folder)) == 1
