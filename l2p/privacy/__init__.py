"""Privacy accounting: events, budgets, accountants, and the ledger that a run obeys."""

from l2p.privacy.accountants import (
    NAMES,
    THEOREM,
    Accountant,
    certify,
    default_accountant,
    epsilon,
    limit,
    plan,
    spent,
)
from l2p.privacy.budget import Budget
from l2p.privacy.convert import (
    CtCDP,
    ctcdp,
    ctcdp_epsilon,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    planned_order,
    rdp_epsilon,
    zcdp_epsilon,
    zcdp_epsilon_simple,
    zcdp_rho,
    zcdp_rho_simple,
)
from l2p.privacy.events import MECHANISMS, Adjacency, Event
from l2p.privacy.ledger import Ledger

__all__ = [
    "MECHANISMS",
    "NAMES",
    "THEOREM",
    "Accountant",
    "Adjacency",
    "Budget",
    "CtCDP",
    "Event",
    "Ledger",
    "certify",
    "ctcdp",
    "ctcdp_epsilon",
    "default_accountant",
    "epsilon",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "limit",
    "plan",
    "planned_order",
    "rdp_epsilon",
    "spent",
    "zcdp_epsilon",
    "zcdp_epsilon_simple",
    "zcdp_rho",
    "zcdp_rho_simple",
]
