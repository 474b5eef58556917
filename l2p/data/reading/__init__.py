"""Tables as they come, read block by block: text, ARFF, Parquet, frames and arrays."""

from l2p.data.reading.delimited import Delimited
from l2p.data.reading.format import Format
from l2p.data.reading.memory import InMemory
from l2p.data.reading.opening import is_table_file, open_table
from l2p.data.reading.source import Block, RawSource

__all__ = ["Block", "Delimited", "Format", "InMemory", "RawSource", "is_table_file", "open_table"]
