"""Contenders that do the same work, checked and then timed in turn, so that changes of the machine affect all alike."""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Absent(Exception):
    """A contender that cannot be run here; the message says why."""

    @classmethod
    def of(cls, module: str) -> "Absent":
        """The reason where a module of the extra `bench` is not installed."""
        return cls(f"{module} is not installed; pip install '.[bench]'")


class OtherWork(Exception):
    """A contender whose result shows that it does other work."""


@dataclasses.dataclass(frozen=True)
class Contender:
    """One way to do the work of a table.

    Attributes:
      run: does it and waits until it is done.
      units: how many units of the work, such as steps, one call of `run` does.
      check: gives the result of the work in its plainest form, a number that has to agree with those of the other
        contenders; None for a part of the work, which has no such result.
    """

    run: Callable[[], Any]
    units: int = 1
    check: Callable[[], float] | None = None


#: Makes a contender ready, or raises `Absent`.
Prepare = Callable[[], Contender]


@dataclasses.dataclass(frozen=True)
class Table:
    """Measurements of one kind of work.

    Attributes:
      title: the work.
      unit: of the values, "s" or "MiB".
      base: the name of the contender that all others are divided by.
      values: per contender, one value per round.
      absent: per contender that was not run, why.
      note: what else there is to know, or "".
    """

    title: str
    unit: str
    base: str
    values: dict[str, list[float]]
    absent: dict[str, str] = dataclasses.field(default_factory=dict)
    note: str = ""

    def median(self, name: str) -> float:
        """Median over rounds."""
        return statistics.median(self.values[name])

    def ratio(self, name: str, base: str | None = None) -> float:
        """Median of a contender over that of another, by default the base."""
        return self.median(name) / self.median(base or self.base)

    def spread(self, name: str) -> tuple[float, float]:
        """First and third quartile of the ratios to the base within a round."""
        ratios = [value / base for value, base in zip(self.values[name], self.values[self.base], strict=True)]
        if len(ratios) == 1:
            return ratios[0], ratios[0]
        first, _, third = statistics.quantiles(ratios, n=4, method="inclusive")
        return first, third


def measure(
    title: str,
    base: str,
    contenders: Mapping[str, Prepare],
    rounds: int,
    tolerance: float = 1e-3,
    clock: Callable[[], float] = time.process_time,
    note: str = "",
) -> Table:
    """Seconds per unit of every contender, `rounds` times in turn, after one call each that is not timed.

    Args:
      title, base, note: of the table.
      contenders: by name.
      rounds: at least 1.
      tolerance: the largest relative difference between results that counts as the same work.
      clock: gives seconds; by default those that all threads of this process computed, which other jobs do not
        lengthen.

    Raises:
      OtherWork: two results differ.
    """
    ready, absent = {}, {}
    for name, prepare in contenders.items():
        try:
            ready[name] = prepare()
        except Absent as reason:
            absent[name] = str(reason)
    check_same_work(title, {name: contender.check for name, contender in ready.items()}, tolerance)
    values: dict[str, list[float]] = {name: [] for name in ready}
    for contender in ready.values():
        contender.run()
    for _ in range(rounds):
        for name, contender in ready.items():
            began = clock()
            contender.run()
            values[name].append((clock() - began) / contender.units)
    return Table(title, "s", base, values, absent, note)


def check_same_work(title: str, checks: Mapping[str, Callable[[], float] | None], tolerance: float) -> None:
    """Refuse results that differ by more than `tolerance` from the first."""
    results = {name: check() for name, check in checks.items() if check is not None}
    for name, result in results.items():
        first_name, first = next(iter(results.items()))
        if not math.isclose(result, first, rel_tol=tolerance):
            raise OtherWork(f"{title}: {name} ends at {result:.6g} and {first_name} at {first:.6g}: not the same work.")


def summary(table: Table) -> Sequence[tuple[str, str, str, str]]:
    """Lines of a table: contender, median, ratio to the base, and quartiles of that ratio."""
    lines = []
    for name in table.values:
        low, high = table.spread(name)
        has_spread = name != table.base and len(table.values[name]) > 1
        ratios = f"{table.ratio(name):.3g}", f"{low:.3g} to {high:.3g}" if has_spread else ""
        lines.append((name, quantity(table.median(name), table.unit), *ratios))
    return [*lines, *((name, "not run", reason, "") for name, reason in table.absent.items())]


def quantity(value: float, unit: str) -> str:
    """A number with three digits in a unit that suits it, or with four of MiB.

    >>> quantity(0.00123, "s"), quantity(12.0, "s"), quantity(310.2, "MiB")
    ('1.23 ms', '12 s', '310.2 MiB')
    """
    if unit == "s":
        for factor, name in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
            if value * factor >= 1.0:
                return f"{value * factor:.3g} {name}"
        return f"{1e9 * value:.3g} ns"
    return f"{value:.4g} {unit}"
