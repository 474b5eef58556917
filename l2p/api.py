"""Private training in one call: check everything, run, certify, and say what is guaranteed."""

from pathlib import Path

import jax

from l2p.checkpoints import lookup
from l2p.checkpoints.lookup import Resolved
from l2p.errors import InputError
from l2p.privacy.book import Book
from l2p.privacy.budget import Budget
from l2p.privacy.reservation import Reservation, held
from l2p.private_run import PlannedRun, execute, plan_run
from l2p.protector import Protector
from l2p.protectors import HAND_DESIGNED
from l2p.result import Result
from l2p.task import Rows, RowSource, Task


def private_train(
    data: Rows | RowSource | Task,
    protector: Protector | Resolved | str | Path | None = None,
    budget: Budget | None = None,
    *,
    model: str = "logistic",
    key: jax.Array | None = None,
    accountant: str | None = None,
    params: jax.Array | None = None,
    num_rows: int | None = None,
    ledger: Book | str | Path | None = None,
    kind: str | None = None,
) -> Result:
    """Train on private rows within `budget`.

    Args:
      data: the private rows, a source that streams them, or a task whose public rows the protector may read freely.
      protector: a protector, alone or with what is known of it, or what `l2p apply --protector` takes: a method, a
        checkpoint's name or its file; None for the model's default (`l2p.checkpoints.defaults`).
      budget: what may be spent, and on which adjacency; there is no default for it.
      model: name of the model, as `l2p.models.find_model` takes it: `softmax:10` has ten classes by declaration,
        for they are never read off labels.
      key: None is a release, with noise from the operating system. A JAX key is a simulation, which anybody who knows
        the key can undo; its card says so.
      accountant: one of `accountants.run_names()`; default the protector's own.
      params: f32[p], the public starting point; default the model's own.
      ledger: what all runs on this data set have spent together (`l2p ledger create`), or its file; this run's most is
        reserved there before it reads a row, and settled after it.
      num_rows: N, public by declaration; default the number of lines of `data`, null rows included. Under add_remove
        it has to be told.
      kind: what the target is, for a model that learns several; public by declaration. "binary" makes `square` a
        classifier of labels 0 and 1; default the model's own, which for `square` is a number.

    Raises:
      InputError: anything does not fit, before budget is spent.
      NoResult: the result is not finite. Nothing is then released, and what was spent stays spent.
      RuntimeError: the float64 check after the run contradicts the filter; the same holds. Also for any error while a
        release or a source has rows at hand; what it says is withheld then, as it may quote them.
      Whatever else ends a run with a ledger before it has settled, such as KeyboardInterrupt, passes on, with a note on
        the reservation that stays there.

    >>> import jax.numpy as jnp
    >>> rows = Rows(jnp.ones((900, 1)), jnp.ones(900), jnp.ones(900))
    >>> private_train(rows, "noisygd", Budget(1.0, 1e-5)).card.private_release
    True
    """
    if budget is None:
        raise InputError(
            "private training needs a budget, for which there is no default; pass budget=Budget(1.0, 1e-6)."
        )
    planned = plan_run(
        data,
        protector,
        budget,
        model=model,
        key=key,
        accountant=accountant,
        params=params,
        num_rows=num_rows,
        kind=kind,
    )
    if ledger is None:
        return execute(planned, key, None)
    book = open_ledger(ledger, planned.num_rows, key)
    with held(book) as id:
        return execute(planned, key, _reserve(book, planned, id))


def load(name: str | Path, budget: Budget | None = None, model: str = "logistic") -> Protector:
    """A protector by whatever name `l2p apply` takes; hand-designed methods set themselves up for `budget`.

    >>> load("noisygd", Budget(1.0, 1e-5)).num_steps
    50
    """
    if budget is None:
        if str(name) in HAND_DESIGNED:
            raise InputError(f"protector {str(name)!r} sets itself up for a budget; pass load({str(name)!r}, budget).")
        budget = Budget(1.0, 1e-6)  # a checkpoint is the same at every budget
    return lookup.resolve(str(name), budget, model).protector


def open_ledger(ledger: Book | str | Path, num_rows: int, key: jax.Array | None) -> Book:
    """The ledger for runs on `num_rows` rows; `InputError` if it is broken, says nothing of them, or they simulate."""
    if key is not None:
        raise InputError(
            "a simulation's noise is known to whoever has its key, so a ledger cannot count it as private; leave out "
            "the ledger, or the key."
        )
    book = ledger if isinstance(ledger, Book) else Book.open(ledger)
    book.budget.check_rows(num_rows)
    return book


def _reserve(book: Book, planned: PlannedRun, id: str) -> Reservation:
    asked = planned.filter.budget
    what = (
        f"{planned.resolved.name}, epsilon {asked.epsilon:g}, delta {asked.delta:g}, accountant {planned.filter.name}"
    )
    return Reservation.make(book, planned.filter, planned.resolved.protector.mechanisms, what, id)
