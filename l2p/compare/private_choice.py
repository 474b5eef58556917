"""Settings chosen on the private rows and charged: METHOD:private, released or simulated for a comparison.

A release is `l2p.release.tuning.private_tuning`; a comparison simulates it, cell by cell. A cell trains a random number
of times, each time with randomly drawn settings and its own noise, and keeps the run with the best private score
(Papernot & Steinke 2022; Liu & Talwar 2019).
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.checkpoints.lookup import Method, look_up
from l2p.checkpoints.method_name import PRIVATE, MethodName
from l2p.checkpoints.named import NamedProtector
from l2p.compare.hindsight import CANDIDATES, SPREADS
from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.selection import base_rho, total_epsilon
from l2p.privacy.events import Answered
from l2p.privacy.ledger.ledger import Cost, Ledger
from l2p.privacy.ledger.reservation import cost_of_best
from l2p.protectors.learned.tunable import around, tunable
from l2p.release.admission import admit
from l2p.release.result import Result
from l2p.release.tuning.listed_settings import admit_listed, release_listed
from l2p.release.tuning.private_tuning import (
    LAW,
    SCORE_ACCOUNTANT,
    SCORE_SHARE,
    Score,
    base_accountant,
    base_budget,
    private_tuning,
    simulated_randomness,
)
from l2p.release.tuning.split_tuning import cost_of_parts
from l2p.run.protector import Protector
from l2p.run.simulate import Divide, simulate, split
from l2p.task import checks
from l2p.task.rows import Rows
from l2p.task.sources import RowSource
from l2p.task.task import Task

#: Runs simulated at once. The last block of a seed is filled up to this size, so that only one size is compiled.
BLOCK = 8

Trace = list[Answered]


@dataclasses.dataclass(frozen=True)
class SelectionPlan:
    """The runs among which METHOD:private chooses at one budget.

    Attributes:
      budget: of all runs together.
      candidates: k public settings of one method, its own first.
      training, scoring: filters that stop and certify a run and its score.
      setups: the public facts of both.
    """

    budget: Budget
    candidates: tuple[Protector, ...]
    training: Filter
    scoring: Filter
    setups: tuple[Setup, Setup]

    @classmethod
    def make(
        cls, protector: Protector, accountant: str, budget: Budget, model: Model, num_rows: int
    ) -> "SelectionPlan":
        """Candidates around `protector`, limited to what one run of a selection within `budget` may spend.

        Raises:
          InputError: no theorem covers such runs, or the model has no score.
        """
        candidates = _candidates(protector)
        shares = _shares(budget)
        targets = base_budget(shares[0], accountant, budget), base_budget(shares[1], SCORE_ACCOUNTANT, budget)
        protector.sampler.check_adjacency(budget.adjacency, num_rows)
        for candidate in candidates:  # a comparison's split has public rows where a candidate needs some
            admit(candidate, targets[0], model, accountant, has_public=candidate.needs_public)
        training = NamedProtector("", protector, accountant).filter(targets[0])
        scoring = admit(Score(), targets[1], model, SCORE_ACCOUNTANT).filter(targets[1])
        training_setup, scoring_setup = (
            Setup.create(model, budget.adjacency, filter.price_list(), num_rows, model.kind(model.labels))
            for filter in (training, scoring)
        )
        return cls(budget, candidates, training, scoring, (training_setup, scoring_setup))

    @property
    def rho(self) -> float:
        """The zCDP that no run exceeds, score included, rounded up."""
        limits = [filter.limit / cast(float, filter.accountant.per_rho) for filter in (self.training, self.scoring)]
        return math.nextafter(math.fsum(limits), math.inf)

    @property
    def note(self) -> str:
        """A sentence that explains the cell's numbers."""
        return (
            f"The best of {LAW.mean:g} runs on average, each with one of {len(self.candidates)} settings and "
            f"{self.rho:.3g}-zCDP, score included."
        )

    def certify(self, traces: Sequence[tuple[Trace, Trace]]) -> float:
        """Epsilon at `budget.delta` of the best run, in float64.

        From the caps on every run and its score, not from their spending: the theorem covers all runs that might have
        been drawn.

        Raises:
          RuntimeError: a run exceeds its cap, or the caps exceed the budget; neither should happen.
        """
        for training, scoring in traces:
            self.training.certify(training, adaptive=True)
            self.scoring.certify(scoring, adaptive=True)
        epsilon = total_epsilon(LAW, self.rho, self.budget.delta)
        if epsilon > self.budget.epsilon:
            raise RuntimeError(
                f"the best of runs that are {self.rho!r}-zCDP is {epsilon!r}-private, so {self.budget} does not hold; "
                "withhold the result and report this as a bug."
            )
        return epsilon


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Results of S seeds x E budgets.

    Attributes:
      params: f32[S, E, p] of the best runs; where no run was drawn, the start.
      steps: i32[S, E] of the best runs, 0 without one.
      traces: by seed and budget, of every run and of its score.
    """

    params: np.ndarray
    steps: np.ndarray
    traces: list[list[list[tuple[Trace, Trace]]]]


@dataclasses.dataclass(frozen=True)
class _Run:
    params: np.ndarray
    steps: int
    score: float
    trace: tuple[Trace, Trace]


def base_run(method: Method, budget: Budget, num_rows: int | None = None) -> NamedProtector:
    """A method set up for one run of a selection within `budget`: for its share, with the accountant for that.

    Raises:
      InputError: no run is private enough, or no theorem covers how this method reads rows.
    """
    share, _ = _shares(budget)
    protector = method.set_up(base_budget(share, SCORE_ACCOUNTANT, budget), num_rows=num_rows).protector
    accountant = base_accountant(str(method.name), protector)
    return method.set_up(base_budget(share, accountant, budget), accountant, num_rows)


def release(
    data: Rows | RowSource | Task,
    named: NamedProtector,
    budget: Budget,
    *,
    model: Model,
    key: jax.Array | None = None,
    num_rows: int | None = None,
    ledger: Ledger | str | Path | None = None,
    kind: str | None = None,
) -> Result:
    """METHOD:private on the caller's rows: the best of several runs within `budget`, counted in the ledger.

    Args:
      data, model, key, num_rows: as in `private_train`.
      named: METHOD:private, as `admit_choice` gives it for this budget and model.
      ledger: as in `private_tuning`.
      kind: of the target, as in `private_train`; runs are scored by labels, so it is never "regression".

    Raises:
      InputError: an argument does not fit; raised before budget is spent.
    """
    if kind is not None:
        check_kind(kind)
    if candidates := MethodName.parse(named.name).candidates:
        options = {"model": model, "key": key, "num_rows": num_rows, "ledger": ledger}
        return release_listed(data, candidates, budget, **options)
    num_lines, _ = checks.shape_of(data.private if isinstance(data, Task) else data)
    num_rows = checks.number_of_rows(num_lines, num_rows, budget)
    base = named.for_rows(num_rows)
    candidates = [dataclasses.replace(base, protector=protector) for protector in _candidates(base.protector)]
    options = {"model": model, "key": key, "num_rows": num_rows, "ledger": ledger}
    result = private_tuning(data, candidates, budget, repetitions=LAW, score_share=SCORE_SHARE, **options).result
    assert result is not None  # `LAW` draws at least one run
    return result


def check_kind(kind: str) -> None:
    """Refuse a kind of target without a score."""
    if kind == "regression":
        raise InputError(
            f"METHOD{PRIVATE} chooses by the share of rows whose label is predicted, and a regression has no labels; "
            "leave it out."
        )


def admit_choice(
    name: str | MethodName,
    budget: Budget,
    model: Model,
    accountant: str | None = None,
    has_public: bool = False,
) -> NamedProtector:
    """The protector that a release of METHOD:private runs several times, as `admit` gives that of a single run.

    Raises:
      InputError: no theorem covers such a choice, or an accountant was asked for; each method has the one it needs.
    """
    if accountant is not None:
        raise InputError(
            f"accountant {accountant!r} was asked for, but {name} holds its runs by the one that choosing among them "
            "needs; leave it out."
        )
    name = MethodName.parse(name)
    if name.candidates:
        return admit_listed(name, budget, model, has_public)
    base = base_run(look_up(name.without(PRIVATE), model), budget)
    _candidates(base.protector)  # refuses one that has nothing to vary
    target = base_budget(_shares(budget)[0], base.accountant, budget)
    admit(base, target, model, has_public=has_public)
    admit(Score(), base_budget(_shares(budget)[1], SCORE_ACCOUNTANT, budget), model, SCORE_ACCOUNTANT)
    # A control instead of its networks would be the same for all candidates.
    return dataclasses.replace(base, name=str(name), control=None)


def cost_in(ledger: Ledger, named: NamedProtector, budget: Budget) -> Cost:
    """The cost that a release has to reserve; `InputError` if the ledger cannot count it."""
    if MethodName.parse(named.name).candidates:
        return cost_of_parts(ledger, budget)
    return cost_of_best(ledger, budget, LAW, base_rho(LAW, budget.epsilon, budget.delta))


def _candidates(protector: Protector) -> tuple[Protector, ...]:
    """A protector and others around it; `InputError` if it has no number that can be varied."""
    if not any(jax.tree.leaves(tunable(protector))):
        raise InputError(
            f"a method of class {type(protector).__name__} is set by whole numbers, words and its plan, which "
            f"{PRIVATE} cannot vary by itself, so it would choose among copies of one; list values to choose among, as "
            f"in METHOD[num_passes=1,10 ridge=0,.01]{PRIVATE} or with --set."
        )
    keys = jax.random.split(jax.random.key(0), CANDIDATES - 1)
    return protector, *(around(protector, SPREADS[0], key) for key in keys)


def _shares(budget: Budget) -> tuple[float, float]:
    """The rho of a run's training and of its score."""
    rho = base_rho(LAW, budget.epsilon, budget.delta)
    return rho * (1 - SCORE_SHARE), rho * SCORE_SHARE


