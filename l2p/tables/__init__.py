"""Tables: readers, schemas, encodings, bounds, images; and, in this face, public data sets by name."""

from l2p.tables.kind import Kind
from l2p.tables.sets import NAMES
from l2p.tables.sets.catalog import Dataset, kind_of, load, num_classes

__all__ = [
    "NAMES",
    "Dataset",
    "Kind",
    "kind_of",
    "load",
    "num_classes",
]
