"""Curves that a budget carries: those of numbers whose values do not crowd, decided by public facts alone."""

import dataclasses
from collections.abc import Mapping

from l2p.privacy.budget import Budget
from l2p.privacy.cost.convert import gdp_mu
from l2p.tables.schema.columns import Column
from l2p.tables.schema.encoding import Encoding
from l2p.tables.schema.schema import Schema

#: Knots of each curve, and the least mu N for each encoded feature (benchmarks/pages/curves.md).
KNOTS, LEAST_SIGNAL = 4, 40.0


@dataclasses.dataclass(frozen=True)
class Means:
    """What a run may spend, and on how many rows.

    Attributes:
      budget: of the run.
      num_rows: N of the private table, public by declaration.
    """

    budget: Budget
    num_rows: int

    def __post_init__(self) -> None:
        self.budget.check_rows(self.num_rows)

    def signal(self, schema: Schema) -> float:
        """mu N over the number of encoded features; 0 for pure differential privacy, which has no mu.

        >>> from l2p.tables.schema import Number, Target
        >>> age = Schema({"age": Number(0, 120, curve=4)}, Target("back", classes=("no", "yes")))
        >>> round(Means(Budget(1.0, 1e-6), 1000).signal(age), 1)
        59.2
        """
        if self.budget.delta == 0:
            return 0.0
        mu = gdp_mu(self.budget.epsilon, self.budget.delta) / self.budget.adjacency.sensitivity_factor
        return mu * self.num_rows / len(Encoding(schema).names)


def in_budget(means: Means, schema: Schema, bent: Mapping[str, Column]) -> tuple[Schema, str]:
    """A schema whose numbers are the `bent` ones, by name, if the budget carries them, else as it is; and why."""
    curved = dataclasses.replace(schema, columns={**schema.columns, **bent})
    amount = f"mu N is {means.signal(curved):.3g} for each encoded feature; from {LEAST_SIGNAL:g} on, it pays"
    if means.signal(curved) < LEAST_SIGNAL:
        return schema, f"Only numbers whose values crowd are curves: with curves for all {amount}."
    return curved, f"All numbers with more than a few values are curves: {amount}."
