"""The declaration of a table, and the rows to learn from that it makes of raw cells."""

from l2p.schema.columns import Category, Column, Ignore, Missing, Number, Value
from l2p.schema.encoding import Block, Encoding
from l2p.schema.rows import read_rows
from l2p.schema.schema import Schema
from l2p.schema.target import Target, Unit

__all__ = [
    "Block",
    "Category",
    "Column",
    "Encoding",
    "Ignore",
    "Missing",
    "Number",
    "Schema",
    "Target",
    "Unit",
    "Value",
    "read_rows",
]
