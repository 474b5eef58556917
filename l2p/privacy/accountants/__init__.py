"""The accountants: one class and one file each, listed here in one line each.

Words, each with one meaning:

- An **accountant** is a theorem on how the costs of queries add up and what their sum guarantees: what it counts, what
  a query costs, the cap for a budget, and the epsilon of what was spent. It holds no numbers of a run. Some stop runs
  (`base.RunAccountant`), others only certify finished traces of fixed noise (`base.Accountant`).
- A **filter** (`l2p.privacy.cap.filter.Filter`) is an accountant set up for one run: budget, sampler, number of steps.
  It knows the cap before the run and certifies the trace after it, in float64.
- A **price list** (`l2p.privacy.cost.prices.PriceList`) is what a filter hands into the run: float32 prices and the
  cap, as a pytree. The oracle asks it what a query costs.
- The **spending** (`l2p.privacy.cap.spending.Spending`) is the sum of one run's prices so far.

To add an accountant, write `NAME.py` beside this file, with a subclass of `base.RunAccountant` or `base.Accountant`
whose only instance is called `ACCOUNTANT`, and add its line to `LISTED`. The choices of the command line, plans, the
tables in docs/accounting.md and the shared property tests follow from that.

Free of JAX, so that the command line can print its choices at once; an accountant's file is imported when it is asked
for.
"""

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from l2p.base.errors import InputError

if TYPE_CHECKING:
    from l2p.privacy.accountants.base import Accountant, RunAccountant
    from l2p.privacy.cost.sampling import Sampler


class Listed(NamedTuple):
    """An accountant's line: what the command line needs before JAX is imported.

    Attributes:
      name: its name everywhere, and that of its file.
      stops_runs: whether `--accountant` may name it; others only certify finished traces and plans of fixed noise.
      ledger_amount: what a data set's ledger adds up in its unit; None if ledgers are not kept in it.
    """

    name: str
    stops_runs: bool = True
    ledger_amount: str | None = None


#: Every accountant, in the order of all lists and tables.
LISTED: tuple[Listed, ...] = (
    Listed("gdp", ledger_amount="mu^2"),
    Listed("zcdp", ledger_amount="rho"),
    Listed("rdp", ledger_amount="Renyi divergence at the planned order"),
    Listed("ctcdp"),
    Listed("paper_13"),
    Listed("pld"),
    Listed("moments"),
    Listed("strong_composition"),
    Listed("basic", ledger_amount="epsilon"),
    Listed("rdp_all_orders", stops_runs=False),
    Listed("tcdp", stops_runs=False),
)


def run_names() -> tuple[str, ...]:
    """Names of the accountants that stop runs.

    >>> run_names()[:4]
    ('gdp', 'zcdp', 'rdp', 'ctcdp')
    """
    return tuple(listed.name for listed in LISTED if listed.stops_runs)


def ledger_amounts() -> dict[str, str]:
    """The accountants in whose unit ledgers are kept, and what a ledger adds up.

    >>> ledger_amounts()["gdp"]
    'mu^2'
    """
    return {listed.name: listed.ledger_amount for listed in LISTED if listed.ledger_amount is not None}


def every() -> "list[Accountant]":
    """All accountants."""
    return [_load(listed.name) for listed in LISTED]


def for_runs() -> "list[RunAccountant]":
    """The accountants that stop runs."""
    return [cast("RunAccountant", _load(name)) for name in run_names()]


def find(name: str) -> "RunAccountant":
    """The accountant of a run.

    Raises:
      InputError: there is none of this name.

    >>> find("gdp").unit
    'mu^2'
    """
    if name not in run_names():
        raise InputError(
            f"accountant {name!r} is unknown, so no guarantee could be stated; choose one of {', '.join(run_names())}."
        )
    return cast("RunAccountant", _load(name))


def covering(sampler: "Sampler", mechanism: str | None = None) -> list[str]:
    """Names of the accountants that price runs with this sampler, and this mechanism if one is named.

    >>> from l2p.privacy.cost.sampling import PermutationEpochs
    >>> covering(PermutationEpochs(10, 100)), covering(PermutationEpochs(10, 100), "gumbel")
    (['gdp', 'zcdp', 'rdp', 'ctcdp'], ['zcdp', 'rdp', 'ctcdp'])
    """
    able = [accountant for accountant in for_runs() if isinstance(sampler, accountant.samplers)]
    return [accountant.name for accountant in able if mechanism is None or mechanism in accountant.coefficients]


def of_fixed_noise() -> list[str]:
    """Names of accountants that certify an envelope of noise fixed before the run (`l2p.privacy.cap.envelope`).

    >>> of_fixed_noise()
    ['pld', 'moments', 'strong_composition']
    """
    return [accountant.name for accountant in for_runs() if not accountant.adaptive]


def either(names: Sequence[str]) -> str:
    """The names joined as a choice in a sentence.

    >>> either(["gdp", "zcdp", "ctcdp"])
    'gdp, zcdp or ctcdp'
    """
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _load(name: str) -> "Accountant":
    return importlib.import_module(f"{__name__}.{name}").ACCOUNTANT
