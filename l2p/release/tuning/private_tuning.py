"""The best of several methods or settings, chosen on the private rows and charged: `tuned:private`."""

import dataclasses
import math
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.checkpoints.lookup import look_up
from l2p.checkpoints.named import NamedProtector
from l2p.models import MODELS, NAMES, Model, find_model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.accountants import covering, find, for_runs
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter, default_accountant
from l2p.privacy.card.card import Card
from l2p.privacy.card.of_run import SHARE, now
from l2p.privacy.cost.selection import NegativeBinomial, Repetitions, base_rho, total_epsilon
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import cost_of_best, count, counting, held, open_ledger
from l2p.protectors.stepwise.schedulers import SLACK
from l2p.queries import CorrectCount
from l2p.release.admission import admit
from l2p.release.api import private_train
from l2p.release.planned_run import plan_run
from l2p.release.result import Result
from l2p.run.protector import Protector
from l2p.task import checks
from l2p.task.rows import Rows
from l2p.task.sources import RowSource
from l2p.task.task import Task

#: A base run's budget is a number, rho; written as an (epsilon, delta) target it has this delta, whatever the total's.
_BASE_DELTA = 1e-12
#: A protector as `private_train` takes it.
Candidate = Protector | NamedProtector | str | Path
#: A candidate, with the accountant and the target that limit one run of it to its share.
BaseRun = tuple[NamedProtector, Budget]
#: Prices a score, which is one noised count of all rows.
SCORE_ACCOUNTANT = default_accountant(("gaussian",))
#: Distribution of the number of runs: logarithmic.
LAW: Repetitions = NegativeBinomial.with_mean(10.0)
#: Share of a run's budget that pays for its score.
SCORE_SHARE = 0.1


