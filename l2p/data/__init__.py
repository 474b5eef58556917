"""Public data sets by name."""

from l2p.data.catalog import Dataset, kind_of, load, num_classes
from l2p.data.kind import Kind
from l2p.data.sets import NAMES

__all__ = [
    "NAMES",
    "Dataset",
    "Kind",
    "kind_of",
    "load",
    "num_classes",
]
