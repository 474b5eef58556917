"""Tasks of a training: their sizes, and the public sets and models that they are made of."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from l2p.data.own import is_own
from l2p.errors import InputError
from l2p.models import Model, find_model, plain_name
from meta_train.config.bands import BANDS
from meta_train.config.checks import check_counts, check_positive, refuse
from meta_train.tasks.family import Family
from meta_train.tasks.fresh_rows import with_fresh_rows
from meta_train.tasks.other_classes import along_other_classes
from meta_train.tasks.reference import RIDGE
from meta_train.tasks.sources import class_counts, families, kind_of, parts_of

#: What a config adds to excess losses unless it says otherwise: on a logarithmic scale above it, every budget has equal
#: weight. Scores also add it to the excess loss at the start, which they divide by.
EXCESS_FLOOR = 0.02


class Shape(NamedTuple):
    """What the tasks of an outer step have in common, for which the step is compiled.

    Attributes:
      num_features: None for the table's own columns.
      source: that tasks are drawn from.
      model: that is trained on them.
      num_classes: None for the model's.
      sampling_rate: of the runs' Poisson batches; None for batches as the protector draws them.
    """

    num_features: int | None
    source: str
    model: str
    num_classes: int | None = None
    sampling_rate: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tasks(abc.ABC):
    """Tasks that a protector is trained on.

    Attributes:
      tasks: per outer step.
      rows: per task; each represents N / rows rows of the simulated table.
      log_signal: range of log(mu N) that tasks are drawn from.
      excess_floor: added to a run's excess loss before taking its logarithm; improvements below it hardly count.
      ridge: of the reference solution that a run's excess loss is measured from.
    """

    tasks: int = 16
    rows: int = 1024
    log_signal: tuple[float, float] = (0.7, 8.7)
    excess_floor: float = EXCESS_FLOOR
    ridge: float = RIDGE
    #: What only some kinds of tasks say, below.
    fresh_shares: tuple[float, float] | None = dataclasses.field(default=None, init=False)
    directions: int | None = dataclasses.field(default=None, init=False)
    #: Whether tables of more classes than a model has lend it some of them.
    lends: ClassVar[bool] = False

    def __post_init__(self):
        check_counts(self, "tasks", unit=BANDS)
        check_counts(self, "rows")
        check_positive(self, "excess_floor", "ridge")
        low, high = self.log_signal
        if not low < high:
            refuse(self, "log_signal", "it is a range; put the lower end first")

    @property
    @abc.abstractmethod
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes that outer steps cycle through."""

    @abc.abstractmethod
    def of_shapes(self, places: Sequence[int]) -> Self:
        """Those of some of the shapes."""

    @abc.abstractmethod
    def open(self) -> Callable[[Shape], tuple[Family, Family]]:
        """What gives the family of a shape's training tasks, and that of its held-out tasks."""

    def one_model(self) -> Model:
        """The model of all shapes, without the number of classes of any; the first where there are several."""
        return self.find_model(self.shapes[0]._replace(num_classes=None))

    @property
    def counts(self) -> tuple[int | None, ...]:
        """The numbers of features of the shapes."""
        return tuple(shape.num_features for shape in self.shapes)

    @property
    def all_sources(self) -> tuple[str, ...]:
        """Every public set that tasks are drawn from."""
        return tuple(dict.fromkeys(part for shape in self.shapes for part in parts_of(shape.source)))

    @property
    def all_models(self) -> tuple[str, ...]:
        """The plain name of every model that is trained."""
        return tuple(dict.fromkeys(plain_name(shape.model) for shape in self.shapes))

    @property
    def are_own(self) -> bool:
        """Whether any are drawn from a user's own tables."""
        return any(map(is_own, self.all_sources))

    @property
    def num_models(self) -> int:
        """How many models are trained, those of one name with different numbers of classes included."""
        return len({shape.model for shape in self.shapes})

    @property
    def rates(self) -> tuple[float, ...]:
        """The sampling rates of the shapes; none for batches as the protector draws them."""
        return tuple(shape.sampling_rate for shape in self.shapes if shape.sampling_rate is not None)

    def find_model(self, shape: Shape) -> Model:
        """The model that is trained on tasks of a shape.

        Raises:
          InputError: it is unknown, or does not fit the targets of the source's tasks.
        """
        return _model_of(shape, self.lends)

    def drawn_classes(self, shape: Shape) -> int | None:
        """How many classes the tasks of a shape have where that is not the number of every table; None where it is."""
        counts, model = class_counts(shape.source), self.find_model(shape)
        if shape.num_classes is not None or not counts or counts == {len(model.labels)}:
            return shape.num_classes
        return len(model.labels)

    def arguments(self, num_features: int | None) -> dict[str, Any]:
        """Arguments of `Family.sample` for one outer step's tasks."""
        return {
            "num_tasks": self.tasks,
            "num_rows": self.rows,
            "num_features": num_features,
            "log_signal": self.log_signal,
            "ridge": self.ridge,
            "fresh_shares": self.fresh_shares or (1.0, 1.0),
        }


