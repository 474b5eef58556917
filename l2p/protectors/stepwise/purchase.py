"""Purchases: statistics of rows, bought or public, that a stepwise protector gets before its first step."""

import abc
import dataclasses
import enum
from typing import Any, ClassVar

import jax

from l2p.base.struct import Struct
from l2p.models import Model
from l2p.oracle import Oracle
from l2p.task.feature_map import FeatureMap


class Stage(enum.IntEnum):
    """Place of a purchase in the order: after those of earlier stages, whose answers it may use."""

    RATES = 0
    CENTER = 1
    LENGTH = 2
    DIRECTIONS = 3
    BASIS = 4
    SCALE = 5
    START = 6
    GRADIENT = 7


@dataclasses.dataclass(frozen=True)
class Start:
    """Start and map of a run as the purchases made so far leave them.

    Attributes:
      params: f32[p], where training starts, for raw rows.
      features: the map that steps read rows through.
      strength: f32[d], log of the signal-to-noise ratio of each mapped feature; None if it was not bought.
      moment: f32[d], second moments of the mapped features; None if they were not bought.
      length: f32[], that mapped rows are scaled to; None if they are not.
      start_variance: f32[p], of the error of `params`; None if it was not bought.
      rates: f32[K], the shares of the classes, as `Observation` has them; None if they were not bought.
      log_length: f32[], of gradients at the start, as `Observation` has it; None if it was not bought.
      fitted: f32[p], where training starts, for mapped rows; None for what `params` are for these.
    """

    params: jax.Array
    features: FeatureMap
    strength: jax.Array | None = None
    moment: jax.Array | None = None
    length: jax.Array | None = None
    start_variance: jax.Array | None = None
    rates: jax.Array | None = None
    log_length: jax.Array | None = None
    fitted: jax.Array | None = None

    def but(self, **changes: Any) -> "Start":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def mapped_params(self, model: Model) -> jax.Array:
        """f32[p], where training starts, for mapped rows."""
        return model.params_for_mapped_rows(self.params, self.features) if self.fitted is None else self.fitted


class Purchase(Struct, abc.ABC):
    """Statistic of rows, or a start, that a `Stepwise` gets before its first step.

    Concrete ones are `l2p.base.struct` dataclasses.

    Attributes:
      kind: its name among the parts of a protector: in files, in paths of the tree and in messages.
      stage: when it is made.
      maps_rows: whether it changes the map that rows are read through.
      replaces_maps: whether it makes the whole map, so that files with another purchase that maps rows are refused.
      is_free: whether it asks nothing about private rows.
      needs_public: whether it works with public rows only.
      adaptive: whether what it pays depends on answers.
    """

    kind: ClassVar[str]
    stage: ClassVar[Stage]
    maps_rows: ClassVar[bool] = True
    replaces_maps: ClassVar[bool] = False
    is_free: ClassVar[bool] = False
    needs_public: ClassVar[bool] = False
    adaptive: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__ and KINDS.setdefault(cls.kind, cls).__qualname__ != cls.__qualname__:
            raise TypeError(f"two purchases are called {cls.kind!r}, which files could not tell apart; rename one.")

    def fits(self, model: Model) -> bool:
        """True if it is made for this model; other models are run without it."""
        return model.has_intercept

    @abc.abstractmethod
    def buy(self, start: Start, oracle: Oracle) -> Start:
        """The start after this purchase, from the start before it."""


#: Every class of purchases, by its kind.
KINDS: dict[str, type[Purchase]] = {}
