"""Tables that come as features and targets apart, (X, y)."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from l2p.base.errors import withheld
from l2p.tables.reading import Format, InMemory, open_table
from l2p.tables.schema.schema import Schema


def is_pair(data: Any) -> bool:
    """True if features and target come apart; two paths are one table in two files."""
    return isinstance(data, tuple) and len(data) == 2 and not all(isinstance(part, (str, Path)) for part in data)


@withheld("joining features and targets")
def as_columns(pair: tuple[Any, Any], schema: Schema, format: Format) -> Mapping[str, Any]:
    """Columns by name of a pair (X, y), whose target is called as the schema calls it; X is read by `format`, of which
    decimal commas and columns to ignore are left to whoever reads the columns.

    A whole table may come as X: its column of that name is not a feature, and y stands in its place.
    """
    x, y = pair
    target = schema.target.column
    names = [name for name in schema.names if name != target]
    source = open_table(x, dataclasses.replace(format, decimal=None, ignore=()), names)
    if isinstance(source, InMemory):
        return dict(source.columns) | {target: y}
    blocks = list(source.blocks(source.names))
    return {name: np.concatenate([block[name] for block in blocks]) for name in source.names} | {target: y}
