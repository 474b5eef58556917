"""Cards of runs of every kind, stored beside the tests, and edits of them."""

import copy
import functools
import json
from pathlib import Path

from l2p.base.versions import versions

CARDS = Path(__file__).parent / "cards"


@functools.cache
def cards():
    """Cards of real runs by name, see `tests/release/cards/make.py`."""
    return json.loads((CARDS / "current.json").read_text(encoding="utf-8"))


def card(name):
    """One of these cards, as if this version had made it."""
    copied = copy.deepcopy(cards()[name])
    copied["versions"]["l2p"] = versions()["l2p"]
    return copied


def louder(fields, factor, events=True, mechanisms=True, envelope=False):
    """A card with its noise scaled by `factor`, in the selected places."""
    for span in [*(fields["events"] if events else []), *(fields["envelope"] if envelope else [])]:
        span["queries"] = [[mechanism, noise * factor] for mechanism, noise in span["queries"]]
    for kind in fields["mechanisms"] if mechanisms else []:
        kind["noise_multiplier"] = [noise * factor for noise in kind["noise_multiplier"]]


def set_(*path, to):
    def edit(fields):
        functools.reduce(lambda node, key: node[key], path[:-1], fields)[path[-1]] = to

    return edit


def both(*edits):
    def edit(fields):
        for change in edits:
            change(fields)

    return edit


def part(function, *values, **options):
    return lambda fields: function(fields, *values, **options)
