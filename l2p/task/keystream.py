"""ChaCha20 keystreams, and the orders of a table's rows that are drawn from one."""

import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np
from randomgen import ChaCha

#: Bytes of a key, and rounds of ChaCha, as in RFC 8439.
KEY_BYTES, ROUNDS = 32, 20


def keystream(key: int | None = None) -> np.random.Generator:
    """The generator of a key from 0 to 2^256 - 1; None draws one from the operating system."""
    if key is None:
        key = int.from_bytes(secrets.token_bytes(KEY_BYTES), "little")
    bits: Any = ChaCha(key=key, rounds=ROUNDS)  # its stubs do not say that it is a BitGenerator
    return np.random.Generator(bits)


def orders_of(key: np.ndarray, num_rows: int, count: int) -> Iterator[np.ndarray]:
    """Orders of all lines of a table, i32[num_rows], each drawn at its turn and independent of the others.

    All are one array, which the next turn overwrites: a shuffle of what was shuffled before is as random, and a table
    of which this process holds nothing else costs it 4 bytes a row.

    Args:
      key: u32[8], random bits of this use alone.

    >>> key = np.arange(8, dtype=np.uint32)
    >>> first, second = (order.tolist() for order in orders_of(key, 5, 2))
    >>> sorted(first) == sorted(second) == [0, 1, 2, 3, 4], first == second
    (True, False)
    """
    generator = keystream(int.from_bytes(key.astype("<u4").tobytes(), "little"))
    order = np.arange(num_rows, dtype=np.int32)
    for _ in range(count):
        generator.shuffle(order)
        yield order