@struct.dataclass
class Score(Protector):
    """Spends its whole budget on the share of rows that given params predict correctly, and "releases" it as f32[1]."""

    num_steps: int = struct.field(pytree_node=False, default=0)
    adaptive_noise = False
    models: ClassVar[tuple[str, ...]] = tuple(
        name for name in NAMES if name not in MODELS or MODELS[name].kinds != ("regression",)
    )

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, jax.Array]:
        setup = oracle.setup
        noise_multiplier = oracle.noise_multiplier(setup.price_list.budget * (1.0 - SLACK))
        return params, oracle.ask(CorrectCount(setup.model, params, noise_multiplier)) / setup.num_rows

    def step(self, params: jax.Array, state: jax.Array, oracle: Oracle) -> tuple[jax.Array, jax.Array]:
        return params, state

    def finish(self, params: jax.Array, state: jax.Array, setup: Setup) -> jax.Array:
        return state


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The best run. All of it may be published, and nothing else of the tuning.

    Attributes:
      params: f32[p], for rows scaled to [0, 1]; the public start if there was no run.
      candidate: index of its candidate; None if there was no run.
      score: its noised share of private rows predicted correctly; biased upwards, because the run was chosen by it.
      budget: what is guaranteed for the whole tuning.
      base_rho: the zCDP budget of each run, score included.
      private_release: False if the noise came from a key, which somebody may know.
      statement: the guarantee as a sentence.
      result: the best run with its trace and a card that states this guarantee; None if there was no run.
    """

    params: jax.Array
    candidate: int | None
    score: float | None
    budget: Budget
    base_rho: float
    private_release: bool
    statement: str
    result: Result | None


def private_tuning(
    data: Rows | RowSource | Task,
    candidates: Sequence[Candidate],
    budget: Budget,
    *,
    repetitions: Repetitions = LAW,
    score_share: float = SCORE_SHARE,
    model: str | Model = "logistic",
    key: jax.Array | None = None,
    num_rows: int | None = None,
    ledger: Ledger | str | Path | None = None,
) -> Tuned:
    """Train a random number of times, each time by a candidate drawn at random, and release the best run only.

    The other runs, their scores and their number stay secret, except that running time reveals the number.

    Args:
      data, model, key, num_rows: as in `private_train`; labels are classes, and the score is the share of correct
        predictions.
      candidates: what `private_train` takes as a protector; their number costs nothing.
      budget: what the whole tuning may spend.
      repetitions: the distribution of the number of runs; default logarithmic with mean 10.
      score_share: share of a run's budget that pays for its score.
      ledger: as in `private_train`, in unit rdp or basic. The cost of all runs together is reserved there before the
        first reads a row, and counts in full afterwards, however many ran.

    Raises:
      InputError: a candidate does not fit, or no base run is private enough; before budget is spent.

    >>> import jax.numpy as jnp
    >>> rows = Rows(jnp.ones((900, 1)), jnp.ones(900), jnp.ones(900))
    >>> tuned = private_tuning(rows, ["noisygd", "auto_clip"], Budget(1.0, 1e-5), key=jax.random.key(0))
    >>> tuned.candidate in (0, 1), round(tuned.base_rho, 4)
    (True, 0.0102)
    """
    data = data if isinstance(data, Task) else Task(data)
    num_lines, num_features = checks.shape_of(data.private)
    num_rows = checks.number_of_rows(num_lines, num_rows, budget)
    budget.check_rows(num_rows)
    if not candidates or not 0 < score_share < 1:
        raise InputError(
            f"{len(candidates)} candidates and a score share of {score_share!r} leave nothing to choose, or to choose "
            "by; pass at least one candidate and a share strictly between 0 and 1."
        )
    rho = base_rho(repetitions, budget.epsilon, budget.delta)
    model, has_public = find_model(model), data.public is not None
    runs = [_base_run(candidate, budget, rho * (1 - score_share), model, has_public) for candidate in candidates]
    target = base_budget(rho * score_share, SCORE_ACCOUNTANT, budget)
    scoring = admit(Score(), target, model, SCORE_ACCOUNTANT), target
    common = {"model": model, "num_rows": num_rows, "kind": model.kind(model.labels)}
    for named, target in [*runs, scoring]:  # before anything is reserved, whatever does not fit
        plan_run(data, named, target, key=key, **common)
    statement = (
        f"{budget}, by {repetitions.theorem}: {repetitions}, each run {rho:.4g}-zCDP with its score; the number of "
        "runs, and all runs but the best, are withheld."
    )
    composition, unsettled = None, []
    if ledger is None:
        score, candidate, result = _best(data, runs, scoring, repetitions, key, common)
    else:
        ledger = open_ledger(ledger, releases=key is None)
        ledger.budget.check_rows(num_rows)
        with held(ledger) as id:
            earlier, cost = counting(ledger), cost_of_best(ledger, budget, repetitions, rho)
            ledger.reserve(cost, f"the best of {repetitions.mean:g} runs on average, {budget}", id)
            score, candidate, result = _best(data, runs, scoring, repetitions, key, common)
            composition, unsettled = count(ledger, id, cost, cost, earlier)
    if result is None:
        params = model.init(num_features)
        return Tuned(params, None, None, budget, rho, key is None, statement, None)
    card = _card(result.card, budget, total_epsilon(repetitions, rho, budget.delta), statement)
    card = dataclasses.replace(card, composition=composition, warnings=[*card.warnings, *unsettled])
    result = dataclasses.replace(result, card=card)
    return Tuned(result.params, candidate, score, budget, rho, key is None, statement, result)


def _best(
    data: Rows | RowSource | Task,
    runs: Sequence[BaseRun],
    scoring: BaseRun,
    law: Repetitions,
    key: jax.Array | None,
    common: dict[str, Any],
) -> tuple[float, int | None, Result | None]:
    """Draw, run and score; returns the best run's score, candidate and result."""
    best: tuple[float, int | None, Result | None] = (-math.inf, None, None)
    uniform, choose, keys = _randomness(key)
    for index in range(law.draw(uniform)):
        candidate = choose(len(runs))
        train_key, score_key = keys(index)
        result = private_train(data, *runs[candidate], key=train_key, **common)
        scored = private_train(data, *scoring, key=score_key, params=result.params, **common)
        if float(scored.params[0]) > best[0]:
            best = float(scored.params[0]), candidate, result
    return best


