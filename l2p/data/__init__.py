"""Public data sets by name, and private tables from files."""

from l2p.data.catalog import NAMES, Dataset, load, num_classes
from l2p.data.table import Kind, Table, prepare, read_bounds, read_table

__all__ = ["NAMES", "Dataset", "Kind", "Table", "load", "num_classes", "prepare", "read_bounds", "read_table"]
