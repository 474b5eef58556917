"""Ledgers to reserve from."""

import pytest

from l2p.privacy.ledger.ledger import Cost, Ledger
from tests.privacy.ledgers import BUDGET


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "gdp", Cost(1.0))


@pytest.fixture
def basic(tmp_path):
    return Ledger.create(tmp_path / "basic.ledger", "ward", BUDGET, "basic", Cost(1.0, 1e-6))
