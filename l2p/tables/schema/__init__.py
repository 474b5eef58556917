"""The declaration of a table, and the rows to learn from that it makes of raw cells."""

from l2p.tables.schema.columns import Category, Column, Ignore, Missing, Number, Value
from l2p.tables.schema.encoding import Block, Encoding
from l2p.tables.schema.rows import read_rows
from l2p.tables.schema.schema import Schema, schema_of
from l2p.tables.schema.target import Target, Unit

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
    "schema_of",
]
