"""Settings of every test run. A plain `pytest` loads them; a doctest or notebook named on the command line does not."""

import fnmatch
import gc
import getpass
import importlib.metadata
import itertools
import os
import signal
import tempfile
from pathlib import Path

import hypothesis
import jax
import pytest

from tests.contracts import check_contracts

ROOT = Path(__file__).resolve().parent.parent

# In the environment, so that subprocesses (the command line, notebook kernels) run the checkout with these settings.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("L2P_NOTEBOOK_SEEDS", "2")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir(), f"l2p-jax-{getpass.getuser()}")))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
# Tests spend most of their time compiling, which is faster with fewer LLVM passes, without splitting modules, and with
# XLA's older code for loops, which jaxlib 0.10 still has; an unknown flag would end the process. L2P_COMPILE=users
# leaves these out: .ci/run compiles `l2p demo` and the sums so, and .ci/full everything. The caller's own flags are
# added. Workers inherit what is set here and set it again; no flag may then be there twice, because the cache tells
# programs apart by this text.
QUICK_COMPILES = ["--xla_backend_optimization_level=1", "--xla_cpu_parallel_codegen_split_count=1"]
if importlib.metadata.version("jaxlib").startswith("0.10."):
    QUICK_COMPILES.append("--xla_cpu_use_fusion_emitters=false")
if os.environ.get("L2P_COMPILE") != "users":
    os.environ["XLA_FLAGS"] = " ".join(dict.fromkeys([*QUICK_COMPILES, *os.environ.get("XLA_FLAGS", "").split()]))

# Tracing makes and drops many objects, and imports leave hundreds of thousands: Python's own thresholds walk them so
# often that a tenth of the time goes there.
gc.set_threshold(50_000, 20, 50)

# A shell ignores SIGINT for what it runs in the background, and Python then leaves it so: tests of Ctrl-C need it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest plugins may have imported jax before this file, so set the options in its config too.
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update(
    "jax_persistent_cache_min_compile_time_secs", float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"])
)

# Broadcasting an [n] array against an [n, 1] one is a bug here.
jax.config.update("jax_numpy_rank_promotion", "raise")

# No deadline: the first example of a test may compile. Derandomized: the outcome depends only on the code.
hypothesis.settings.register_profile("l2p", deadline=None, derandomize=True)
hypothesis.settings.load_profile("l2p")

#: In .ci/full: cases that resemble another one run, too.
EVERY_CASE = os.environ.get("L2P_CASES") == "all"

#: Linux limits a process to 65,530 memory maps; every compiled function takes some, and the compiler crashes at the
#: limit. Counting them takes milliseconds, so it is done once in so many tests.
MAX_MAPS = 20_000
TESTS_PER_COUNT = 20
_tests_run = itertools.count(1)


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the marker `slow` on notebooks and take it off what is `long`, and take both off the cases of a test that
    they do not name: pyproject.toml."""
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker(pytest.mark.slow)
        for marker in [mark for mark in item.own_markers if mark.name in ("slow", "long") and mark.kwargs]:
            case = item.name.partition("[")[2].removesuffix("]")
            named = any(
                fnmatch.fnmatchcase(case, pattern) for patterns in marker.kwargs.values() for pattern in patterns
            )
            if named is ("but" in marker.kwargs):
                item.own_markers.remove(marker)
        if item.get_closest_marker("long"):
            item.own_markers = [mark for mark in item.own_markers if mark.name != "slow"]


def pytest_collection_finish() -> None:
    """Check declared shapes from here on, and leave what collection made out of all later garbage collections."""
    check_contracts()
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Clear compiled functions when there are too many of them: within a file too, since one may have 800 cases."""
    maps = Path("/proc/self/maps")
    if next(_tests_run) % TESTS_PER_COUNT == 0 and maps.exists() and maps.read_bytes().count(b"\n") > MAX_MAPS:
        jax.clear_caches()
        gc.collect()
