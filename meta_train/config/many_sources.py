"""Tasks from many public sets with different kinds of targets, or from tables of a user's own."""

import dataclasses
import functools
import math
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
      shape_rows: rows of the tasks with each of these counts; None for `rows`.
      least_rows: of tasks that are scored on rows that they did not read, the share of those rows that they have at
        least; up to all of them, on a logarithmic scale. Where a table has fewer, that is what a task stands for.
      distinct_rows: whether each row of a table counts once in a task, which then has no more rows than the table.
      public_share: the largest share of a task's rows that is public, beside runs that read the others; 0 for none.
      public_shift: by how many standard deviations along some direction public rows differ from the others at most.
    """

    num_features: tuple[int, ...]
    sources: tuple[str, ...]
    models: tuple[str, ...]
    fresh_shares: tuple[float, float] | None = None
    sampling_rates: tuple[float, ...] | None = None
    shape_rows: tuple[int, ...] | None = None
    least_rows: float = 1.0
    distinct_rows: bool = False
    public_share: float = 0.0
    public_shift: float = 0.0
    lends: ClassVar[bool] = True
    #: Fields with an entry for each shape.
    BY_SHAPE: ClassVar[tuple[str, ...]] = ("num_features", "sources", "models", "sampling_rates", "shape_rows")

    def __post_init__(self):
        super().__post_init__()
        if not self.num_features or min(self.num_features) < 1:
            refuse(self, "num_features", "tasks need feature counts from 1 up; list some")
        if self.shape_rows is not None and min(self.shape_rows, default=1) < 1:
            refuse(self, "shape_rows", "tasks need rows; list counts from 1 up")
        for field in ("sources", "models", "shape_rows"):
            values = getattr(self, field)
            if values is not None and len(values) != len(self.num_features):
                refuse(self, field, "it needs one for each of num_features; list equally many")
        shares = self.fresh_shares
        if shares is not None and (len(shares) != 2 or not all(0 <= share <= 1 for share in shares)):
            refuse(
                self,
                "fresh_shares",
                "it is a share of tasks at either end of log_signal; write two numbers from 0 to 1",
            )
        if not 0 < self.least_rows <= 1:
            refuse(self, "least_rows", "it is a share of a task's rows; choose a number above 0 and up to 1")
        if shares is None and (self.least_rows < 1 or self.distinct_rows):
            field = "least_rows" if self.least_rows < 1 else "distinct_rows"
            refuse(self, field, "a run on few rows has to be scored on others, or overfitting pays; set fresh_shares")
        if not 0 <= self.public_share < 1:
            refuse(self, "public_share", "it is a share of a task's rows; choose a number from 0 up to, but not, 1")
        if not 0 <= self.public_shift < math.inf:
            refuse(self, "public_shift", "it is a distance; choose 0 or a number of standard deviations, such as 2")
        if shares is None and self.public_share:
            refuse(self, "public_share", "a run is scored on rows that it did not read then; set fresh_shares")
        check_rates(self)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        none = (None,) * len(self.num_features)
        rates, rows = self.sampling_rates or none, self.shape_rows or none
        return tuple(map(Shape, self.num_features, self.sources, self.models, none, rates, rows))

    def of_shapes(self, places: Sequence[int]) -> Self:
        return of_shapes(self, self.BY_SHAPE, places)

    def open(self) -> Callable[[Shape], tuple[Family, Family]]:
        opened = functools.cache(
            functools.partial(families, fresh_rows=self.fresh_shares is not None, distinct=self.distinct_rows)
        )
        return lambda shape: opened(shape.source)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnSources(ManySources):
    """The same, of tables of a user's own, whose runs are scored on rows that they did not read."""

    fresh_shares: tuple[float, float] = ALL_FRESH

    def __post_init__(self):
        super().__post_init__()
        if not all(map(is_own, self.all_sources)):
            refuse(self, "sources", "these are for tables of a user's own, which --data names; choose another kind")
