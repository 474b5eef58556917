"""Public data sets by name, and private tables from files."""

from l2p.data.catalog import NAMES, Dataset, load
from l2p.data.table import Table, prepare, read_bounds, read_table

__all__ = ["NAMES", "Dataset", "Table", "load", "prepare", "read_bounds", "read_table"]
