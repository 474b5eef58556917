"""Time of a training: progress lines, estimates and its limit."""

import dataclasses
import math
import sys
import time
from collections.abc import Callable

from l2p.base.errors import InputError

#: Seconds between two lines on a terminal, and where nobody looks on.
ON_TERMINAL, ELSEWHERE = 10.0, 60.0


def to_stderr(line: str) -> None:
    """A line for whoever looks on."""
    print(line, file=sys.stderr, flush=True)


@dataclasses.dataclass
class Watch:
    """A watch that starts when it is made.

    Attributes:
      minutes: that all there is to do may take, training and judging; None for as many as it takes.
      foretells: whether to measure how long all will take before it begins; where time is bound, it is measured anyway.
      say: what lines go to.
      judging: seconds set aside for what follows training.
      slowness: how many times longer than on two idle cores everything is thought to take (`planning.slowness`).
      now: the time in seconds.
    """

    minutes: float | None = None
    foretells: bool = False
    say: Callable[[str], None] = to_stderr
    judging: float = 0.0
    slowness: float = 1.0
    now: Callable[[], float] = time.monotonic

    def __post_init__(self):
        minutes = self.minutes
        if minutes is not None and not (isinstance(minutes, (int, float)) and 0 < minutes < math.inf):
            raise InputError(f"minutes is {minutes!r}, but it bounds the time of a training; choose 10, say.")
        self.began = self._last_said = self.now()
        self._next_step_seconds = 0.0
        self.foretells |= self.is_bound
        self._every = ON_TERMINAL if sys.stderr.isatty() else ELSEWHERE

    @property
    def is_bound(self) -> bool:
        """True if time is limited."""
        return self.minutes is not None

    @property
    def all(self) -> float:
        """Seconds that all there is to do may take."""
        return math.inf if self.minutes is None else 60.0 * self.minutes

    @property
    def left(self) -> float:
        """Seconds left for training, and for judging where nothing is set aside for that any more."""
        return self.all - self.judging - self.elapsed

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.now() - self.began

    def set_aside(self, seconds: float) -> None:
        """For judging, beside what was set aside before."""
        self.judging += seconds

    def release(self) -> None:
        """Training has ended: what was set aside is there to judge with."""
        self.judging = 0.0

    def estimate(self, step: float, check: float, steps: int, eval_every: int) -> None:
        """Say how long a training will take, from the seconds of a step and of a check on held-out tasks."""
        self._next_step_seconds, per_step = step + check, step + check / eval_every
        num_steps = max(1, min(steps, int(self.left / max(per_step, 1e-9)))) if self.is_bound else steps
        self.say(
            f"about {duration(num_steps * per_step + self.judging)} to go: {num_steps} steps of {step:.2g} s, and "
            f"{duration(self.judging)} to judge the result."
        )

    def stride(self, seconds: float, steps: int) -> float:
        """Number of the steps to come that one step has to stand for, so that the last is reached in time,
        from the seconds that one takes."""
        return 1.0 if not self.is_bound else max(1.0, steps * seconds / max(self.left, 1e-9))

    def is_up(self) -> bool:
        """True if another step, and the check after it, would not fit."""
        return self.left < self._next_step_seconds

    def tell(self, done: int, steps: int, seconds: float, score: float | None) -> None:
        """A line now and then on how far a training is, from the seconds that a step takes."""
        if self.now() - self._last_said < self._every:
            return
        self._last_said = self.now()
        held_out = "" if score is None else f", held-out score {score:.3f} (lower is better)"
        to_go = max(0.0, min((steps - done) * seconds, self.left)) + self.judging
        self.say(f"step {done} of {steps}, about {duration(to_go)} to go{held_out}")


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(42.4), duration(75), duration(600)
    ('42 s', '1 min 15 s', '10 min')
    """
    full_minutes, rest_seconds = divmod(round(seconds), 60)
    return " ".join(
        [
            *([f"{full_minutes} min"] if full_minutes else []),
            *([f"{rest_seconds} s"] if rest_seconds or not full_minutes else []),
        ]
    )
