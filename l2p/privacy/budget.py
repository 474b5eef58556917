"""The budget of a run, and its notion of neighbouring tables."""

import math
from dataclasses import dataclass

from l2p.base.errors import InputError
from l2p.privacy.events import Adjacency

#: Outside this range a guarantee is too strict to allow any run, or too weak to mean anything.
MIN_EPSILON, MAX_EPSILON = 1e-12, 1e6
#: Above this a guarantee is worth a warning.
LARGE_EPSILON = 10.0


@dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) target with its adjacency.

    Attributes:
      epsilon: finite and above 0.
      delta: probability below 1; `check_rows` requires it to be below 1/N. 0 asks for pure differential privacy, which
        only some noise gives (`l2p.privacy.events.PURE`).
      adjacency: an `Adjacency` or its string value.

    >>> str(Budget(0.1, 1e-8))
    '(epsilon=0.1, delta=1e-08), zero_out adjacency'
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = Adjacency.ZERO_OUT

    def __post_init__(self) -> None:
        """Check the three values and store them in their own types."""
        object.__setattr__(self, "epsilon", _number("epsilon", self.epsilon))
        object.__setattr__(self, "delta", _number("delta", self.delta))
        if not 0 < self.epsilon < math.inf:
            raise InputError(
                f"epsilon is {self.epsilon!r}, but a guarantee needs a finite epsilon above 0; "
                "choose one, such as 0.1 or 1."
            )
        if not MIN_EPSILON <= self.epsilon <= MAX_EPSILON:
            raise InputError(
                f"epsilon is {self.epsilon!r}, outside [{MIN_EPSILON:g}, {MAX_EPSILON:g}], where the calibrations "
                "here are checked; choose one inside, such as 0.1 or 1."
            )
        if not 0 <= self.delta < 1:
            raise InputError(
                f"delta is {self.delta!r}, but it is the probability that the guarantee may fail with; choose one well "
                "below one over the number of rows, such as 1e-8, or 0 for pure differential privacy."
            )
        try:
            object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        except ValueError:
            choices = ", ".join(Adjacency)
            raise InputError(
                f"adjacency {self.adjacency!r} is unknown, so the guarantee would say nothing about which tables "
                f"count as neighbours; choose one of {choices}."
            ) from None

    def check_rows(self, num_rows: int) -> None:
        """Refuse a delta that is vacuous for a table of `num_rows` rows (a public number).

        >>> Budget(0.1, 1e-8).check_rows(30_400)
        """
        if num_rows < 1:
            raise InputError(
                "a table without rows has nothing to learn from and nothing to protect; check the source and its "
                "filters, or the number of rows that was declared."
            )
        if self.delta * num_rows >= 1:
            # Under add_remove N may have been counted from the table, so the message does not quote it.
            private = self.adjacency is Adjacency.ADD_REMOVE
            for_n, most = ("", "it") if private else (f" for N={num_rows}", f"{1 / num_rows:.1e}")
            raise InputError(
                f"delta={self.delta!r} is not below 1/N{for_n}, and a mechanism that publishes one row picked at "
                f"random would meet such a guarantee; choose delta well below {most}."
            )

    def warnings(self) -> list[str]:
        """Sentences on a budget that is allowed and protects little.

        >>> Budget(3.0, 1e-6).warnings()
        []
        """
        if self.epsilon <= LARGE_EPSILON:
            return []
        return [
            f"Epsilon {self.epsilon:g} is above {LARGE_EPSILON:g}, which protects a row very little: the odds of a "
            f"guess about it may change by a factor of e^{self.epsilon:g}; choose 1 or less where you can."
        ]

    def __str__(self) -> str:
        """The guarantee as the card prints it."""
        return f"(epsilon={self.epsilon!r}, delta={self.delta!r}), {self.adjacency.value} adjacency"


def _number(name: str, value: float) -> float:
    """The value as a float; `InputError` if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}, but a guarantee is stated in numbers; give a number.") from None
