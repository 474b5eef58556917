"""The trace of a run: its granted queries, one by one."""

from collections.abc import Sequence

import jax
import numpy as np

from l2p.privacy.events import Answered

Records = list[Answered]


def trace_of(first: Records, later: Sequence[Records], after: int = 0) -> list[Answered]:
    """Granted queries in the order they were asked, from `start` and from each `advance` in turn, `after` so many
    steps."""
    trace = [_on_host(0, record) for record in first if bool(record.granted)]
    step = after
    for records in later:
        length = records[0].granted.shape[0] if records else 0
        host = jax.device_get(records)
        for index in range(length):
            step += 1
            answers = [jax.tree.map(lambda leaf: leaf[index], record) for record in host]  # noqa: B023
            trace += [_on_host(step, record) for record in answers if bool(record.granted)]
    return trace


def _on_host(step: int, record: Answered) -> Answered:
    return Answered(
        step,
        record.mechanism,
        float(record.noise_multiplier),
        record.tail,
        record.query,
        float(record.clip_norm),
        float(record.cost),
        float(record.spent),
        answer=None if record.answer is None else np.asarray(record.answer),
    )
