"""The config of one meta-training: everything that decides its outcome, in one JSON or TOML file."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from l2p.errors import InputError
from l2p.models import Model, find_model, plain_name
from meta_train.config.checks import check
from meta_train.tasks.reference import RIDGE
from meta_train.tasks.sources import class_counts, kind_of, parts_of

#: What a config adds to excess losses unless it says otherwise: on a logarithmic scale above it, every budget has equal
#: weight. Scores also add it to the excess loss at the start, which they divide by.
EXCESS_FLOOR = 0.02


#: Fields with an entry for each shape of tasks.
BY_SHAPE = ("num_features", "num_classes", "sampling_rates", "sources", "models")


class Shape(NamedTuple):
    """What the tasks of an outer step have in common, for which the step is compiled.

    Attributes:
      num_features: None for the table's own columns.
      num_classes: None for the model's.
      sampling_rate: of the runs' Poisson batches; None for batches as the protector draws them.
      source: that tasks are drawn from; None for the config's.
      model: that is trained on them; None for the config's.
    """

    num_features: int | None
    num_classes: int | None = None
    sampling_rate: float | None = None
    source: str | None = None
    model: str | None = None


@dataclasses.dataclass(frozen=True)
class MetaConfig:
    """A meta-training, reproducible from these fields.

    Attributes:
      name: name of the checkpoint it makes.
      protector: what is trained: a starting point in `meta_train.training.untrained` or, with `coefficients`, a
        hand-designed method.
      source: public data set that tasks are drawn from, or `mnist:rest:3,5`: every pair of the other digits; or
        `random_quadratics`, `synthetic` (two classes), `synthetic:numbers` or `synthetic:classes:10`, which need no
        table; or a mixture such as `adult+synthetic`, if tasks have drawn columns.
      model: name of the model that is trained.
      coefficients: number of coefficients of the polynomials in log(mu N) that a hand-designed method's constants
        become; None for starting points.
      warm_start: checkpoint from which the starting point takes its parameters, or None.
      num_steps: maximum number of steps of a run, shipped with the protector; None for the method's own.
      method: "gradient" for meta-gradients, "search" for random search, "both" for the better of the two on held-out
        tasks, each given the same number of simulated runs; "evolution" for constants on a user's own tables, without
        gradients and thus with less to compile (`meta_train.training.perturbed`).
      steps: outer steps (meta-gradients, or candidates of the search; with "both", meta-gradients).
      tasks: tasks per outer step.
      rows: rows per task; each represents N / rows rows of the simulated table.
      num_features: feature counts that tasks cycle through; None for tasks with the table's own columns.
      num_classes: number of classes of the tasks with each of these counts; None for the number in the model's name.
      sampling_rates: Poisson sampling rate of runs on tasks with each of these counts; None for batches as the
        protector draws them. What ships uses the first of these rates.
      sources: source of the tasks with each of these counts, as `source` names them; None for `source`. Those of a
        config whose tasks have different kinds of targets, so that one protector learns to train every model.
      models: name of the model that is trained on the tasks with each of these counts; None for `model`.
      fresh_rows: whether runs are scored on rows of their task that they did not read
        (`meta_train.tasks.fresh_rows`). Only for whole runs.
      fresh_shares: the shares of tasks of which this holds, at the ends of `log_signal`; between them it is
        interpolated. A task with little signal stands for few rows, or for a small budget; one with much stands for so
        many rows that they tell what other rows are like.
      unseen: classes of the source that are in no training task and in all held-out tasks: what networks learn on the
        other classes may not hold for these. None for held-out rows of tasks like those in training.
      directions: number of principal directions of the source's rows onto which a run projects its rows, instead of
        using privately centred features; None for the latter. Only for tasks with a table's own columns, and the
        protector then works for no other columns. Tasks of two classes use the directions of the source's other classes
        (`meta_train.tasks.other_classes`).
      log_signal: range of log(mu N) that tasks are drawn from.
      signal_power: tasks are at u^signal_power of that range for u spread evenly over [0, 1]: 1 spreads them evenly,
        and more draws more tasks where noise dominates. Near the upper end most runs reach the reference solution, and
        there is little to learn. Held-out tasks are always spread evenly, and so are those of random search.
      curriculum: share of the outer steps over which that range widens from its upper half to the whole; None for the
        whole from the start. Only for meta-gradients with constraint "share".
      learning_rate: peak of a cosine schedule.
      estimator: "backpropagation" of meta-gradients through runs, or "evolution": from antithetic pairs of runs
        (`meta_train.training.evolution`), without derivatives.
      objective: "final" differentiates the whole run and scores its last loss; "truncated" scores the mean loss of
        each segment of `unroll` steps.
      excess_floor: added to a run's excess loss before taking its logarithm; improvements below it hardly count.
      ridge: of the reference solution that a run's excess loss is measured from.
      unroll: steps per segment when truncated.
      damping: maximum norm of the backpropagated meta-gradient between two steps of a run; None for no limit. For
        losses that are not convex, where runs may be chaotic.
      constraint: "share" for schedulers that cannot overspend. For those that can: "augmented_lagrangian" (Eq. 2; with
        truncated unrolls Eq. 4 and 5), or "soft", which scores around the end of the budget (Eq. 3; Eq. 6 and 7).
      inner_gradient: whether meta-gradients pass through the gradients that a run asks for; the paper treats these as
        constants.
      alternate: numbers of scheduler and projector updates in turn, such as [1, 5] (the paper's Setup); None updates
        the two together.
      accountant: prices the queries. If it depends on mu N only, it just decides the unit of the constraint.
      simulated_rows: N of the simulated table, where mu N alone does not determine a run
        (`meta_train.evaluation.budgets`).
      delta: of the simulated budgets, likewise.
      eval_every: outer steps between scores on held-out tasks and between resumable checkpoints.
      eval_tasks: held-out tasks for each different shape.
      gain_rounds: at the end the networks are compared with the control that they extend on this many batches of
        `eval_tasks` fresh tasks; the control runs wherever they gained nothing. 0 makes no comparison.
      tunes: "all" numbers that may be tuned; "wide": what curves add for wide tables alone
        (`l2p.protectors.conditioning.Facts`), so that runs on all others stay as they are, and what ships serves
        whatever its warm start does, too; "narrow": all but these; or "line": those of steps along the line
        (`l2p.protectors.line`), with what ships serving likewise.
      constants: single numbers of the protector that gradients do not tune, and values, as
        `eigenbasis.norm_growth=0,0.35`; at the end each is set to what scores best on held-out tasks.
      seed: for all random numbers.
    """

    name: str
    protector: str
    source: str = "adult"
    model: str = "logistic"
    coefficients: int | None = None
    num_steps: int | None = None
    warm_start: str | None = None
    method: str = "gradient"
    steps: int = 600
    tasks: int = 16
    rows: int = 1024
    num_features: tuple[int, ...] | None = (8, 24, 52, 104)
    num_classes: tuple[int, ...] | None = None
    sampling_rates: tuple[float, ...] | None = None
    sources: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    fresh_rows: bool = False
    fresh_shares: tuple[float, float] = (1.0, 1.0)
    unseen: tuple[int, ...] | None = None
    directions: int | None = None
    log_signal: tuple[float, float] = (0.7, 8.7)
    signal_power: float = 1.0
    curriculum: float | None = None
    learning_rate: float = 3e-3
    estimator: str = "backpropagation"
    objective: str = "final"
    excess_floor: float = EXCESS_FLOOR
    ridge: float = RIDGE
    unroll: int = 10
    constraint: str = "share"
    inner_gradient: bool = True
    damping: float | None = None
    alternate: tuple[int, int] | None = None
    accountant: str = "gdp"
    simulated_rows: int = 30_000
    delta: float = 1e-8
    eval_every: int = 50
    eval_tasks: int = 32
    gain_rounds: int = 0
    tunes: str = "all"
    constants: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self):
        check(self)

    @property
    def adds(self) -> bool:
        """Whether it only adds to its warm start, which stays as it is."""
        return self.tunes in ("wide", "line")

    def source_of(self, shape: Shape) -> str:
        """The source of the tasks of a shape."""
        return shape.source or self.source

    @property
    def all_sources(self) -> tuple[str, ...]:
        """Every public set that tasks are drawn from."""
        return tuple(dict.fromkeys(part for shape in self.shapes for part in parts_of(self.source_of(shape))))

    @property
    def all_models(self) -> tuple[str, ...]:
        """The plain name of every model that is trained."""
        return tuple(dict.fromkeys(plain_name(shape.model or self.model) for shape in self.shapes))

    def find_model(self, shape: Shape | None = None) -> Model:
        """The model that is trained on tasks of a shape, by default one without settings of its own.

        Raises:
          InputError: it is unknown, or does not fit the targets of the source's tasks.
        """
        shape = Shape(None) if shape is None else shape
        name, source, num_classes = shape.model or self.model, self.source_of(shape), shape.num_classes
        model, kind = find_model(name, None if ":" in name else 2), kind_of(source)
        if kind not in model.kinds:
            raise InputError(
                f"model {name!r} needs a {' or '.join(model.kinds)} target, but that of tasks from {source} "
                f"is {kind}; choose another model or source."
            )
        if num_classes is not None:
            return find_model(plain_name(name), num_classes)
        counts, count = class_counts(source), len(model.labels)
        if len(counts) > 1 and shape.source is None:
            raise InputError(
                f"the sets of {source} have different numbers of classes, and a model has one; leave out some, or list "
                "the mixture under sources, where sets of more classes lend some of them."
            )
        # Where sources are listed, tables of more classes lend some of them, so that one shape serves many tables.
        if counts and (min(counts) < count if shape.source is not None else counts != {count}):
            raise InputError(
                f"model {name!r} has {count} classes and tasks from {source} have {min(counts)}; "
                f"name it softmax:{min(counts)}."
            )
        return model

    def drawn_classes(self, shape: Shape) -> int | None:
        """How many classes the tasks of a shape have where that is not the number of every table; None where it is."""
        counts, model = class_counts(self.source_of(shape)), self.find_model(shape)
        if shape.num_classes is not None or not counts or counts == {len(model.labels)}:
            return shape.num_classes
        return len(model.labels)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes that outer steps cycle through."""
        counts = (None,) if self.num_features is None else self.num_features
        unsaid = (None,) * len(counts)
        listed = (self.num_classes, self.sampling_rates, self.sources, self.models)
        given = zip(counts, *(values or unsaid for values in listed), strict=True)
        return tuple(itertools.starmap(Shape, given))

    def of_shapes(self, places: Sequence[int]) -> "MetaConfig":
        """The config with tasks of some of the shapes.

        >>> MetaConfig("x", "control", num_features=(8, 24, 52)).of_shapes([0, 2]).num_features
        (8, 52)
        """
        listed = {name: values for name in BY_SHAPE if (values := getattr(self, name)) is not None}
        return dataclasses.replace(
            self, **{name: tuple(values[place] for place in places) for name, values in listed.items()}
        )

    def log_signal_at(self, step: jax.Array | int) -> tuple[float | jax.Array, float]:
        """The range of log(mu N) that an outer step's tasks are drawn from.

        >>> config = MetaConfig("x", "control", steps=100, log_signal=(2.0, 8.0), curriculum=0.5)
        >>> [float(config.log_signal_at(step)[0]) for step in (0, 25, 50, 100)]
        [5.0, 3.5, 2.0, 2.0]
        """
        low, high = self.log_signal
        if self.curriculum is None:
            return low, high
        to_come = jnp.maximum(1.0 - step / (self.curriculum * self.steps), 0.0)
        return low + to_come * (high - low) / 2.0, high

    def task_arguments(self, num_features: int | None) -> dict[str, Any]:
        """Arguments of `Family.sample` for one outer step's tasks."""
        return {
            "num_tasks": self.tasks,
            "num_rows": self.rows,
            "num_features": num_features,
            "log_signal": self.log_signal,
            "ridge": self.ridge,
            "fresh_shares": self.fresh_shares,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "MetaConfig":
        """A config from the fields of a JSON object; fields missing from an older card get the values of that
        version."""
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
        return cls(**values)
