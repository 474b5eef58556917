"""Private training on a Spark cluster, for tables that outgrow one machine. Needs the extra `spark`."""

from typing import Any

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("l2p.estimators.spark needs Spark: pip install 'l2p-jax[spark]'") from error

__all__ = ["PrivateClassificationModel", "PrivateClassifier"]  # pyright: ignore[reportUnsupportedDunderAll]


# Imported on first use: workers import this package too, and need little of it.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'l2p.estimators.spark' has no attribute {name!r}")
    from l2p.estimators.spark import classifier

    return getattr(classifier, name)


def __dir__() -> list[str]:
    return __all__
