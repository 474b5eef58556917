"""`l2p plan`: what accuracy to expect of a budget, before anything is spent."""

import dataclasses
import json
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from l2p.plan import Forecast

NOISE = (
    "Noise is the standard deviation of the noise on the mean of all rows, each of norm at most 1, if the whole budget "
    "were spent on that mean."
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Forecast the accuracy of each shipped protector from public facts; no private row is read."""

    rows: int
    """Number of rows N of the private table."""
    features: int
    """Number of features."""
    epsilon: float
    """Privacy budget."""
    delta: float
    """Privacy budget, a probability below 1 / number of rows."""
    model: str = "logistic"
    """The model to train."""
    adjacency: Literal["zero_out", "add_remove", "replace_one"] = "zero_out"
    """Which tables are neighbours."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Print the forecasts."""
        from l2p.plan import plan
        from l2p.privacy.budget import Budget
        from l2p.privacy.events import Adjacency

        # Budget takes an adjacency's name, and refuses an unknown one with a sentence.
        budget = Budget(self.epsilon, self.delta, cast(Adjacency, self.adjacency))
        found = plan(self.rows, self.features, budget, self.model)
        if self.json:
            print(json.dumps(dataclasses.asdict(found), indent=1, allow_nan=False))
            return 0
        from rich.box import SIMPLE
        from rich.console import Console
        from rich.table import Column, Table

        title = f"{self.model} on {self.rows:,} rows x {self.features:,} features, {budget}"
        columns = ("log(mu N),\nnoise", "accuracy", "gain over\nmajority", "epsilon to\nbeat it")
        table = Table(
            Column("protector,\naccountant", overflow="fold"), *columns, title=title, box=SIMPLE, pad_edge=False
        )
        fitting = [forecast for forecast in found.forecasts if forecast.fits_features]
        for forecast in fitting:
            table.add_row(*_cells(forecast))
        Console().print(table)
        others = [forecast.name for forecast in found.forecasts if not forecast.fits_features]
        left_out = [f"Made for other numbers of features: {', '.join(others)}."] if others else []
        for line in [found.advice, "", *_warnings(fitting), *left_out, NOISE, *found.notes]:
            Console().print(line, markup=False, highlight=False)
        return 0


def _cells(forecast: "Forecast") -> list[str]:
    from l2p.plan import rounded

    least = forecast.least_epsilon
    return [
        f"{forecast.name}\n{forecast.accountant}",
        f"{forecast.log_signal:.2f}\n{forecast.noise:.2g}",
        _triple(forecast.accuracy),
        _triple(forecast.gain),
        "never" if least is None else rounded(least, up=True),
    ]


def _triple(values: tuple[float, ...] | None) -> str:
    """The median, with the range below it."""
    if values is None:
        return "not\nmeasured"
    low, median, high = (round(100 * value, 1) + 0.0 for value in values)  # no -0.0
    return f"{median:.1f}\n{low:.1f} to {high:.1f}"


def _warnings(forecasts: "list[Forecast]") -> list[str]:
    """Each warning once, with all protectors that it applies to."""
    said: dict[str, list[str]] = {}
    for forecast in forecasts:
        for sentence in forecast.warnings:
            said.setdefault(sentence, []).append(forecast.name)
    return [f"Warning for {', '.join(names)}: {sentence}" for sentence, names in said.items()]
