"""Public data sets by name, and private tables from files."""

from l2p.data.bounds import read_bounds
from l2p.data.catalog import Dataset, kind_of, load, num_classes
from l2p.data.preparation import Kind, Preparation, prepare
from l2p.data.sets import NAMES
from l2p.data.table import Table, read_table

__all__ = [
    "NAMES",
    "Dataset",
    "Kind",
    "Preparation",
    "Table",
    "kind_of",
    "load",
    "num_classes",
    "prepare",
    "read_bounds",
    "read_table",
]
