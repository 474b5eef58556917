"""Tuning by disjoint parts of the rows (Chaudhuri, Monteleoni & Sarwate 2011; Algorithm 3 of Wu et al. 2017), and on
public rows.

`l2p.release.tuning.private_tuning` trains on all rows each time and pays for the choice out of one budget. Here each
candidate gets rows of its own, so that each may spend the whole budget: better for few candidates and many rows.
"""

import dataclasses
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Model, find_model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.accountants import find
from l2p.privacy.budget import Budget
from l2p.privacy.card.card import Card
from l2p.privacy.card.of_run import SHARE
from l2p.privacy.events import Adjacency
from l2p.privacy.ledger.ledger import AMOUNTS, WHOLE_RUNS, Cost, Ledger
from l2p.privacy.ledger.reservation import count, counting, held, open_ledger
from l2p.queries.fewest_errors import FewestErrors
from l2p.release.admission import admit
from l2p.release.api import private_train
from l2p.release.planned_run import PlannedRun, plan_run
from l2p.release.result import Result
from l2p.release.tuning.private_tuning import Candidate, Score
from l2p.run.protector import Protector
from l2p.task import checks
from l2p.task.rows import Rows
from l2p.task.sources import RowSource


@struct.dataclass
class Choice(Protector):
    """Spends its whole budget on the choice of the model with the fewest errors, and releases that model.

    Attributes:
      candidates: f32[k, p], parameters for raw rows.
    """

    candidates: jax.Array
    num_steps: int = struct.field(pytree_node=False, default=0)
    mechanisms = ("gumbel",)
    adaptive_noise = False
    asks_once = True
    models: ClassVar[tuple[str, ...]] = Score.models

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, jax.Array]:
        setup = oracle.setup
        noise_multiplier = oracle.noise_multiplier(setup.price_list.budget, "gumbel")
        index = oracle.ask(FewestErrors(setup.model, self.candidates, noise_multiplier))
        return self.candidates[index], index

    def step(self, params: jax.Array, state: jax.Array, oracle: Oracle) -> tuple[jax.Array, jax.Array]:
        return params, state

    def finish(self, params: jax.Array, state: jax.Array, setup: Setup) -> jax.Array:
        return params


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The candidate that was chosen; all of it may be published.

    Attributes:
      params: f32[p], for rows scaled to [0, 1].
      candidate: its index.
      budget: what is guaranteed for the whole tuning.
      private_release: False if the noise came from a key, which somebody may know.
      result: its run with its trace, and a card that states the guarantee of the whole tuning.
    """

    params: jax.Array
    candidate: int
    budget: Budget
    private_release: bool
    result: Result


def split_tuning(
    data: Rows | RowSource,
    candidates: Sequence[Candidate],
    budget: Budget,
    *,
    model: str | Model = "logistic",
    key: jax.Array | None = None,
    ledger: Ledger | str | Path | None = None,
) -> Chosen:
    """Train each candidate on a part of the rows of its own, and choose one by its errors on the last part.

    A row is in one part. Where it is in a candidate's, that run is (epsilon, delta)-private and the choice is made from
    what it released; where it is in the last, the choice is an exponential mechanism with epsilon. So the whole is
    (epsilon, delta)-private, however many candidates there are. Rows are assigned to parts at random, whatever they
    hold.

    Args:
      data: all rows, in memory; N lines, null rows included.
      candidates: what `private_train` takes as a protector.
      budget: of the whole, and of each run on its part; neighbours of one size, zero_out or replace_one.
      model, key: as in `private_train`; labels are classes.
      ledger: as in `private_train`, of a unit in which whole runs count.

    Raises:
      InputError: a candidate does not fit, parts are too small for delta, or the number of rows is private; before
        budget is spent.

    >>> rows = Rows(jnp.ones((900, 1)), jnp.ones(900), jnp.ones(900))
    >>> chosen = split_tuning(rows, ["noisygd", "auto_clip"], Budget(1.0, 1e-5), key=jax.random.key(0))
    >>> chosen.candidate in (0, 1), chosen.result.card.num_rows
    (True, 900)
    """
    num_lines, num_features = checks.shape_of(data)
    if budget.adjacency is Adjacency.ADD_REMOVE:
        raise InputError(
            "under add_remove the number of rows is private, but tuning by parts divides it among the candidates; "
            "choose adjacency zero_out or replace_one, or l2p.release.tuning.private_tuning."
        )
    if not isinstance(data, Rows):
        raise InputError("tuning by parts divides rows in memory, and these stream; load them, or tune on all of them.")
    if not candidates:
        raise InputError("there is no candidate to choose; name at least one.")
    budget.check_rows(num_lines)
    parts = _parts(num_lines, len(candidates) + 1, key)
    pieces = [jax.tree.map(lambda leaf, part=part: leaf[part], data) for part in parts]
    model = find_model(model)
    common = {"model": model, "kind": model.kind(model.labels)}
    start = jnp.zeros((len(candidates), model.num_params(num_features)))
    keys = [None] * len(pieces) if key is None else list(jax.random.split(key, len(pieces)))
    admitted = [admit(candidate, budget, model) for candidate in (*candidates, Choice(start))]
    for piece, named in zip(pieces, admitted, strict=True):  # before anything is reserved
        _check_part(plan_run(piece, named, budget, key=key, **common))

    def run() -> tuple[int, Result]:
        results = [
            private_train(piece, named, budget, key=run_key, **common)
            for piece, named, run_key in zip(pieces[:-1], admitted[:-1], keys[:-1], strict=True)
        ]
        choice = Choice(jnp.stack([result.params for result in results]))
        chosen = private_train(pieces[-1], choice, budget, key=keys[-1], **common)
        # Equal params have equal errors, so the first is as good as any.
        index = next(i for i, result in enumerate(results) if np.array_equal(result.params, chosen.params))
        return index, results[index]

    composition, unsettled = None, []
    if ledger is None:
        index, result = run()
    else:
        ledger = open_ledger(ledger, releases=key is None)
        ledger.budget.check_rows(num_lines)
        cost = cost_of_parts(ledger, budget)
        with held(ledger) as id:
            earlier = counting(ledger)
            ledger.reserve(cost, f"the best of {len(candidates)} candidates on parts, {budget}", id)
            index, result = run()
            composition, unsettled = count(ledger, id, cost, cost, earlier)
    card = _card(result.card, budget, num_lines, len(candidates))
    card = dataclasses.replace(card, composition=composition, warnings=[*card.warnings, *unsettled])
    result = dataclasses.replace(result, card=card)
    return Chosen(result.params, index, budget, key is None, result)


def tuned_on_public(
    public: Rows,
    candidates: Sequence[Candidate],
    budget: Budget,
    *,
    model: str | Model = "logistic",
    key: jax.Array,
) -> int:
    """The candidate that makes the fewest errors on one half of public rows when it is simulated on the other half.

    It costs nothing, and says nothing about private rows that differ from the public ones. Arguments as in
    `split_tuning`; a simulated run has as much noise relative to its rows as a private one would with so many rows.
    """
    num_lines, _ = checks.shape_of(public)
    train, test = (jax.tree.map(lambda leaf, part=part: leaf[part], public) for part in _parts(num_lines, 2, key))
    errors, model = [], find_model(model)
    for candidate, run_key in zip(candidates, jax.random.split(key, len(candidates)), strict=True):
        result = private_train(train, candidate, budget, model=model, key=run_key, num_rows=len(train.y))
        wrong = model.classify(result.params, jnp.asarray(test.x)) != jnp.asarray(test.y)
        errors.append(float((wrong * jnp.asarray(test.mask)).sum()))
    return int(np.argmin(errors))


def rows_of_part(num_rows: int, num_candidates: int) -> int:
    """Rows of each candidate's part; `InputError` if there are none."""
    parts = num_candidates + 1  # the last of which chooses
    if parts > num_rows:
        raise InputError(f"{num_rows} rows do not make {parts} parts; choose fewer candidates.")
    return num_rows // parts


