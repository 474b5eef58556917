"""Versions of the software that decides a run's outcome."""

import importlib.metadata
import platform

from l2p import __version__


def versions() -> dict[str, str]:
    """Versions of the software that decides a run's outcome.

    >>> list(versions())
    ['l2p', 'jax', 'numpy', 'python']
    """
    libraries = {name: importlib.metadata.version(name) for name in ("jax", "numpy")}
    return {"l2p": __version__} | libraries | {"python": platform.python_version()}
