"""Tasks of a training: their sizes, and the public sets and models that they are made of."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from l2p.base.errors import InputError
from l2p.models import Model, find_model, plain_name
from l2p.tables.own import is_own
from meta_train.config.bands import BANDS
from meta_train.config.checks import check_counts, check_positive, refuse
from meta_train.tasks.family import Family
from meta_train.tasks.reference import RIDGE
from meta_train.tasks.sources import class_counts, kind_of, parts_of

#: At either end of the range of budgets, the share of tasks that is scored on fresh rows: all.
ALL_FRESH = (1.0, 1.0)


class Shape(NamedTuple):
    """The common shape of an outer step's tasks, for which the step is compiled.

    Attributes:
      num_features: None for the table's own columns.
      source: that tasks are drawn from.
      model: that is trained on them.
      num_classes: None for the model's.
      sampling_rate: of the runs' Poisson batches; None for batches as the protector draws them.
      rows: of a task; None for those of other tasks.
    """

    num_features: int | None
    source: str
    model: str
    num_classes: int | None = None
    sampling_rate: float | None = None
    rows: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tasks(abc.ABC):
    """Tasks that a protector is trained on.

    Attributes:
      tasks: per outer step.
      rows: per task; each represents N / rows rows of the simulated table.
      log_signal: range of log(mu N) that tasks are drawn from.
      ridge: of the reference solution that a run's excess loss is measured from.
    """

    tasks: int = 16
    rows: int = 1024
    log_signal: tuple[float, float] = (0.7, 8.7)
    ridge: float = RIDGE
    #: Fields that only some kinds of tasks let a config set.
    fresh_shares: tuple[float, float] | None = dataclasses.field(default=None, init=False)
    least_rows: float = dataclasses.field(default=1.0, init=False)
    public_share: float = dataclasses.field(default=0.0, init=False)
    public_shift: float = dataclasses.field(default=0.0, init=False)
    #: True if models read features in [0, 1], whose number matters.
    reads_features: ClassVar[bool] = True
    #: True if tables of more classes than a model has lend it some of them.
    lends: ClassVar[bool] = False

    def __post_init__(self):
        check_counts(self, "tasks", unit=BANDS)
        check_counts(self, "rows")
        check_positive(self, "ridge")
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
        """A function from a shape to the families of its training tasks and of its held-out tasks."""

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
        """True if any are drawn from a user's own tables."""
        return any(map(is_own, self.all_sources))

    @property
    def num_models(self) -> int:
        """The number of models that are trained; one name with two numbers of classes counts twice."""
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
        """The number of classes of a shape's tasks where some table has another number; None where all have that."""
        counts, model = class_counts(shape.source), self.find_model(shape)
        if shape.num_classes is not None or not counts or counts == {len(model.labels)}:
            return shape.num_classes
        return len(model.labels)

    def arguments(self, shape: Shape) -> dict[str, Any]:
        """Arguments of `Family.sample` for one outer step's tasks."""
        return {
            "num_tasks": self.tasks,
            "num_rows": shape.rows or self.rows,
            "num_features": shape.num_features,
            "log_signal": self.log_signal,
            "ridge": self.ridge,
            "fresh_shares": self.fresh_shares or ALL_FRESH,
            "least_rows": self.least_rows,
            "public_share": self.public_share,
            "public_shift": self.public_shift,
        }


AnyTasks = TypeVar("AnyTasks", bound=Tasks)


def check_rates(tasks: Any) -> None:
    """Refuse sampling rates that are not one for each of the tasks' feature counts; `InputError`."""
    rates = tasks.sampling_rates
    if rates is not None and (len(rates) != len(tasks.num_features or ()) or not 0 < min(rates) <= max(rates) < 1):
        refuse(
            tasks,
            "sampling_rates",
            "it needs one rate, strictly between 0 and 1, for each of num_features; list equally many",
        )


def of_shapes(tasks: AnyTasks, by_shape: tuple[str, ...], places: Sequence[int]) -> AnyTasks:
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
