"""Configs on cards of checkpoints.

Those that shipped before trainings had kinds hold the fields of all kinds: which kind it is follows from them, and
those that it does not have are left out. All of them are on whole runs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meta_train.config import MetaConfig, fields, from_fields
from meta_train.config.base import KIND
from meta_train.config.kinds.class_pairs import ClassPairs
from meta_train.config.kinds.constrained import Constrained
from meta_train.config.kinds.every_model import Addition, EveryModel
from meta_train.config.kinds.hand_designed import Comparison, Search
from meta_train.config.kinds.plain import Plain


def on_card(card: Mapping[str, Any]) -> MetaConfig:
    """The config on a checkpoint card; `InputError` if it cannot be run."""
    given, path = card["config"], Path(str(card["name"]))
    if KIND in given:
        return from_fields(given, path)
    kind = _kind_of(given)
    values = {name: value for name, value in given.items() if name in fields.types_of(kind) and name != "unroll"}
    return from_fields(values | {KIND: kind.kind}, path)


def _kind_of(given: Mapping[str, Any]) -> type[MetaConfig]:
    if given.get("sources") is not None:
        return Addition if given.get("tunes") in ("wide", "line") else EveryModel
    if given.get("constraint", "share") != "share":
        return Constrained
    if given.get("fresh_rows"):
        return ClassPairs
    return {"both": Comparison, "search": Search}.get(str(given.get("method")), Plain)
