"""Curves or straight lines, by default: decided by public facts alone, a sample and the budget."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from l2p.privacy.budget import Budget
from l2p.privacy.cost.convert import gdp_mu
from l2p.tables.schema.columns import Number
from l2p.tables.schema.encoding import Encoding
from l2p.tables.schema.schema import Schema

#: Knots of each curve, and the mu N for each encoded feature from which on all numbers have one, whatever their values.
KNOTS, LEAST_SIGNAL = 4, 40.0
#: The share of numbers whose values crowd, and the mu N for each encoded feature, from which on all numbers have curves
#: where the target has classes (benchmarks/pages/curves.md).
LEAST_SHARE, LEAST_SIGNAL_CROWDED = 0.25, 1.0


class Curved(NamedTuple):
    """A number with a curve, and whether its public values crowd between its bounds (`curves.crowds`)."""

    column: Number
    crowds: bool


@dataclasses.dataclass(frozen=True)
class Allowance:
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
        >>> round(Allowance(Budget(1.0, 1e-6), 1000).signal(age), 1)
        59.2
        """
        if self.budget.delta == 0:
            return 0.0
        mu = gdp_mu(self.budget.epsilon, self.budget.delta) / self.budget.adjacency.sensitivity_factor
        return mu * self.num_rows / len(Encoding(schema).names)


def curves_or_lines(schema: Schema, curved: Mapping[str, Curved], allowance: Allowance | None) -> tuple[Schema, str]:
    """A schema whose numbers are the `curved` ones, by name, where that pays, else as it is; and why.

    Curves pay where values crowd and the target has classes: a line through crowded values is flat beside a category's
    0 and 1. Least squares lose by them at small budgets.
    """
    columns = {**schema.columns, **{name: each.column for name, each in curved.items()}}
    with_curves = dataclasses.replace(schema, columns=columns)
    count, crowded = len(curved), sum(each.crowds for each in curved.values())
    crowds = schema.target.classes is not None and crowded >= LEAST_SHARE * count
    crowd = f"{crowded} of the {count} with many values crowd in a small part of their bounds"
    features = len(Encoding(with_curves).names)
    if allowance is None:
        if crowds:
            return with_curves, (
                f"Numbers are curves, since {crowd}, where a straight line is nearly flat. With --epsilon, --delta and "
                f"--rows they are where the budget carries {features} features; --curve 0 makes lines."
            )
        return schema, "Numbers are straight lines; with --epsilon, --delta and --rows they are curves where that pays."
    least, signal = LEAST_SIGNAL_CROWDED if crowds else LEAST_SIGNAL, allowance.signal(with_curves)
    amount = f"mu N, the budget times the rows, is {signal:.3g} for each of {features} features"
    pays = f"they pay from {least:g} on" + (f", since {crowd}" if crowds else "")
    if signal >= least:
        return with_curves, f"Numbers are curves: {amount}, and {pays}."
    return schema, f"Numbers are straight lines: with curves {amount}, and {pays}."