AnyTasks = TypeVar("AnyTasks", bound=Tasks)


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
        _check_rates(self)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        counts = (None,) if self.num_features is None else self.num_features
        unsaid = (None,) * len(counts)
        listed = zip(counts, self.num_classes or unsaid, self.sampling_rates or unsaid, strict=True)
        return tuple(Shape(count, self.source, self.model, classes, rate) for count, classes, rate in listed)

    def of_shapes(self, places: Sequence[int]) -> Self:
        """Those of some of the shapes.

        >>> OneSource(num_features=(8, 24, 52)).of_shapes([0, 2]).num_features
        (8, 52)
        """
        return _of_shapes(self, ("num_features", "num_classes", "sampling_rates"), places)

    def open(self) -> Callable[[Shape], tuple[Family, Family]]:
        opened = families(self.source)
        return lambda shape: opened


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs(Tasks):
    """Tasks of one table with its own columns, mostly pairs of its classes, scored on rows that runs did not read.

    Attributes:
      source: table that tasks are drawn from, as for `OneSource`.
      model: name of the model that is trained.
      unseen: classes of the source that are in no training task and in all held-out tasks: what networks learn on the
        other classes may not hold for these. None for held-out rows of tasks like those in training.
      directions: number of principal directions of the source's rows onto which a run projects its rows, instead of
        using privately centred features; None for the latter. The protector then works for no other columns. Tasks of
        two classes use the directions of the source's other classes (`meta_train.tasks.other_classes`).
    """

    source: str
    model: str = "logistic"
    unseen: tuple[int, ...] | None = None
    directions: int | None = None

    def __post_init__(self):
        super().__post_init__()
        check_counts(self, "directions")

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return (Shape(None, self.source, self.model),)

    def of_shapes(self, places: Sequence[int]) -> Self:
        return self

    def open(self) -> Callable[[Shape], tuple[Family, Family]]:
        along = along_other_classes(*families(self.source), self.directions, self.unseen)
        opened = with_fresh_rows(*along, self.unseen)
        return lambda shape: opened


@dataclasses.dataclass(frozen=True, kw_only=True)
class ManySources(Tasks):
    """Tasks with different kinds of targets, so that one protector learns to train every model.

    Attributes:
      num_features: feature counts that tasks cycle through.
      sources: source of the tasks with each of these counts, as for `OneSource`.
      models: name of the model that is trained on the tasks with each of these counts.
      fresh_shares: the shares of tasks, at the ends of `log_signal`, whose runs are scored on rows that they did not
        read (`meta_train.tasks.fresh_rows`); between the ends it is interpolated. A task with little signal stands for
        few rows, or for a small budget; one with much stands for so many rows that they tell what other rows are like.
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
        _check_rates(self)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        rates = self.sampling_rates or (None,) * len(self.num_features)
        listed = zip(self.num_features, self.sources, self.models, rates, strict=True)
        return tuple(Shape(count, source, model, None, rate) for count, source, model, rate in listed)

    def of_shapes(self, places: Sequence[int]) -> Self:
        return _of_shapes(self, self.BY_SHAPE, places)

    def open(self) -> Callable[[Shape], tuple[Family, Family]]:
        opened = functools.cache(functools.partial(families, fresh_rows=self.fresh_shares is not None))
        return lambda shape: opened(shape.source)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnSources(ManySources):
    """The same, of tables of a user's own, whose runs are scored on rows that they did not read."""

    fresh_shares: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self):
        super().__post_init__()
        if not all(map(is_own, self.all_sources)):
            refuse(self, "sources", "these are for tables of a user's own, which --data names; choose another kind")


def _check_rates(tasks: OneSource | ManySources) -> None:
    rates = tasks.sampling_rates
    if rates is not None and (len(rates) != len(tasks.num_features or ()) or not 0 < min(rates) <= max(rates) < 1):
        refuse(
            tasks,
            "sampling_rates",
            "it needs one rate, strictly between 0 and 1, for each of num_features; list equally many",
        )


def _of_shapes(tasks: AnyTasks, by_shape: tuple[str, ...], places: Sequence[int]) -> AnyTasks:
    """Tasks of some shapes, for each of which these fields, where they are not None, have an entry."""
    listed = {field: values for field in by_shape if (values := getattr(tasks, field)) is not None}
    return dataclasses.replace(tasks, **{field: tuple(values[at] for at in places) for field, values in listed.items()})


def _model_of(shape: Shape, lends: bool) -> Model:
    """The model of a shape's name for one; where a source `lends`, its tables may have more classes."""
    name, source = shape.model, shape.source
    model, kind = find_model(name, None if ":" in name else 2), kind_of(source)
    if kind not in model.kinds:
        raise InputError(
            f"model {name!r} needs a {' or '.join(model.kinds)} target, but that of tasks from {source} "
            f"is {kind}; choose another model or source."
        )
    if shape.num_classes is not None:
        return find_model(plain_name(name), shape.num_classes)
    counts, count = class_counts(source), len(model.labels)
    if len(counts) > 1 and not lends:
        raise InputError(
            f"the sets of {source} have different numbers of classes, and a model has one; leave out some, or list "
            "the mixture under sources, where sets of more classes lend some of them."
        )
    # Where sources are listed, tables of more classes lend some of them, so that one shape serves many tables.
    if counts and (min(counts) < count if lends else counts != {count}):
        raise InputError(
            f"model {name!r} has {count} classes and tasks from {source} have {min(counts)}; "
            f"name it softmax:{min(counts)}."
        )
    return model
