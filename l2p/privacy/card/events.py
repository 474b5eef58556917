"""Granted queries as a card lists them: spans of equal steps, enough to price the run again."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from l2p.privacy.events import Answered


def encode_events(answered: Sequence[Answered]) -> list[dict[str, Any]]:
    """Spans {"steps": [first, last], "queries": [[mechanism, noise multiplier], ...]} of consecutive equal steps.

    Every step from first to last was granted exactly these queries in this order; a step without granted queries is in
    no span. Where a tail is finite, it follows the noise multiplier. `decode_events` returns every float64 exactly.

    Args:
      answered: granted queries in the order in which they were asked.

    >>> encode_events([Answered(1, "gaussian", 8.0), Answered(2, "gaussian", 8.0)])
    [{'steps': [1, 2], 'queries': [['gaussian', 8.0]]}]
    """
    spans: list[dict[str, Any]] = []
    for step, group in itertools.groupby(answered, key=lambda query: query.step):
        queries = [_encode(query) for query in group]
        if spans and spans[-1]["steps"][1] == step - 1 and spans[-1]["queries"] == queries:
            spans[-1]["steps"][1] = step
        else:
            spans.append({"steps": [step, step], "queries": queries})
    return spans


def decode_events(spans: Iterable[dict[str, Any]]) -> list[Answered]:
    """The queries that `encode_events` encoded.

    >>> decode_events([{"steps": [1, 2], "queries": [["gaussian", 8.0]]}])[1]
    Answered(step=2, mechanism='gaussian', noise_multiplier=8.0, tail=inf)
    """
    return [
        Answered(step, mechanism, float(noise_multiplier), float(tail[0]) if tail else math.inf)
        for span in spans
        for step in range(int(span["steps"][0]), int(span["steps"][1]) + 1)
        for mechanism, noise_multiplier, *tail in span["queries"]
    ]


def _encode(query: Answered) -> list[Any]:
    return [query.mechanism, query.noise_multiplier, *([] if query.tail == math.inf else [query.tail])]
