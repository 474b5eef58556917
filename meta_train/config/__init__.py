"""The config of a meta-training: a tagged union with a class for each kind of training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError
from l2p.base.json_fields import checked
from meta_train.config import fields
from meta_train.config.base import KIND, MetaConfig
from meta_train.config.kinds.constrained import Constrained
from meta_train.config.kinds.every_model import Addition, EveryModel
from meta_train.config.kinds.hand_designed import Comparison, Search
from meta_train.config.kinds.networks import OfNetworks, ThroughNetworks
from meta_train.config.kinds.own_tables import OwnConstants, OwnTables
from meta_train.config.kinds.plain import Perturbed, Plain

#: Every kind of training; a file that names none is of the first.
KINDS: tuple[type[MetaConfig], ...] = (
    Plain,
    Perturbed,
    Constrained,
    EveryModel,
    Addition,
    OwnTables,
    OwnConstants,
    Search,
    Comparison,
    OfNetworks,
    ThroughNetworks,
)


def from_fields(flat: Mapping[str, Any], path: Path) -> MetaConfig:
    """The config of flat fields, which were read from a file.

    Raises:
      InputError: there is no such kind; or a field is unknown, missing or of the wrong type, or has a value that cannot
        be run.
    """
    named = flat.get(KIND, KINDS[0].kind)
    kind = next((kind for kind in KINDS if kind.kind == named), None)
    if kind is None:
        kinds = ", ".join(kind.kind for kind in KINDS)
        raise InputError(f"in {path}, {KIND} is {named!r}, which is unknown; choose one of {kinds}.")
    values = {name: value for name, value in flat.items() if name != KIND}
    return kind.from_flat(checked(values, fields.types_of(kind), path))


def on_card(card: Mapping[str, Any]) -> MetaConfig:
    """The config on a checkpoint card; `InputError` if it cannot be run."""
    return from_fields(card["config"], Path(str(card["name"])))
