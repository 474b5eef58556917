"""Parts of every training: a start, outer steps, scores of runs, simulated budgets, and held-out tasks to judge by."""

import dataclasses
import math

from l2p.privacy.accountants import for_runs
from meta_train.config.bands import BANDS
from meta_train.config.checks import check_choice, check_counts, check_positive, refuse
from meta_train.constants import parse

#: Default addition to excess losses: on a logarithmic scale above it, every budget has equal weight. Scores also add it
#: to the excess loss at the start, which they divide by.
EXCESS_FLOOR = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """The protector that is trained.

    Attributes:
      protector: a starting point in `meta_train.training.untrained`.
      warm_start: checkpoint from which it takes its parameters, or None.
      num_steps: maximum number of steps of a run, shipped with the protector; None for the method's own.
    """

    protector: str
    warm_start: str | None = None
    num_steps: int | None = None
    #: Fields that only some kinds of trainings let a config set.
    kept: float = dataclasses.field(default=1.0, init=False)

    def __post_init__(self):
        check_counts(self, "num_steps")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnyStart(Start):
    """A starting point, or with `coefficients` a hand-designed method.

    Attributes:
      coefficients: number of coefficients of the polynomials in log(mu N) that a hand-designed method's constants
        become; None for starting points.
      kept: share of what training changed that ships: with less than 1 the numbers lie between the start's and the
        trained ones, which hedges against data unlike all tasks.
    """

    coefficients: int | None = None
    kept: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        check_counts(self, "coefficients")
        if not 0 < self.kept <= 1:
            refuse(self, "kept", "it is a share of what training changed; choose a number above 0 and up to 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmStart(Start):
    """A starting point that takes its parameters from a checkpoint."""

    warm_start: str = dataclasses.field()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    """Outer steps.

    Attributes:
      steps: how many: meta-gradients, or candidates of a search; with both, meta-gradients.
      eval_every: outer steps between scores on held-out tasks and between resumable checkpoints.
      seed: for all random numbers.
    """

    steps: int = 600
    eval_every: int = 50
    seed: int = 0

    def __post_init__(self):
        check_counts(self, "steps", "eval_every")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scoring:
    """Scores of runs (`meta_train.evaluation.scores`).

    Attributes:
      excess_floor: added to a run's excess loss before taking its logarithm; improvements below it hardly count.
      above: how much it counts if a run ends above the better of its start and a base rate bought with the whole
        budget, beside the logarithm; 0 for not at all.
      numbers_from: what excess losses of numbers are relative to: that of the "start", as all others are, or that of
        the best "constant", since the start may be many times as far from it as the non-private model.
    """

    excess_floor: float = EXCESS_FLOOR
    above: float = 0.0
    numbers_from: str = "start"

    def __post_init__(self):
        check_positive(self, "excess_floor")
        check_choice(self, "numbers_from", ("start", "constant"))
        if not 0 <= self.above < math.inf:
            refuse(self, "above", "it is a weight; choose 0 or a positive number")


#: The scores of a training that says nothing of them.
USUAL = Scoring()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simulated:
    """Budgets of simulated runs, where mu N alone does not determine a run (`meta_train.evaluation.budgets`).

    Attributes:
      accountant: prices the queries. If it depends on mu N only, it just decides the unit of a constraint.
      simulated_rows: N of the simulated table.
      delta: of the budgets.
    """

    accountant: str = "gdp"
    simulated_rows: int = 30_000
    delta: float = 1e-8

    def __post_init__(self):
        check_choice(self, "accountant", tuple(accountant.name for accountant in for_runs() if accountant.trains))
        check_counts(self, "simulated_rows")
        if not 0 < self.delta < 1 / self.simulated_rows:
            refuse(
                self,
                "delta",
                f"a guarantee for {self.simulated_rows} simulated rows needs one above 0 and below "
                f"{1 / self.simulated_rows:.1e}",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judging:
    """Judging of protectors on held-out tasks.

    Attributes:
      eval_tasks: held-out tasks for each different shape.
      gain_rounds: at the end the networks are compared with the control that they extend on this many batches of
        `eval_tasks` fresh tasks; the control runs wherever they gained nothing. 0 makes no comparison.
    """

    constants: tuple[str, ...] = dataclasses.field(default=(), init=False)
    eval_tasks: int = 32
    gain_rounds: int = 0

    def __post_init__(self):
        check_counts(self, "eval_tasks", unit=BANDS)
        if not isinstance(self.gain_rounds, int) or self.gain_rounds < 0:
            refuse(self, "gain_rounds", "it is a count; choose 0 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choosing(Judging):
    """The same, and how constants are chosen at the end.

    Attributes:
      constants: single numbers of the protector that gradients do not tune, and values, as
        `eigenbasis.norm_growth=0,0.35`; at the end each is set to the value that scores best on held-out tasks.
    """

    constants: tuple[str, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        for listed in self.constants:
            parse(listed)
