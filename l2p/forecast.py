"""How much of what there is to learn a budget buys, from how it went on tables that `universal` never saw. Free of JAX.

The share of the reachable gain is (constant - universal) / (constant - nonprivate), in test loss: 0 is the best
constant prediction, 1 what training without privacy gains. `benchmarks/forecast.py` measures it with the folds of
`universal`, writes `forecast.json`, and checks the ranges on tables that they were not made from.
"""

import dataclasses
import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

#: Name of the protector that was measured.
MEASURED = "universal"
_FILE = Path(__file__).with_name("forecast.json")


@dataclasses.dataclass(frozen=True)
class Curve:
    """Quantiles of the share of the reachable gain, by log(mu N) less what uneven and many classes cost.

    Attributes:
      many: by how much log(K/2) for K classes lowers log(mu N).
      uneven: by how much log(.5 / (1 - share of the commonest class)) does, if that share is above a half; 0 where it
        is not known.
      signals: knots, f64[k].
      low, median, high: the quantiles there, f64[k], which rise with the signal; linear in between.
    """

    many: float
    uneven: float
    signals: tuple[float, ...]
    low: tuple[float, ...]
    median: tuple[float, ...]
    high: tuple[float, ...]

    def cost(self, classes: int | None, majority: float | None) -> float:
        """What the classes take from log(mu N); nothing for a number (None).

        >>> Curve(0.5, 1.0, (0.0,), (0.0,), (0.0,), (0.0,)).cost(2, 0.95)
        2.302585092994045
        """
        many = self.many * math.log(max(classes or 2, 2) / 2)
        return many + self.uneven * math.log(0.5 / (1 - max(majority or 0.5, 0.5)))

    def at(self, signal: float) -> tuple[float, float, float]:
        """Low, median and high share at log(mu N) less `cost`; beyond the knots, that of the nearest.

        >>> Curve(0.0, 0.0, (2.0, 4.0), (0.0, 0.5), (0.25, 0.75), (0.5, 1.0)).at(3.0)
        (0.25, 0.5, 0.75)
        """
        low, median, high = (
            float(np.interp(signal, self.signals, line)) for line in (self.low, self.median, self.high)
        )
        return low, median, high

    def least_signal(self, share: float) -> float | None:
        """The least log(mu N) less `cost` from which on the low end is at a share or above; None if it never is.

        >>> Curve(0.0, 0.0, (2.0, 4.0), (0.0, 0.5), (0.1, 0.7), (0.3, 0.9)).least_signal(0.25)
        3.0
        """
        if self.low[-1] < share:
            return None
        if self.low[0] >= share:
            return self.signals[0]
        last = max(index for index, value in enumerate(self.low) if value < share)
        ends = slice(last, last + 2)
        return float(np.interp(share, self.low[ends], self.signals[ends]))


@functools.cache
def measured() -> dict[str, Any]:
    """What was measured: `curve` where the share of the commonest class is known, `blind` where it is not, `tables` and
    `covered`, the share of runs on unseen tables that fell into their range."""
    content = json.loads(_FILE.read_text(encoding="utf-8"))
    return content | {name: _curve(content[name]) for name in ("curve", "blind")}


def _curve(content: dict[str, Any]) -> Curve:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    return Curve(**values)
