"""Checks of ledgers, and exact sums of costs."""

import contextlib
import re
import sqlite3
from fractions import Fraction

import pytest

from l2p.base.errors import InputError
from l2p.privacy import Budget
from l2p.privacy.ledger.ledger import Cost, Ledger

BUDGET = Budget(1, 1e-6)


@contextlib.contextmanager
def sentence(*phrases, error=InputError):
    """Expects an error whose message is one sentence."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert re.search(r"[.][^.]*[a-z)][.]$|^[^.]*[.]$", message)
    assert all(phrase in message for phrase in phrases), message


def sql(ledger, statement, *values):
    with contextlib.closing(sqlite3.connect(ledger.path, timeout=3600)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def exact(costs):
    return [sum(map(Fraction, column), Fraction(0)) for column in zip(*costs, strict=True)]


def assert_sound(ledger):
    """The file is whole, and what counts is within the limit in real numbers."""
    assert sql(ledger, "PRAGMA integrity_check") == [("ok",)]
    reopened = Ledger.open(ledger.path)
    assert reopened == ledger
    entries = reopened.entries()
    counted = exact([(0.0, 0.0), *(entry.counted for entry in entries)])
    assert all(number <= limit for number, limit in zip(counted, ledger.limit, strict=True))
    for entry in entries:
        expected = {"reserved": entry.reserved, "released": Cost(0.0)}
        assert entry.counted == expected.get(entry.state, entry.counted)
    return entries
