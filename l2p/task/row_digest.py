"""Digests of rows, by which a later pass over a table is told from an earlier one that read other rows."""

import hashlib

import numpy as np

from l2p.task.rows import Rows


class PassDigest:
    """The digest of one pass over blocks of rows, however they are cut into blocks.

    Of rows in one order it is BLAKE2b, which another pass has only by the same bytes in the same order. Of rows without
    an order it is their `sum_of_rows`.

    Args:
      ordered: whether the order counts.
      key: random bits, the same for all passes that are compared.

    >>> rows = [Rows(np.float32([[place]]), np.ones(1), np.ones(1)) for place in (0, 1)]
    >>> def value(ordered, parts):
    ...     digest = PassDigest(ordered, key=5)
    ...     for part in parts:
    ...         digest.add(part)
    ...     return digest.value()
    >>> value(True, rows) == value(True, rows[::-1]), value(False, rows) == value(False, rows[::-1])
    (False, True)
    """

    def __init__(self, ordered: bool, key: int):
        self._ordered, self._key = ordered, key
        self._count, self._sum, self._bytes = 0, 0, hashlib.blake2b(digest_size=32)

    def add(self, rows: Rows) -> None:
        """Count the rows of the next block in."""
        self._count += len(rows.y)
        if self._ordered:
            self._bytes.update(_table(rows).data)
        else:
            self._sum += sum_of_rows(rows, self._key)

    def value(self) -> tuple[int, int, bytes]:
        """Number of rows, their sum and their digest, by which passes are compared."""
        return self._count, self._sum % 2**64, self._bytes.digest()


def sum_of_rows(rows: Rows, key: int) -> int:
    """A number that another set of rows has with probability 2^-32 at most, for a random `key`, in any order of rows.

    It is the sum of one number per row, so sums over parts of a table add up modulo 2^64.
    """
    generator = np.random.default_rng(key)
    words = _table(rows).view(np.uint32)
    factors = generator.integers(0, 2**64, words.shape[1], np.uint64)
    mixed = (words * factors).sum(1, dtype=np.uint64)
    for shift in (32, 29):  # sums of what is linear in a row would not tell which numbers stand in one row
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * (generator.integers(0, 2**64, dtype=np.uint64) | np.uint64(1))
    return int(mixed.sum(dtype=np.uint64))


def _table(rows: Rows) -> np.ndarray:
    """Features, target and mask [n, d + 2], to as many bits as they have."""
    parts = [np.asarray(rows.x), np.asarray(rows.y)[:, None], np.asarray(rows.mask)[:, None]]
    return np.ascontiguousarray(np.concatenate(parts, axis=1, dtype=np.result_type(np.float32, *parts)))
