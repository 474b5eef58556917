"""The arithmetic that a release's proof rests on: IEEE's, as XLA has it by default on CPUs and GPUs."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import jax

from l2p.base.errors import InputError

#: XLA's flags with which sums are reordered, numbers that are not finite are taken for others, or small ones for zero.
#: Fast minima and maxima are the default on CPUs and part of what the proof assumes.
_FAST = {"xla_enable_fast_math", "xla_cpu_enable_fast_math", "xla_gpu_ftz"}
#: The flag that hands options to LLVM, and what those that change arithmetic have in their names.
_LLVM, _CHANGES = "xla_backend_extra_options", ("fp", "fast")
#: Devices with float64 of their own.
_DEVICES = ("cpu", "gpu")


def check_arithmetic() -> None:
    """Refuse a process whose arithmetic is not what the proof of exact sums assumes (docs/arithmetic.md).

    Raises:
      InputError: XLA_FLAGS, or a file that it names, asks for fast mathematics, or the device emulates float64.
    """
    if flags := sorted({name for name, value in _flags() if _changes(name, value)}):
        raise InputError(
            f"XLA_FLAGS sets {' and '.join(flags)}, with which numbers are not added as IEEE says, so that the "
            "proof of the guarantee does not hold; leave that out of XLA_FLAGS, and begin again in a new process."
        )
    if (device := jax.default_backend()) not in _DEVICES:
        raise InputError(
            f"JAX computes on {device!r}, which may have no float64 of its own, so that the proof of the guarantee "
            "does not hold; set JAX_PLATFORMS=cpu, and begin again in a new process."
        )


def _flags() -> Iterator[tuple[str, str]]:
    """The names and values of the flags in the environment, or in the file that it names."""
    flags = os.environ.get("XLA_FLAGS", "").strip()
    if flags and not flags.startswith("-"):
        path = Path(flags)
        flags = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    try:
        words = shlex.split(flags)
    except ValueError:  # XLA says what is wrong with it
        words = flags.split()
    for word in words:
        name, _, value = word.lstrip("-").partition("=")
        yield name, value


def _changes(name: str, value: str) -> bool:
    """True if a flag changes arithmetic; a flag without a value is on.

    >>> [_changes("xla_gpu_ftz", value) for value in ("", "true", "False", "0")]
    [True, True, False, False]
    >>> _changes("xla_backend_extra_options", "denormal-fp-math=preserve-sign"), _changes("xla_dump_to", "fast")
    (True, False)
    """
    if name == _LLVM:
        return any(part in value.lower() for part in _CHANGES)
    return name in _FAST and value.lower() not in ("false", "0")
