"""Share of the reachable gain that a budget buys, from results on tables that `universal` never saw. Free of JAX.

The share of the reachable gain is (constant - universal) / (constant - nonprivate), in test loss: 0 is the best
constant prediction, 1 what training without privacy gains. `benchmarks/forecast.py` measures it with the folds of
`universal`, writes `reachable_gain.json`, and checks the ranges on tables that they were not made from.
"""

import dataclasses
import functools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

#: Name of the protector that was measured.
MEASURED = "universal"
#: Shares of the commonest class that the high end, the median and the low end are for, where nobody states one.
EVEN, MIDDLE, UNEVEN = 0.5, 0.75, 0.95
_FILE = Path(__file__).with_name("reachable_gain.json")


@dataclasses.dataclass(frozen=True)
class Curve:
    """Quantiles of the share of the reachable gain, by log(mu N) less what uneven and many classes cost.

    Attributes:
      many: by how much log(K/2) for K classes lowers log(mu N).
      uneven: by how much log(.5 / (1 - share of the commonest class)) does, if that share is above a half.
      signals: knots, f64[k].
      low, median, high: the 10, 50 and 90 % quantiles there, f64[k], which rise with the signal; linear in between.
    """

    many: float
    uneven: float
    signals: tuple[float, ...]
    low: tuple[float, ...]
    median: tuple[float, ...]
    high: tuple[float, ...]

    def cost(self, classes: int | None, majority: float | None) -> float:
        """The amount that the classes take from log(mu N); 0 for a number (None).

        >>> Curve(0.5, 1.0, (0.0,), (0.0,), (0.0,), (0.0,)).cost(2, 0.95)
        2.302585092994045
        """
        if classes is None:
            return 0.0
        uneven = math.log(0.5 / (1 - max(majority or EVEN, 0.5)))
        return self.many * math.log(max(classes, 2) / 2) + self.uneven * uneven

    def share(self, signal: float, classes: int | None, majority: float | None) -> tuple[float, float, float]:
        """Low, median and high share at log(mu N); beyond the knots, those of the nearest.

        Args:
          signal: log(mu N).
          classes: their number; None for a number to predict.
          majority: the share of the commonest class; None for a range that covers even and uneven ones.

        >>> curve = Curve(0.0, 1.0, (2.0, 4.0), (0.0, 0.5), (0.25, 0.75), (0.5, 1.0))
        >>> curve.share(3.0, 2, 0.5), [round(share, 2) for share in curve.share(4.0, 2, None)]
        ((0.25, 0.5, 0.75), [0.0, 0.58, 1.0])
        """
        guesses = (UNEVEN, MIDDLE, EVEN) if majority is None else (majority,) * 3
        curves = zip(guesses, (self.low, self.median, self.high), strict=True)
        low, median, high = (
            float(np.interp(signal - self.cost(classes, guess), self.signals, curve)) for guess, curve in curves
        )
        return low, median, high

    def least_signal(self, share: float, classes: int | None, majority: float | None) -> float | None:
        """The least log(mu N) from which on the low end is at a share or above; None if it never is.

        >>> curve = Curve(0.0, 0.0, (2.0, 4.0), (0.0, 0.5), (0.1, 0.7), (0.3, 0.9))
        >>> curve.least_signal(0.25, 2, None), curve.least_signal(0.6, 2, None)
        (3.0, None)
        """
        if self.low[-1] < share:
            return None
        cost = self.cost(classes, UNEVEN if majority is None else majority)
        if self.low[0] >= share:
            return self.signals[0] + cost
        last = max(index for index, value in enumerate(self.low) if value < share)
        ends = slice(last, last + 2)
        return float(np.interp(share, self.low[ends], self.signals[ends])) + cost


class Measured(NamedTuple):
    """Measurement that forecasts are made from.

    Attributes:
      curve: from all tables.
      tables: their number.
      covered: the share of runs on tables that a curve was not made from which fell into their range.
    """

    curve: Curve
    tables: int
    covered: float


@functools.cache
def measured() -> Measured:
    """The content of `reachable_gain.json`."""
    content = json.loads(_FILE.read_text(encoding="utf-8"))
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content["curve"].items()
    }
    return Measured(Curve(**values), content["tables"], content["covered"])
