"""Fields of a recipe without some of the public sets that its tasks come from."""

from collections.abc import Mapping, Sequence
from typing import Any

from l2p.checkpoints.overlaps import overlaps
from l2p.errors import InputError
from meta_train.config import BY_SHAPE, MetaConfig
from meta_train.tasks.sources import AND, parts_of


def sources_of(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The public sets that tasks are drawn from."""
    listed = fields.get("sources")
    sources = listed if isinstance(listed, list) else [fields.get("source", MetaConfig.source)]
    return tuple(dict.fromkeys(part for source in sources for part in parts_of(source)))


def left_out(fields: Mapping[str, Any], sets: Sequence[str]) -> dict[str, Any]:
    """Fields with some sets left out of the source and of the source of every shape.

    A shape that nothing is left of is dropped.

    Raises:
      InputError: nothing is left of the source, or of any shape.

    >>> left_out({"source": "adult+synthetic", "sources": ["adult", "digits"], "num_features": [8, 16]}, ["adult"])
    {'source': 'synthetic', 'sources': ['digits'], 'num_features': [16]}
    """
    found = dict(fields)
    found["source"] = _kept(fields.get("source", MetaConfig.source), sets)
    if isinstance(listed := fields.get("sources"), list):
        kept = [_kept(source, sets) for source in listed]
        found["sources"] = [source for source in kept if source]
        for name in set(BY_SHAPE) - {"sources"}:
            if isinstance(values := fields.get(name), list):
                found[name] = [value for value, source in zip(values, kept, strict=True) if source]
    if not found["source"] or found.get("sources") == []:
        raise InputError(f"no source is left for tasks without {', '.join(sets)}; choose another recipe or set.")
    return found


def _kept(source: str, sets: Sequence[str]) -> str:
    """A source without the parts that share rows with some sets; empty if nothing is left."""
    return AND.join(part for part in parts_of(source) if not overlaps(part, sets))
