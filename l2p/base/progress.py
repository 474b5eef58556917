"""Progress of a long run, on standard error."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

#: Seconds between two lines; what is over sooner says nothing.
EVERY = 5.0


class Progress:
    """Counts rows and steps, and prints a line now and then.

    Where the number of rows is private, it counts steps alone: a line that counted rows would say how many there are.

    Args:
      counts_rows: whether the number of rows is public.
      total: rows in all, where each is read once.
      out: where lines go; standard error by default.
      clock: seconds.

    >>> seconds = iter([0.0, 10.0])
    >>> progress = Progress(out=sys.stdout, clock=lambda: next(seconds))
    >>> progress.read(4_000_000)
    4,000,000 rows, 400,000 rows/s
    """

    def __init__(
        self,
        counts_rows: bool = True,
        total: int | None = None,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._counts_rows = counts_rows
        self._total = total
        self._out = out
        self._clock = clock
        self._began = self._printed = clock()
        self._rows = 0
        self._steps, self._max_steps = 0, 0

    def read(self, rows: int) -> None:
        """Count rows that were read."""
        self._rows += rows
        self._print()

    def stepped(self, steps: int, max_steps: int) -> None:
        """Set how many steps a run has taken, of at most `max_steps`."""
        if self._steps == 0:
            self._first = self._clock()  # what came before, such as compiling, is not repeated
        self._steps, self._max_steps = steps, max_steps
        self._print()

    def _print(self) -> None:
        now = self._clock()
        if now - self._printed < EVERY:
            return
        self._printed, seconds = now, now - self._began
        parts = [f"step {self._steps} of {self._max_steps}"] if self._max_steps else []
        if self._counts_rows and self._rows:
            parts += [f"{self._rows:,} rows", f"{self._rows / seconds:,.0f} rows/s"]
        remaining = self._remaining(now)
        parts += [] if remaining is None else [f"at most {_duration(remaining)} left"]
        print(", ".join(parts), file=self._out or sys.stderr, flush=True)

    def _remaining(self, now: float) -> float | None:
        """Seconds until the last step or row, if all go as those before."""
        if self._max_steps:
            return (
                (now - self._first) / (self._steps - 1) * (self._max_steps - self._steps) if self._steps > 1 else None
            )
        if self._total and self._rows:
            return (now - self._began) / self._rows * max(self._total - self._rows, 0)
        return None


def _duration(seconds: float) -> str:
    """A time in the largest unit that fits.

    >>> _duration(42), _duration(200), _duration(9000)
    ('42 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
