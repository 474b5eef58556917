"""The tables of docs/accounting.md that the accountants themselves fill.

    python -m l2p.privacy.accountants.tables docs/accounting.md

rewrites them, each between its two marks.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from l2p.base.errors import InputError
from l2p.privacy.accountants import for_runs
from l2p.privacy.accountants.base import RunAccountant
from l2p.privacy.cost.sampling import FixedSize, FullBatch, PermutationEpochs, Poisson, Sampler
from l2p.privacy.events import MECHANISMS, Adjacency

#: The command that writes them.
COMMAND = "python -m l2p.privacy.accountants.tables docs/accounting.md"
#: One sampler of each kind, to ask accountants about.
EXAMPLES: tuple[Sampler, ...] = (
    FullBatch(),
    Poisson(0.05),
    FixedSize(10, 200),
    PermutationEpochs(10, 200),
)


def theorems() -> str:
    """Table of what each accountant counts, how a budget becomes its cap, and whether noise may depend on answers."""
    rows = [
        (f"`{accountant.name}`", accountant.counts, accountant.budgeting, accountant.on_adaptive)
        for accountant in for_runs()
    ]
    return _table(("accountant", "counts", "budget", "for noise that depends on answers"), rows)


def coverage() -> str:
    """Table of the neighbours under which accountants cover samplers, and of the mechanisms that they price."""
    rows = [
        (
            f"`{accountant.name}`",
            *(_neighbours(accountant, sampler) for sampler in EXAMPLES),
            ", ".join(_mechanisms(accountant)),
        )
        for accountant in for_runs()
    ]
    return _table(("accountant", *(sampler.name for sampler in EXAMPLES), "mechanisms"), rows)


def written(page: str) -> str:
    """The page with both tables updated.

    Raises:
      InputError: a table's marks are missing.
    """
    for name, table in (("theorems", theorems()), ("coverage", coverage())):
        begin, end = f"<!-- {name}: {COMMAND} -->\n", f"<!-- end of {name} -->"
        before, opening, inside = page.partition(begin)
        _, closing, after = inside.partition(end)
        if not opening or not closing:
            raise InputError(
                f"the page lacks the lines {begin.strip()} and {end}, between which its table belongs; put them in."
            )
        page = before + begin + table + end + after
    return page


def _neighbours(accountant: RunAccountant, sampler: Sampler) -> str:
    covered = [
        adjacency for adjacency in Adjacency if any(accountant.covers(sampler, adjacency, name) for name in MECHANISMS)
    ]
    return "all" if covered == list(Adjacency) else ", ".join(f"`{adjacency}`" for adjacency in covered) or "–"


def _mechanisms(accountant: RunAccountant) -> list[str]:
    cases = [(sampler, adjacency) for sampler in EXAMPLES for adjacency in Adjacency]
    return [f"`{name}`" for name in MECHANISMS if any(accountant.covers(*case, name) for case in cases)]


def _table(header: tuple[str, ...], rows: Iterable[Iterable[str]]) -> str:
    heading, *body = (f"| {' | '.join(cells)} |\n" for cells in (header, *rows))
    return "".join([heading, "|---" * len(header) + "|\n", *body])


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
