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
    config, path = card["config"], Path(str(card["name"]))
    if KIND in config:
        return from_fields(config, path)
    kind = _kind_of(config)
    values = {name: value for name, value in config.items() if name in fields.types_of(kind) and name != "unroll"}
    return from_fields(values | {KIND: kind.kind}, path)


def _kind_of(config: Mapping[str, Any]) -> type[MetaConfig]:
    if config.get("sources") is not None:
        return Addition if config.get("tunes") in ("wide", "line") else EveryModel
    if config.get("constraint", "share") != "share":
        return Constrained
    if config.get("fresh_rows"):
        return ClassPairs
    return {"both": Comparison, "search": Search}.get(str(config.get("method")), Plain)