def draws(seed: int, budget: Budget, num_candidates: int) -> list[tuple[int, jax.Array, jax.Array]]:
    """For each of K runs its candidate, its key for noise, and its score's: the same for every method."""
    bits = np.float32(budget.epsilon).view(np.uint32)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 2), bits)
    uniform, choose, keys = simulated_randomness(key)
    return [(choose(num_candidates), *keys(index)) for index in range(LAW.draw(uniform))]


def choose(
    plans: Sequence[SelectionPlan], rows: Rows, seeds: Sequence[int], start: np.ndarray, divide: Divide = split
) -> Chosen:
    """Draw, run and score. Every run starts from `start` f32[p], and each seed has its own split of `rows`.

    Args:
      plans: one per budget, of the same structure.
      divide: makes a seed's split.
    """
    by_seed = [_of_seed(plans, rows, seed, start, divide) for seed in seeds]
    nothing = _Run(start, 0, -math.inf, ([], []))
    best = [[max(runs, key=lambda run: run.score, default=nothing) for runs in by_budget] for by_budget in by_seed]
    return Chosen(
        np.stack([[run.params for run in by_budget] for by_budget in best]),
        np.array([[run.steps for run in by_budget] for by_budget in best]),
        [[[run.trace for run in runs] for runs in by_budget] for by_budget in by_seed],
    )


