"""Private training on a Spark cluster, for tables that outgrow one machine. Needs the extra `spark`."""

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("l2p.spark needs Spark: pip install 'l2p-jax[spark]'") from error

from l2p.spark.classifier import PrivateClassificationModel, PrivateClassifier

__all__ = ["PrivateClassificationModel", "PrivateClassifier"]
