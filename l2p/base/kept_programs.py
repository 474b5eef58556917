"""Compiled programs kept on disk, so that the next start of l2p need not compile them again.

A program holds shapes and public constants, and no row, nor anything computed from rows: these are its arguments
(tests/test_canary_programs.py). The folder is `l2p/compiled` in the user's cache and may be deleted at any time.
"""

import contextlib
import hashlib
import logging
import os
import platform
import stat
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

#: Bytes of all kept programs; those that were last used longest ago are deleted beyond it.
MOST_BYTES = 2**28

_lock = threading.Lock()
#: How many calls are running that keep programs, and how many that forbid it.
_running = {True: 0, False: 0}
#: JAX's settings before ours; empty while nothing is kept.
_before: dict[str, Any] = {}


@contextlib.contextmanager
def kept_programs(keep: bool = True) -> Iterator[None]:
    """Keep what is compiled meanwhile, in a folder of our own, and take from there what was compiled before.

    Only meanwhile, since programs of the caller's own may hold rows. Nothing changes where JAX's own settings name a
    folder (JAX_COMPILATION_CACHE_DIR) or turn this off (JAX_ENABLE_COMPILATION_CACHE=false), nor where our folder
    cannot be used.

    Args:
      keep: False to keep nothing, not even within a call that does: for tables whose number of lines is private, since
        it is a shape.
    """
    _count(keep, 1)
    try:
        yield
    finally:
        _count(keep, -1)


def _count(keep: bool, change: int) -> None:
    with _lock:
        _running[keep] += change
        wanted = _running[True] > 0 and _running[False] == 0
        if wanted and not _before:
            _begin()
        elif not wanted and _before:
            _end()


def _begin() -> None:
    config: Any = jax.config
    if config.jax_compilation_cache_dir is not None or not config.jax_enable_compilation_cache:
        return
    folder = _usable_folder()
    if folder is None:
        return
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,  # an apply has dozens of programs that compile in 20 ms
    }
    _before.update({name: getattr(config, name) for name in settings})
    _set(settings)
    # Without the program it is compiled, so a file that another process deletes or is still writing is no news.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    # jaxlib 0.10 takes tuning flags for features that the processor lacks, and says so of every program that it loads
    # (openxla/xla issue 44565).
    _log_from("CRITICAL")


def _end() -> None:
    _set(_before)
    _before.clear()
    _log_from("WARNING")  # as JAX has set it


def _set(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # which else stays with the first folder


def _log_from(level: str) -> None:
    """Have XLA log from this level on, and Python's loggers as before; not where the user has chosen a level."""
    config: Any = jax.config
    if config.jax_logging_level != "NOTSET" or os.environ.get("TF_CPP_MIN_LOG_LEVEL") != "1":
        return
    loggers = {logger: logger.level for logger in map(logging.getLogger, ("jax", "jaxlib"))}
    config.update("jax_logging_level", level)
    config.update("jax_logging_level", "NOTSET")
    for logger, its_level in loggers.items():
        logger.setLevel(its_level)


def _usable_folder() -> Path | None:
    """The folder, which nobody else may write to, because what lies there is run; None if there can be none."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "l2p" / "compiled"
        folder = cache / _machine()
        for path in (cache, folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = path.stat()
            others = hasattr(os, "getuid") and status.st_uid != os.getuid()
            if others or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or not os.access(path, os.W_OK | os.X_OK):
                return None
        _delete_oldest(cache)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return folder


def _machine() -> str:
    """A name for processors with the same instructions: programs of another one, in a home on a network, may crash."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        instructions = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        instructions = platform.processor()
    return hashlib.sha256(f"{platform.machine()} {instructions}".encode()).hexdigest()[:16]


def _delete_oldest(cache: Path) -> None:
    """Delete the programs that were last used longest ago, until the others have `MOST_BYTES`."""
    files = []
    for path in cache.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # another process deleted it
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                files.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= MOST_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= size
