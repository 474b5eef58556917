"""Noise and random batches of one release, drawn on the host from the operating system's key."""

import os
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from l2p.privacy.cost.sampling import FixedSize, PermutationEpochs
from l2p.task.keystream import KEY_BYTES, keystream, orders_of
from l2p.task.noise import AnyDraw, BatchDraw, Draw, OrderDraw, SubsetDraw

#: Forks between the first process and this one.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class Entropy:
    """Float64 standard noise and random batches for one release, in the order of its steps.

    All of it comes from one ChaCha20 keystream, so that nobody without the key can infer other values from those they
    have seen. Two copies would draw the same noise, and the difference of two answers would have none, so an `Entropy`
    can be neither copied nor pickled, and only draws in the process that made it.

    Args:
      seed: None draws the key, 256 bits, from the operating system. A number from 0 to 2^256 - 1 is the key, which
        makes the noise reproducible; the result is then not a private release.
    """

    def __init__(self, seed: int | None = None):
        self.is_private = seed is None
        self._generator = keystream(seed)
        self._epoch: np.ndarray = np.zeros(0, np.int32)
        # A child may have the number of its parent: in a container of its own, or once the parent has ended.
        self._process = os.getpid(), _forks

    def __reduce__(self) -> NoReturn:
        # `copy.copy`, `copy.deepcopy` and `pickle` all come through here.
        raise TypeError(
            "an Entropy cannot be copied or pickled, because the copy would draw the same noise again and the "
            "difference of two answers would have none; make a new Entropy() where the copy was to be used."
        )

    def draw(self, plan: Sequence[AnyDraw], num_steps: int, in_turn: bool = False) -> list[np.ndarray]:
        """For each draw, bit patterns u32[num_steps, size, 2], or lines of the table i32[num_steps, capacity] or
        i32[num_steps, count, size]; of orders that are to be drawn `in_turn` their keys u32[num_steps, 8].

        Raises:
          RuntimeError: called in a process forked from the one that made this object.
        """
        if (os.getpid(), _forks) != self._process:
            raise RuntimeError(
                "this Entropy was made before the process was forked, so parent and child would draw the same noise "
                "and the difference of two answers would have none; make a new Entropy() after the fork, in each "
                "process."
            )
        return [self._drawn(draw, num_steps, in_turn) for draw in plan]

    def _drawn(self, draw: AnyDraw, num_steps: int, in_turn: bool) -> np.ndarray:
        if isinstance(draw, Draw):
            return self._noise(draw, num_steps)
        if isinstance(draw, BatchDraw):
            return self._batches(draw, num_steps)
        if isinstance(draw, OrderDraw):
            return self._orders(draw, num_steps, in_turn)
        drawn = [self._subsets(draw) for _ in range(num_steps)]
        return np.array(drawn, np.int32).reshape(num_steps, draw.count, draw.size)

    def _orders(self, draw: OrderDraw, num_steps: int, in_turn: bool) -> np.ndarray:
        words = [np.frombuffer(self._generator.bytes(KEY_BYTES), "<u4") for _ in range(num_steps)]
        keys = np.array(words, np.uint32).reshape(num_steps, KEY_BYTES // 4)
        if in_turn:
            return keys
        drawn = np.empty((num_steps, draw.count, draw.num_rows), np.int32)
        for key, orders in zip(keys, drawn, strict=True):
            for place, order in enumerate(orders_of(key, draw.num_rows, draw.count)):
                orders[place] = order
        return drawn

    def _subsets(self, draw: SubsetDraw) -> np.ndarray:
        if draw.size == 1:
            return self._generator.integers(draw.num_rows, size=(draw.count, 1), dtype=np.int32)
        drawn = [
            self._generator.choice(draw.num_rows, draw.size, replace=False, shuffle=False) for _ in range(draw.count)
        ]
        return np.array(drawn, np.int32)

    def _noise(self, draw: Draw, num_steps: int) -> np.ndarray:
        samplers = {
            "gaussian": self._generator.standard_normal,
            "gumbel": lambda shape: self._generator.gumbel(size=shape),
            "exponential": self._generator.standard_exponential,
        }
        values = samplers[draw.distribution]((num_steps, draw.size))
        return np.ascontiguousarray(values).view(np.uint32).reshape(*values.shape, 2)

    def _batches(self, draw: BatchDraw, num_steps: int) -> np.ndarray:
        batches = [self._batch(draw) for _ in range(num_steps)]
        # Room for the largest batch: one that exceeds the usual capacity causes a compilation and is never cut.
        capacity = max([draw.sampler.capacity(draw.num_rows), *map(len, batches)])
        return np.array([np.pad(batch, (0, capacity - len(batch)), constant_values=-1) for batch in batches], np.int32)

    def _batch(self, draw: BatchDraw) -> np.ndarray:
        sampler, num_rows = draw.sampler, draw.num_rows
        if isinstance(sampler, PermutationEpochs):
            if len(self._epoch) < sampler.batch_size:
                self._epoch = self._generator.permutation(num_rows).astype(np.int32)
            batch, self._epoch = np.split(self._epoch, [sampler.batch_size])
            return batch
        # Independent coin flips select a binomial number of rows, and every set of that size is equally likely.
        fixed = isinstance(sampler, FixedSize)
        size = sampler.batch_size if fixed else self._generator.binomial(num_rows, sampler.rate())
        return self._generator.choice(num_rows, size, replace=False, shuffle=False)