def _parts(num_rows: int, count: int, key: jax.Array | None) -> list[np.ndarray]:
    """Row indices of `count` parts, drawn at random; all of one size, but the last, which has the remainder, too."""
    size = rows_of_part(num_rows, count - 1)
    seed = secrets.randbits(128) if key is None else np.asarray(jax.random.key_data(key))
    ends = size * np.arange(1, count)
    return np.split(np.random.default_rng(seed).permutation(num_rows), ends)


def _check_part(planned: PlannedRun) -> None:
    """Refuse a candidate that was planned for more rows than its part has, which its steps would count on."""
    rows = planned.named.protector.planned_rows
    if rows not in (None, planned.num_rows):
        raise InputError(
            f"candidate {planned.named.name!r} is planned for {rows} rows, but is trained on a part of "
            f"{planned.num_rows}, where its batches would be nearly empty and its steps too short; plan it for its "
            "part, or name a method, which plans itself."
        )


def cost_of_parts(ledger: Ledger, budget: Budget) -> Cost:
    """The cost that `split_tuning` reserves: that of one run, however many candidates there are.

    Raises:
      InputError: the ledger cannot count it.
    """
    if ledger.budget.adjacency is not budget.adjacency:
        raise InputError(
            f"the ledger of {ledger.name} counts {ledger.budget.adjacency} neighbours, but this tuning is planned for "
            f"{budget.adjacency}, and the two do not add up; choose the ledger's adjacency."
        )
    if find(ledger.unit).composes:
        raise InputError(
            f"the ledger of {ledger.name} adds up {AMOUNTS[ledger.unit]}, which does not bound runs on parts of the "
            f"rows with a choice among them; keep a ledger with unit {', '.join(WHOLE_RUNS)}."
        )
    return Cost(budget.epsilon, budget.delta)


def _card(card: Card, budget: Budget, num_rows: int, count: int) -> Card:
    """The card of the chosen run, with the guarantee of the whole tuning."""
    return dataclasses.replace(
        card,
        num_rows=num_rows,
        epsilon_certified=budget.epsilon,
        mu=None,  # that of one run says nothing of a choice among several
        theorem=f"{budget}, by disjoint parts: each of {count} candidates is trained on rows of its own, and chosen by "
        "an exponential mechanism on its errors on the last part (Chaudhuri, Monteleoni & Sarwate 2011). "
        f"{SHARE}{card.theorem}",
        warnings=[
            *card.warnings,
            f"Events, steps and noise are those of the run that was chosen, which read one of {count + 1} parts of the "
            "rows.",
        ],
    )
