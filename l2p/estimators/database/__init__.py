"""Bolt-on SGD inside PostgreSQL: passes where the rows lie, noise once outside. Needs the extra `postgres`."""

from l2p.estimators.database.rows import SGD, TableRows, held_rows
from l2p.estimators.database.train import train

__all__ = ["SGD", "TableRows", "held_rows", "train"]
