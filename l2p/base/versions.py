"""Versions of the software that decides a run's outcome."""

import importlib.metadata
import platform


def versions() -> dict[str, str]:
    """Versions of the software that decides a run's outcome."""
    packages = {"l2p": "l2p-jax", "jax": "jax", "numpy": "numpy"}
    return {name: _version(package) for name, package in packages.items()} | {"python": platform.python_version()}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"  # run from a checkout