def _of_seed(
    plans: Sequence[SelectionPlan], rows: Rows, seed: int, start: np.ndarray, divide: Divide = split
) -> list[list[_Run]]:
    """The runs of each budget."""
    drawn = [draws(seed, plan.budget, len(plan.candidates)) for plan in plans]
    planned = [(plan, *draw) for plan, plan_draws in zip(plans, drawn, strict=True) for draw in plan_draws]
    blocks = [planned[i : i + BLOCK] for i in range(0, len(planned), BLOCK)]
    runs = [run for block in blocks for run in _block(block, rows, seed, start, divide)]
    ends = np.cumsum([len(plan_draws) for plan_draws in drawn])
    return [runs[end - len(plan_draws) : end] for end, plan_draws in zip(ends, drawn, strict=True)]


def _block(
    planned: list[tuple[SelectionPlan, int, jax.Array, jax.Array]],
    rows: Rows,
    seed: int,
    start: np.ndarray,
    divide: Divide,
) -> list[_Run]:
    """At most `BLOCK` runs of (plan, candidate, key, the score's key), side by side."""
    plans, candidates, keys, score_keys = zip(*(planned * BLOCK)[:BLOCK], strict=True)
    protectors = [plan.candidates[candidate] for plan, candidate in zip(plans, candidates, strict=True)]
    trained = simulate(
        protectors,
        [plan.setups[0] for plan in plans],
        rows,
        [seed],
        start=start,
        keys=jnp.stack(keys)[None],
        divide=divide,
    )
    scored = simulate(
        [Score()] * BLOCK,
        [plan.setups[1] for plan in plans],
        rows,
        [seed],
        start=trained.params,
        keys=jnp.stack(score_keys)[None],
        divide=divide,
    )
    return [
        _Run(
            trained.params[0, i],
            int(trained.steps[0, i]),
            float(scored.params[0, i, 0]),
            (trained.answered(0, i), scored.answered(0, i)),
        )
        for i in range(len(planned))
    ]
