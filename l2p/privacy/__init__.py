"""Privacy accounting: events, samplers, budgets, filters, and the ledger that a run obeys."""

from l2p.privacy.accountants import NAMES, THEOREM, Filter, default_accountant
from l2p.privacy.budget import Budget
from l2p.privacy.events import MECHANISMS, Adjacency, Answered, Event
from l2p.privacy.ledger import Ledger
from l2p.privacy.prices import PriceList
from l2p.privacy.sampling import FixedSize, FullBatch, PermutationEpochs, Poisson, Sampler

__all__ = [
    "MECHANISMS",
    "NAMES",
    "THEOREM",
    "Adjacency",
    "Answered",
    "Budget",
    "Event",
    "Filter",
    "FixedSize",
    "FullBatch",
    "Ledger",
    "PermutationEpochs",
    "Poisson",
    "PriceList",
    "Sampler",
    "default_accountant",
]
