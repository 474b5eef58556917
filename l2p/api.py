"""Private training in one call: check everything, run, certify, and say what is guaranteed."""

from pathlib import Path

import jax

from l2p.checkpoints import lookup
from l2p.checkpoints.lookup import NamedProtector
from l2p.errors import InputError
from l2p.privacy.budget import Budget
from l2p.privacy.ledger import Ledger
from l2p.privacy.reservation import Reservation, held
from l2p.private_run import PlannedRun, execute, plan_run
from l2p.protector import Protector
from l2p.protectors import HAND_DESIGNED
from l2p.result import Result
from l2p.task import Rows, RowSource, Task


def private_train(
    data: Rows | RowSource | Task,
    protector: Protector | NamedProtector | str | Path,
    budget: Budget,
    *,
    model: str = "logistic",
    key: jax.Array | None = None,
    accountant: str | None = None,
    params: jax.Array | None = None,
    num_rows: int | None = None,
    ledger: Ledger | str | Path | None = None,
    kind: str | None = None,
) -> Result:
    """Train on private rows within `budget`.

    Args:
      data: the private rows, a source that streams them, or a task whose public rows the protector may read freely.
      protector: a protector, a `NamedProtector`, or a name as `l2p apply --protector` takes it: a method, a checkpoint
        or its file.
      budget: what may be spent, and on which adjacency.
      model: name of the model, as `l2p.models.find_model` takes it: `softmax:10` has ten classes by declaration,
        for they are never read off labels.
      key: None is a release, with noise from the operating system. A JAX key makes it a simulation: anybody who knows
        the key can undo its noise, and its card says so.
      accountant: one of `accountants.run_names()`; default the protector's own.
      params: f32[p], the public starting point; default the model's own.
      ledger: the ledger of this data set (`l2p ledger create`) or its file. The most that this run may spend is
        reserved there before it reads a row, and settled when it ends.
      num_rows: N, public by declaration; default the number of lines of `data`, null rows included. It is required
        under add_remove.
      kind: what the target is, for a model that learns several; public by declaration. "binary" makes `square` a
        classifier of labels 0 and 1; default the model's own, which for `square` is a number.

    Raises:
      InputError: an argument does not fit; raised before budget is spent.
      NoResult: the result is not finite. Nothing is released, and what was spent stays spent.
      RuntimeError: the float64 check after the run contradicts the filter; nothing is released, and what was spent
        stays spent. Also in place of any error raised while a release or a source handles rows; its message is
        withheld, as it may quote them.
      Any other exception that ends a run before its reservation is settled, such as KeyboardInterrupt, passes through
        with a note on the reservation that remains.

    >>> import jax.numpy as jnp
    >>> rows = Rows(jnp.ones((900, 1)), jnp.ones(900), jnp.ones(900))
    >>> private_train(rows, "noisygd", Budget(1.0, 1e-5)).card.private_release
    True
    """
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
    ledger = open_ledger(ledger, planned.num_rows, key)
    with held(ledger) as id:
        return execute(planned, key, _reserve(ledger, planned, id))


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


def open_ledger(ledger: Ledger | str | Path, num_rows: int, key: jax.Array | None) -> Ledger:
    """The ledger for runs on `num_rows` rows; `InputError` if the file is broken, its delta is too large for them, or
    they are simulations."""
    if key is not None:
        raise InputError(
            "a simulation's noise is known to whoever has its key, so a ledger cannot count it as private; leave out "
            "the ledger, or the key."
        )
    ledger = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    ledger.budget.check_rows(num_rows)
    return ledger


def _reserve(ledger: Ledger, planned: PlannedRun, id: str) -> Reservation:
    what = f"{planned.named.name}, {planned.filter.budget}, accountant {planned.filter.name}"
    return Reservation.make(ledger, planned.filter, planned.named.protector.mechanisms, what, id)
