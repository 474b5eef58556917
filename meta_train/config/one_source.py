"""Tasks for one model, from one public set or a mixture."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Self

from meta_train.config.checks import refuse
from meta_train.config.drawn import Shape, Tasks, check_rates, of_shapes
from meta_train.tasks.family import Family
from meta_train.tasks.sources import families


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneSource(Tasks):
    """Tasks from one source, or a mixture.

    Attributes:
      source: public data set that tasks are drawn from, or `mnist:rest:3,5`: every pair of the other digits; or
        `random_quadratics`, `synthetic` (two classes), `synthetic:numbers` or `synthetic:classes:10`, which need no
        table; or a mixture such as `adult+synthetic`, if tasks have drawn columns.
      model: name of the model that is trained.
      num_features: feature counts that tasks cycle through; None for tasks with the table's own columns.
      num_classes: number of classes of the tasks with each of these counts; None for the number in the model's name.
      sampling_rates: Poisson sampling rate of runs on tasks with each of these counts; None for batches as the
        protector draws them. What ships uses the first of these rates.
    """

    source: str = "adult"
    model: str = "logistic"
    num_features: tuple[int, ...] | None = (8, 24, 52, 104)
    num_classes: tuple[int, ...] | None = None
    sampling_rates: tuple[float, ...] | None = None

    def __post_init__(self):
        super().__post_init__()
        counts = self.num_features or ()
        if self.num_features is not None and (not counts or min(counts) < 1):
            refuse(
                self,
                "num_features",
                "tasks need feature counts from 1 up; list some, or write null for the table's own columns",
            )
        if self.num_classes is not None and (len(self.num_classes) != len(counts) or min(self.num_classes) < 2):
            refuse(self, "num_classes", "it needs one number, from 2 up, for each of num_features; list equally many")
        check_rates(self)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        counts = (None,) if self.num_features is None else self.num_features
        defaults = (None,) * len(counts)
        listed = zip(counts, self.num_classes or defaults, self.sampling_rates or defaults, strict=True)
        return tuple(Shape(count, self.source, self.model, classes, rate) for count, classes, rate in listed)

    def of_shapes(self, places: Sequence[int]) -> Self:
        """Those of some of the shapes.

        >>> OneSource(num_features=(8, 24, 52)).of_shapes([0, 2]).num_features
        (8, 52)
        """
        return of_shapes(self, ("num_features", "num_classes", "sampling_rates"), places)

    def open(self) -> Callable[[Shape], tuple[Family, Family]]:
        opened = families(self.source)
        return lambda shape: opened
