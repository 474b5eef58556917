"""Tasks from many public sets with different kinds of targets, or from tables of a user's own."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from l2p.tables.own import is_own
from meta_train.config.checks import refuse
from meta_train.config.drawn import ALL_FRESH, Shape, Tasks, check_rates, of_shapes
from meta_train.tasks.family import Family
from meta_train.tasks.sources import families


@dataclasses.dataclass(frozen=True, kw_only=True)
class ManySources(Tasks):
    """Tasks with different kinds of targets, so that one protector learns to train every model.

    Attributes:
      num_features: feature counts that tasks cycle through.
      sources: source of the tasks with each of these counts, as for `OneSource`.
      models: name of the model that is trained on the tasks with each of these counts.
      fresh_shares: the shares of tasks, at the ends of `log_signal`, whose runs are scored on rows that they did not
        read (`meta_train.tasks.fresh_rows`); between the ends it is interpolated. A task with little signal stands for
        few rows, or for a small budget; one with much stands for so many rows that its runs hardly overfit.
        None for runs that are scored on the rows that they read.
      sampling_rates: as for `OneSource`.
    """

    num_features: tuple[int, ...]
    sources: tuple[str, ...]
    models: tuple[str, ...]
    fresh_shares: tuple[float, float] | None = None
    sampling_rates: tuple[float, ...] | None = None
    lends: ClassVar[bool] = True
    #: Fields with an entry for each shape.
    BY_SHAPE: ClassVar[tuple[str, ...]] = ("num_features", "sources", "models", "sampling_rates")

    def __post_init__(self):
        super().__post_init__()
        if not self.num_features or min(self.num_features) < 1:
            refuse(self, "num_features", "tasks need feature counts from 1 up; list some")
        for field in ("sources", "models"):
            if len(getattr(self, field)) != len(self.num_features):
                refuse(self, field, "it needs one name for each of num_features; list equally many")
        shares = self.fresh_shares
        if shares is not None and (len(shares) != 2 or not all(0 <= share <= 1 for share in shares)):
            refuse(
                self,
                "fresh_shares",
                "it is a share of tasks at either end of log_signal; write two numbers from 0 to 1",
            )
        check_rates(self)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        rates = self.sampling_rates or (None,) * len(self.num_features)
        listed = zip(self.num_features, self.sources, self.models, rates, strict=True)
        return tuple(Shape(count, source, model, None, rate) for count, source, model, rate in listed)

    def of_shapes(self, places: Sequence[int]) -> Self:
        return of_shapes(self, self.BY_SHAPE, places)

    def open(self) -> Callable[[Shape], tuple[Family, Family]]:
        opened = functools.cache(functools.partial(families, fresh_rows=self.fresh_shares is not None))
        return lambda shape: opened(shape.source)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnSources(ManySources):
    """The same, of tables of a user's own, whose runs are scored on rows that they did not read."""

    fresh_shares: tuple[float, float] = ALL_FRESH

    def __post_init__(self):
        super().__post_init__()
        if not all(map(is_own, self.all_sources)):
            refuse(self, "sources", "these are for tables of a user's own, which --data names; choose another kind")
