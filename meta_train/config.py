"""The config of one meta-training: everything that decides its outcome, in one JSON or TOML file."""

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from l2p.errors import InputError
from l2p.models import Model, find_model, plain_name
from l2p.privacy.accountants import for_runs
from meta_train.constants import parse
from meta_train.tasks.reference import RIDGE
from meta_train.tasks.sources import class_counts, kind_of, parts_of

#: Budgets are grouped in this many bands with equally many tasks: scores are reported by band, and where spending is a
#: constraint each band has its own multiplier, since each budget is a separate constraint.
BANDS = 8
#: What a config adds to excess losses unless it says otherwise: on a logarithmic scale above it, every budget has equal
#: weight. Scores also add it to the excess loss at the start, which they divide by.
EXCESS_FLOOR = 0.02


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
        tasks, each given the same number of simulated runs.
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
        choices = {
            "method": ("gradient", "search", "both"),
            "estimator": ("backpropagation", "evolution"),
            "objective": ("final", "truncated"),
            "constraint": ("share", "augmented_lagrangian", "soft"),
            "tunes": ("all", "wide", "narrow", "line"),
            "accountant": tuple(one.name for one in for_runs() if one.trains),
        }
        for field, allowed in choices.items():
            if getattr(self, field) not in allowed:
                raise InputError(f"{field} {getattr(self, field)!r} is unknown; choose one of {', '.join(allowed)}.")
        counts = ("steps", "rows", "unroll", "eval_every", "tasks", "eval_tasks", "simulated_rows")
        for field in (
            *counts,
            *(name for name in ("coefficients", "num_steps", "directions") if getattr(self, name) is not None),
        ):
            count = getattr(self, field)
            unit = BANDS if field in ("tasks", "eval_tasks") else 1
            if not isinstance(count, int) or count < 1 or count % unit:
                raise InputError(f"{field} is {count!r}, but it is a count; choose a positive multiple of {unit}.")
        if not isinstance(self.gain_rounds, int) or self.gain_rounds < 0:
            raise InputError(f"gain_rounds is {self.gain_rounds!r}, but it is a count; choose 0 or more.")
        for field in ("excess_floor", "ridge", *(() if self.damping is None else ("damping",))):
            if not 0 < getattr(self, field) < math.inf:
                raise InputError(
                    f"{field} is {getattr(self, field)!r}, but it has to be positive; choose a number above 0."
                )
        if not 0 < self.delta < 1 / self.simulated_rows:
            raise InputError(
                f"delta is {self.delta!r}, but a guarantee for {self.simulated_rows} simulated rows needs one above 0 "
                f"and below {1 / self.simulated_rows:.1e}."
            )
        self._check_shape()
        for one in self.constants:
            parse(one)
        if 0 < self.gain_rounds * self.eval_tasks * self._fewest_shapes() < 2 * BANDS:
            raise InputError(
                "gains with a single task in a band have no standard error, and they are measured for every source and "
                f"model; choose more gain_rounds, or at least {2 * BANDS} eval_tasks."
            )
        if self.estimator == "evolution" and self.objective == "truncated":
            raise InputError(
                "estimator 'evolution' compares whole runs of perturbed protectors, and a segment would continue a run "
                "without that perturbation; choose objective 'final'."
            )
        if self.fresh_rows and (self.objective != "final" or self.constraint == "soft"):
            raise InputError(
                "fresh_rows is for runs that are scored at their end, and these are scored along the way; choose "
                "objective 'final' and a constraint other than 'soft'."
            )
        of_one = self.directions is not None or self.unseen is not None or self.method != "gradient"
        if self.sources is not None and of_one:
            raise InputError(
                "directions, unseen classes and a search are of tasks from one source; leave these out, or sources."
            )
        if self.unseen is not None and not self.fresh_rows:
            raise InputError(
                "unseen classes need runs that are scored on fresh_rows; set fresh_rows, or leave unseen out."
            )
        if self.adds and (self.warm_start is None or self.method != "gradient" or self.constants):
            raise InputError(
                f"with tunes {self.tunes!r} all else stays as it was trained; name a warm_start to take it from, and "
                "leave out constants and a search, which would change it."
            )
        if self.method == "both" and self.constraint != "share":
            raise InputError(
                f"constraint {self.constraint!r} is not supported by random search, so the two "
                "cannot be compared; choose method 'gradient'."
            )

    @property
    def adds(self) -> bool:
        """Whether it only adds to its warm start, which stays as it is."""
        return self.tunes in ("wide", "line")

    def _fewest_shapes(self) -> int:
        """How many shapes the source and model with the fewest has."""
        kinds = [(self.source_of(shape), shape.model) for shape in set(self.shapes)]
        return min(map(kinds.count, kinds))

    def _check_shape(self) -> None:
        """Refuse fields that have the right type but an unusable value."""
        low, high = self.log_signal
        found = {
            "name": (self.name != Path(self.name).name, "it is a file name; leave out folders"),
            "num_features": (
                self.num_features is not None and (not self.num_features or min(self.num_features) < 1),
                "tasks need feature counts from 1 up; list some, or write null for the table's own columns",
            ),
            "num_classes": (
                self.num_classes is not None
                and (len(self.num_classes) != len(self.num_features or ()) or min(self.num_classes) < 2),
                "it needs one number, from 2 up, for each of num_features; list equally many",
            ),
            "sampling_rates": (
                self.sampling_rates is not None
                and (
                    len(self.sampling_rates) != len(self.num_features or ())
                    or not 0 < min(self.sampling_rates) <= max(self.sampling_rates) < 1
                ),
                "it needs one rate, strictly between 0 and 1, for each of num_features; list equally many",
            ),
            **{
                field: (
                    getattr(self, field) is not None and len(getattr(self, field)) != len(self.num_features or ()),
                    "it needs one name for each of num_features; list equally many",
                )
                for field in ("sources", "models")
            },
            "directions": (
                self.directions is not None and self.num_features is not None,
                "tasks with drawn columns have no directions in common; set num_features to null",
            ),
            "log_signal": (not low < high, "it is a range; put the lower end first"),
            "signal_power": (
                not 0 < self.signal_power < math.inf,
                "it is a power of numbers from 0 to 1; choose a positive number",
            ),
            "fresh_shares": (
                len(self.fresh_shares) != 2 or not all(0 <= share <= 1 for share in self.fresh_shares),
                "it is a share of tasks at either end of log_signal; write two numbers from 0 to 1",
            ),
            "curriculum": (
                self.curriculum is not None
                and not (0 < self.curriculum <= 1 and self.method == "gradient" and self.constraint == "share"),
                "it is a share of the outer steps, above 0 and up to 1, with method 'gradient' and constraint 'share'; "
                "choose these, or leave it out",
            ),
            "learning_rate": (
                not 0 <= self.learning_rate < math.inf,
                "steps have to go downhill; choose a number from 0 up",
            ),
            "alternate": (
                self.alternate is not None and min(self.alternate) < 1,
                "scheduler and projector need at least one update each; choose positive counts",
            ),
        }
        for field, (is_wrong, why) in found.items():
            if is_wrong:
                raise InputError(f"{field} is {getattr(self, field)!r}, but {why}.")

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
