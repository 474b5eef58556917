"""Hand-designed methods: their set-up from public facts, and the requirements of their proofs."""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.models import MODELS, Model
from l2p.privacy.budget import Budget
from l2p.privacy.events import Adjacency
from l2p.run.protector import Protector

#: A placeholder for a table's size while only names and options are checked.
ANY_ROWS = 10_000


@dataclasses.dataclass(frozen=True)
class Problem:
    """The public facts for which a method sets itself up.

    Attributes:
      budget: of the run.
      model: to be trained.
      num_rows: N, public by declaration; None while only names and options are checked.
      accountant: the requested one, or None.
    """

    budget: Budget
    model: Model = MODELS["logistic"]
    num_rows: int | None = None
    accountant: str | None = None

    @property
    def rows(self) -> int:
        """N, or a placeholder while it is not known."""
        return self.num_rows or ANY_ROWS


@dataclasses.dataclass(frozen=True)
class HandDesigned:
    """A method that needs no checkpoint.

    Attributes:
      make: sets it up.
      accountant: for a method in its paper's form, the only accountant it runs with; else None.
      adjacency: for such a method, the adjacency of its proof; None takes the requested one.
      form: "paper" for a method in its paper's form, "fair" for one with today's best set-up and accounting, "rival"
        for one that the reproduced papers do not compare with, "reference" for one without privacy.

    >>> from l2p.protectors import HAND_DESIGNED
    >>> HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5)).num_steps
    50
    """

    make: Callable[[Problem], Protector]
    accountant: str | None = None
    adjacency: Adjacency | None = None
    form: str = "fair"

    def __call__(
        self,
        budget: Budget,
        model: Model = MODELS["logistic"],
        num_rows: int | None = None,
        accountant: str | None = None,
    ) -> Protector:
        """The protector for this problem."""
        return self.make(Problem(budget, model, num_rows, accountant))

    def budget(self, budget: Budget) -> Budget:
        """`budget` with the adjacency of this method's proof."""
        return budget if self.adjacency is None else dataclasses.replace(budget, adjacency=self.adjacency)

    def check_paper_terms(self, name: str, budget: Budget, accountant: str | None) -> None:
        """Refuse an adjacency or an accountant other than the paper's."""
        if self.adjacency not in (None, budget.adjacency):
            raise InputError(
                f"{name} is calibrated and proved for {self.adjacency} neighbours, not for {budget.adjacency}; ask for "
                f"--adjacency {self.adjacency}, or choose its fair form."
            )
        if self.accountant is not None and accountant not in (None, self.accountant):
            raise InputError(
                f"{name} is its paper's method, calibrated by accountant {self.accountant!r} and not by "
                f"{accountant!r}; leave out the accountant, or choose its fair form."
            )


def log_constant(constant: float) -> jax.Array:
    """A constant polynomial f32[1] whose exponential is `constant`."""
    return jnp.array([math.log(constant)], jnp.float32)


def logit_constant(share: float) -> jax.Array:
    """A constant polynomial f32[1] whose sigmoid is `share`, in (0, 1)."""
    return log_constant(share / (1.0 - share))
