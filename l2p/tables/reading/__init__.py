"""Tables as they come, read block by block: text, ARFF, Parquet, frames and arrays."""

from l2p.tables.reading.delimited import Delimited
from l2p.tables.reading.format import Format
from l2p.tables.reading.memory import InMemory
from l2p.tables.reading.opening import is_table_file, open_table
from l2p.tables.reading.source import Block, RawSource

__all__ = ["Block", "Delimited", "Format", "InMemory", "RawSource", "is_table_file", "open_table"]
