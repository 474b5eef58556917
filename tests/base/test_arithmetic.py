"""Arithmetic that the proof of exact sums excludes is refused before a row is read."""

import jax
import numpy as np
import pytest

import l2p
from l2p.base.arithmetic import check_arithmetic
from l2p.base.errors import InputError

FAST = {
    "--xla_cpu_enable_fast_math=true": True,
    "--xla_dump_to=/tmp/x --xla_cpu_enable_fast_math": True,
    "--xla_cpu_enable_fast_min_max=1": False,
    "--xla_gpu_ftz=True": True,
    "--xla_backend_extra_options='xla_cpu_x,denormal-fp-math=preserve-sign'": True,
    "--xla_cpu_enable_fast_math=false --xla_gpu_ftz=0": False,
    "--xla_backend_optimization_level=1": False,
    "": False,
}


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("flags", FAST)
def test_flags_for_fast_mathematics_are_refused(flags, in_file, tmp_path, monkeypatch):
    if in_file:
        (tmp_path / "flags").write_text(f"{flags}\n")
    monkeypatch.setenv("XLA_FLAGS", str(tmp_path / "flags") if in_file else flags)
    if FAST[flags]:
        with pytest.raises(InputError, match="so that the proof of the guarantee does not hold"):
            check_arithmetic()
    else:
        check_arithmetic()


def test_a_device_that_emulates_float64_is_refused(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    with pytest.raises(InputError, match="JAX_PLATFORMS=cpu"):
        check_arithmetic()


def test_no_row_is_read_where_a_release_is_refused(monkeypatch):
    class Private(l2p.RowSource):
        num_rows, num_features = 900, 1

        def blocks(self):
            raise AssertionError("a row was read")

    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    with pytest.raises(InputError, match="xla_cpu_enable_fast_math"):
        l2p.private_train(Private(), "noisygd", l2p.Budget(1.0, 1e-5))
    with pytest.raises(InputError, match="xla_cpu_enable_fast_math"):
        l2p.private_train((np.zeros((9, 1)), np.zeros(9)), budget=l2p.Budget(1.0, 1e-5), bounds=(0, 1), classes=(0, 1))
