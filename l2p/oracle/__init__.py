"""The only door to private rows: `Oracle.ask` prices, charges, has a reader read, and releases."""

from l2p.oracle.oracle import Oracle
from l2p.oracle.pricing import MAX_BOUND, MIN_BOUND
from l2p.oracle.readers import InMemory, Passed, Reader, Remote, Streamed, reader_of
from l2p.oracle.terms import Terms

__all__ = [
    "MAX_BOUND",
    "MIN_BOUND",
    "InMemory",
    "Oracle",
    "Passed",
    "Reader",
    "Remote",
    "Streamed",
    "Terms",
    "reader_of",
]