def _card(card: Card, budget: Budget, epsilon: float, statement: str) -> Card:
    """The card of a run that was released as the best of several, made from its own card; `epsilon` is that of the
    whole tuning."""
    return dataclasses.replace(
        card,
        epsilon=budget.epsilon,
        delta=budget.delta,
        epsilon_certified=min(epsilon, budget.epsilon),
        mu=None,  # that of one run says nothing of a choice among several
        created=now(),  # when this run ended tells how many came after it
        theorem=f"{statement} {SHARE}{card.theorem}",
        not_private=[
            *card.not_private,
            "How many runs there were, which running time tells. The choice among candidates that were named "
            "beforehand is paid for, and no other choice.",
        ],
        warnings=[
            *card.warnings,
            "Events, steps and noise are those of the run that was released, without its score: they come to its share "
            "and not to the guarantee, which covers the runs that are withheld, too.",
        ],
    )


def _base_run(candidate: Candidate, budget: Budget, rho: float, model: Model, has_public: bool) -> BaseRun:
    """Candidate with the accountant and the target that limit it to `rho`-zCDP; `InputError` if no accountant can."""
    target = base_budget(rho, SCORE_ACCOUNTANT, budget)
    if isinstance(candidate, (str, Path)):
        method = look_up(str(candidate), model)
        named = admit(method.set_up(target), target, model, has_public=has_public)
    else:
        method, named = None, admit(candidate, target, model, has_public=has_public)
    accountant = base_accountant(named.name, named.protector)
    target = base_budget(rho, accountant, budget)
    # A method by name sets itself up anew for this accountant and budget.
    refitted = candidate if method is None else method.set_up(target, accountant)
    return admit(refitted, target, model, accountant, has_public=has_public), target


def base_accountant(name: str, protector: Protector) -> str:
    """The accountant that limits a protector's runs to some rho at every order; `InputError` if none can."""
    # The theorems about selection require caps on a base run that hold at every order.
    at_every_order = [accountant.name for accountant in for_runs() if accountant.per_rho is not None]
    if not set(at_every_order) <= set(covering(protector.sampler)):
        raise InputError(
            f"candidate {name} reads its rows by {protector.sampler}, priced at one order only, where choosing "
            "among runs needs all of them; choose one that reads full batches."
        )
    usual = default_accountant(protector.mechanisms, protector.sampler)
    return usual if usual in at_every_order else at_every_order[-1]


def base_budget(rho: float, accountant: str, total: Budget) -> Budget:
    """The target whose filter stops at rho, or at the Gaussian-DP of mu^2 = 2 rho, from below."""
    pricing = find(accountant)
    assert pricing.per_rho is not None
    limit, epsilon = pricing.per_rho * rho, pricing.epsilon_of_rho(rho, _BASE_DELTA)
    while True:
        target = Budget(epsilon, _BASE_DELTA, total.adjacency)
        if Filter(accountant, target).limit <= limit:
            return target
        epsilon *= 1 - 1e-9


def _randomness(
    key: jax.Array | None,
) -> tuple[float, Callable[[int], int], Callable[[int], tuple[jax.Array | None, jax.Array | None]]]:
    """`simulated_randomness` of `key`, or, without one, the operating system's."""
    if key is None:
        system = secrets.SystemRandom()
        return system.random(), system.randrange, lambda index: (None, None)
    return simulated_randomness(key)


def simulated_randomness(
    key: jax.Array,
) -> tuple[float, Callable[[int], int], Callable[[int], tuple[jax.Array, jax.Array]]]:
    """A uniform number that draws K, a function that chooses one of n, and one that gives the keys of a run and its
    score."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))

    def keys(index: int) -> tuple[jax.Array, jax.Array]:
        train, score = jax.random.split(jax.random.fold_in(key, index))
        return train, score

    return generator.random(), lambda count: int(generator.integers(count)), keys
