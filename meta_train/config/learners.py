"""Learners of outer steps: meta-gradients, random search, or evolution from the scores of perturbed protectors."""

import dataclasses
import math

import jax
import jax.numpy as jnp

from meta_train.config.checks import check_choice, check_counts, check_positive, refuse


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learner:
    """Adam's steps along an estimate of the meta-gradient.

    Attributes:
      learning_rate: peak of a cosine schedule.
    """

    learning_rate: float = 3e-3

    def __post_init__(self):
        if not 0 <= self.learning_rate < math.inf:
            refuse(self, "learning_rate", "steps have to go downhill; choose a number from 0 up")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetaGradients(Learner):
    """Meta-gradients of whole runs that cannot overspend, of all numbers that may be tuned. Each class below makes the
    fields of its kind of training settable; here they are fixed.

    Attributes:
      signal_power: tasks are at u^signal_power of the range of log(mu N) for u spread evenly over [0, 1]: 1 spreads
        them evenly, and more draws more tasks where noise dominates. Near the upper end most runs reach the reference
        solution, and there is little to learn. Held-out tasks are always spread evenly.
    """

    signal_power: float = 1.0
    damping: float | None = dataclasses.field(default=None, init=False)
    inner_gradient: bool = dataclasses.field(default=True, init=False)
    unroll: int | None = dataclasses.field(default=None, init=False)
    curriculum: float | None = dataclasses.field(default=None, init=False)
    constraint: str = dataclasses.field(default="share", init=False)
    clips: str = dataclasses.field(default="together", init=False)
    alternate: tuple[int, int] | None = dataclasses.field(default=None, init=False)
    tunes: str = dataclasses.field(default="all", init=False)
    aversion: float = dataclasses.field(default=1.0, init=False)
    draws: int = dataclasses.field(default=1, init=False)

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.signal_power < math.inf:
            refuse(self, "signal_power", "it is a power of numbers from 0 to 1; choose a positive number")

    def log_signal_at(
        self, step: jax.Array | int, steps: int, log_signal: tuple[float, float]
    ) -> tuple[float | jax.Array, float]:
        """The range of log(mu N) that an outer step's tasks are drawn from.

        >>> learner = ShareDescent(curriculum=0.5)
        >>> [float(learner.log_signal_at(step, 100, (2.0, 8.0))[0]) for step in (0, 25, 50, 100)]
        [5.0, 3.5, 2.0, 2.0]
        """
        low, high = log_signal
        if self.curriculum is None:
            return low, high
        to_come = jnp.maximum(1.0 - step / (self.curriculum * steps), 0.0)
        return low + to_come * (high - low) / 2.0, high


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perturbation(MetaGradients):
    """Meta-gradients from antithetic pairs of runs (`meta_train.training.evolution`), without derivatives.

    Attributes:
      pairs: of each task: as many runs as differentiating one counts as.
      spread: standard deviation of the perturbations: numbers are logs, logits and weights of networks. Wider ones see
        less of the noise in runs, and smooth the score more.
    """

    pairs: int = 2
    spread: float = 0.03

    def __post_init__(self):
        super().__post_init__()
        check_counts(self, "pairs")
        check_positive(self, "spread")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Descent(MetaGradients):
    """Meta-gradients by backpropagation through runs.

    Attributes:
      damping: maximum norm of the backpropagated meta-gradient between two steps of a run; None for no limit. For
        losses that are not convex, where runs may be chaotic.
      inner_gradient: whether meta-gradients pass through the gradients that a run asks for; the paper treats these as
        constants.
    """

    damping: float | None = None
    inner_gradient: bool = True

    def __post_init__(self):
        super().__post_init__()
        check_positive(self, "damping")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segments(Descent):
    """The same, of whole runs or of their segments.

    Attributes:
      unroll: steps of a segment, whose mean loss is scored; None differentiates the whole run, and scores its last
        loss.
    """

    unroll: int | None = None

    def __post_init__(self):
        super().__post_init__()
        check_counts(self, "unroll")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShareDescent(Segments):
    """The same, for schedulers that cannot overspend.

    Attributes:
      curriculum: share of the outer steps over which the range of log(mu N) widens from its upper half to the whole;
        None for the whole from the start.
    """

    curriculum: float | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.curriculum is not None and not 0 < self.curriculum <= 1:
            refuse(self, "curriculum", "it is a share of the outer steps; choose a number above 0 and up to 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstrainedDescent(Segments):
    """The same, for schedulers that can overspend.

    Attributes:
      constraint: "augmented_lagrangian" (Eq. 2; with segments Eq. 4 and 5), or "soft", which scores around the end of
        the budget (Eq. 3; Eq. 6 and 7).
      clips: of each task's meta-gradient, "apart" the part from its score and the part from its penalty, so that a
        score whose gradient is huge leaves the penalty its say; or "together" their sum.
      alternate: numbers of scheduler and projector updates in turn, such as [1, 5] (the paper's Setup); None updates
        the two together. With `clips` "apart" the projector's updates are of the score alone.
    """

    constraint: str = "augmented_lagrangian"
    clips: str = "apart"
    alternate: tuple[int, int] | None = None

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "constraint", ("augmented_lagrangian", "soft"))
        check_choice(self, "clips", ("apart", "together"))
        if self.alternate is not None and min(self.alternate) < 1:
            refuse(self, "alternate", "scheduler and projector need at least one update each; choose positive counts")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartialDescent(Segments):
    """The same, of all numbers or of those that tables of up to 200 features read.

    Attributes:
      tunes: "all" numbers that may be tuned, or "narrow": all but terms of curves for wide and very wide tables alone
        (`l2p.protectors.conditioning`).
      aversion: how many times as much a task counts where runs score worse than those of the start as where they score
        better (`meta_train.training.objective.run_beside`); 1 scores runs as they are. Held-out tasks, by which a
        protector is chosen, are scored as they are in any case.
      draws: number of draws of noise, over whose mean runs are compared with those of the start.
    """

    tunes: str = "all"
    aversion: float = 1.0
    draws: int = 1

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "tunes", ("all", "narrow"))
        check_counts(self, "draws")
        if not 1 <= self.aversion < math.inf:
            refuse(self, "aversion", "losses count at least as much as gains; choose a number from 1 up")
        if self.aversion > 1 and self.unroll is not None:
            refuse(self, "aversion", "it compares whole runs; leave out unroll")
        if self.aversion == 1 and self.draws > 1:
            refuse(self, "draws", "these are for comparing runs with those of the start; set aversion above 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddedDescent(Descent):
    """The same, of numbers that are added to a start, which stays as it is.

    Attributes:
      tunes: "wide" or "very_wide": terms of curves for such tables alone, so that runs on all others stay as they are;
        "line": those of steps along the line (`l2p.protectors.learned.line`); "guards": those of the base rate, of the
        eigenbasis and of what is taken back at the end (`l2p.protectors.learned.retreat`); or "public": those of what
        is taken from public rows (`l2p.protectors.with_public_rows.public_filter`).
    """

    tunes: str = "wide"

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "tunes", ("wide", "very_wide", "line", "guards", "public"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evolution(Learner):
    """Evolution of constants by the programs that judge them: there is less to compile
    (`meta_train.training.perturbed`)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomSearch:
    """Random search: an outer step tries a candidate."""
