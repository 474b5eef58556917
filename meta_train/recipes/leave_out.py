"""Fields of a recipe without some of the public sets that its tasks come from."""

from collections.abc import Mapping, Sequence
from typing import Any

from l2p.base.errors import InputError
from l2p.checkpoints.overlaps import overlaps
from meta_train.config.many_sources import ManySources
from meta_train.config.one_source import OneSource
from meta_train.tasks.sources import AND, parts_of


def sources_of(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The public sets that tasks are drawn from."""
    sources = fields["sources"] if "sources" in fields else [fields.get("source", OneSource.source)]
    return tuple(dict.fromkeys(part for source in sources for part in parts_of(source)))


def left_out(fields: Mapping[str, Any], sets: Sequence[str]) -> dict[str, Any]:
    """Fields with some sets left out of the source, or of the source of every shape.

    A shape without any set left is dropped.

    Raises:
      InputError: nothing is left of the source, or of any shape.

    >>> left_out({"sources": ["adult", "digits+adult"], "num_features": [8, 16]}, ["adult"])
    {'sources': ['digits'], 'num_features': [16]}
    """
    remaining = dict(fields)
    if "sources" not in fields:
        remaining["source"] = _remaining(fields.get("source", OneSource.source), sets)
        is_left = bool(remaining["source"])
    else:
        sources = [_remaining(source, sets) for source in fields["sources"]]
        by_shape = [name for name in ManySources.BY_SHAPE if isinstance(fields.get(name), list)]
        remaining |= {
            name: [value for value, source in zip(fields[name], sources, strict=True) if source] for name in by_shape
        }
        remaining["sources"] = [source for source in sources if source]
        is_left = any(sources)
    if not is_left:
        raise InputError(f"no source is left for tasks without {', '.join(sets)}; choose another recipe or set.")
    return remaining


def _remaining(source: str, sets: Sequence[str]) -> str:
    """A source without the parts that share rows with some sets; empty if nothing is left."""
    return AND.join(part for part in parts_of(source) if not overlaps(part, sets))
