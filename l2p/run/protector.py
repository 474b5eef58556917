"""The protocol of every method: `init`, a `step` that only reads paid answers, and `finish`."""

import abc
from typing import Any, ClassVar

from jaxtyping import Array, Float

from l2p.base.struct import Struct
from l2p.models import NAMES, Model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.cost.sampling import FullBatch, Sampler
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows

State = Any


class Protector(Struct, abc.ABC):
    """A private optimizer. Concrete ones are `l2p.base.struct` dataclasses whose array fields are their parameters.

    Everything a protector learns about private rows comes from `oracle.ask`, so whatever it computes is
    post-processing and needs no proof of its own.

    Attributes:
      num_steps: static; a run never takes more steps.
      models: names of the models it can train.
      any_model: whether it trains users' own models, too, for it asks for clipped gradients and losses alone.
      mechanisms: noise distributions of its queries; decides the accountant when none is named.
      additive: whether all its queries are sums over rows; others need every row in memory.
      streams: whether its queries can be answered where rows stream: they are sums, or passes over permuted rows.
      sampler: which rows the queries of a step read; static. Sums are divided by `Setup.batch_rows`.
      adaptive_noise: whether noise levels or the stopping time depend on earlier answers. Such a run is certified by
        its filter at the cap, never by what it has spent so far. Set it to False only if noise and stopping time are
        the same on every table.
      fixed: names of array fields that are never tuned; parts of one may have it too
        (`l2p.protectors.learned.tunable`).
      asks_once: whether it asks one query, which takes its whole budget.
      needs_public: whether it works with public rows only; a run without them is refused before anything is read.
      reads_in_order: whether a query takes private rows in the order of the table, so that what a row contributes
        depends on its place.
      reads_remaining_map: whether its steps read rows that came through `view` through `oracle.remaining_map`.
    """

    num_steps: int
    models: ClassVar[tuple[str, ...]] = ("logistic",)
    any_model: ClassVar[bool] = False
    mechanisms: ClassVar[tuple[str, ...]] = ("gaussian",)
    additive: ClassVar[bool] = True
    sampler: Sampler = FullBatch()
    adaptive_noise: ClassVar[bool] = True
    fixed: ClassVar[tuple[str, ...]] = ()
    by_difference: ClassVar[tuple[str, ...]] = ()
    asks_once: ClassVar[bool] = False
    needs_public: ClassVar[bool] = False
    reads_in_order: ClassVar[bool] = False
    reads_remaining_map: ClassVar[bool] = False

    def trains(self, model: Model) -> bool:
        """True if it was made for this model."""
        return model.name in self.models or (self.any_model and model.name not in NAMES)

    @property
    def streams(self) -> bool:
        return self.additive

    def check_model(self, model: Model) -> None:
        """Refuse a model, or settings, that its proof does not cover; `InputError`, before a row is read."""
        del model

    @property
    def planned_rows(self) -> int | None:
        """The most lines of a table for which its queries are planned; None for any."""
        return None

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        """Refuse public rows that it cannot use, which lack a class for example
        (`l2p.protectors.stepwise.public_rows.check_classes`); `InputError`, before a private row is read.

        Args:
          public: NumPy arrays, checked to fit the model.
          model: the model.
          kind: what its target is, one of `model.kinds`.
        """
        del public, model, kind

    @abc.abstractmethod
    def init(self, params: Float[Array, " params"], oracle: Oracle) -> tuple[Float[Array, " inner"], State]:
        """Parameters and state before the first step. May ask one-off side queries, which read every row.

        Args:
          params: where training starts, for raw rows.
          oracle: answers queries on every row.

        Returns:
          Parameters, in coordinates of the protector's own, and a pytree of arrays that each `step` gets back.
        """

    def view(self, state: State) -> FeatureMap | None:
        """The map that a step's queries are to read every row through, so that rows are mapped once and not at each
        step; those queries then use rows as they are given. It must stay the same over the run. None leaves rows
        alone."""
        del state
        return None

    @abc.abstractmethod
    def step(
        self, params: Float[Array, " inner"], state: State, oracle: Oracle
    ) -> tuple[Float[Array, " inner"], State]:
        """One step: parameters and state to the next ones, of the same shapes.

        Traced once, so it must ask the same queries every time. An answer is a sum over the rows that were read; for a
        mean, divide by `oracle.setup.batch_rows`.
        """

    @abc.abstractmethod
    def finish(self, params: Float[Array, " inner"], state: State, setup: Setup) -> Float[Array, " params"]:
        """The parameters to release, for raw rows, from a run's last parameters and state."""
