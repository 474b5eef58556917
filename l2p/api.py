"""Private training in one call: check everything, run, certify, and say what is guaranteed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jax

from l2p.checkpoints import lookup
from l2p.checkpoints.lookup import Resolved
from l2p.declaring import declared, is_pair
from l2p.errors import InputError
from l2p.models import MODELS, find_model
from l2p.privacy.book import Book
from l2p.privacy.budget import Budget
from l2p.privacy.reservation import Reservation, held
from l2p.private_run import PlannedRun, check, execute, plan_run
from l2p.protector import Protector
from l2p.protectors import HAND_DESIGNED
from l2p.result import Result
from l2p.schema import Encoding, Schema, read_rows
from l2p.schema.rows import check_supported
from l2p.task import Task


def private_train(
    data: Any,
    protector: Protector | Resolved | str | Path,
    budget: Budget,
    *,
    model: str = "logistic",
    key: jax.Array | None = None,
    accountant: str | None = None,
    params: jax.Array | None = None,
    num_rows: int | None = None,
    ledger: Book | str | Path | None = None,
    kind: str | None = None,
    schema: Schema | str | Path | None = None,
    bounds: Any = None,
    classes: Sequence[Any] | None = None,
    target_bounds: Any = None,
    public: Any = None,
    on_invalid: Literal["refuse", "null"] = "refuse",
) -> Result:
    """Train on private rows within `budget`.

    Args:
      data: with a `schema`, the raw table: a path or several, a DataFrame, an Arrow table, an array, or columns by
        name (`l2p.data.reading.open_table`); or features and target apart, (X, y). Without one, (X, y) of numbers with
        `bounds`, rows in [0, 1], a source that streams them, or a task whose public rows the protector may read
        freely.
      protector: a protector, alone or with what is known of it, or what `l2p apply --protector` takes: a method, a
        checkpoint's name or its file.
      budget: what may be spent, and on which adjacency.
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
        classifier of labels 0 and 1; default the model's own, which for `square` is a number. A schema says it.
      schema: the declaration of the raw table, or its file (docs/tables.md).
      bounds: of the features of (X, y) without a schema, from public knowledge: one pair [low, high] for all, two
        arrays of lows and highs, or {column: [low, high]}.
      classes, target_bounds: with `bounds`, the labels, or [low, high] of a number to predict.
      public: public rows, which the protector may read freely: a table with its target, or (X, y), as `data`.
      on_invalid: what a raw row does that cannot be encoded: "refuse" refuses the table, "null" counts it as null.

    Raises:
      InputError: anything does not fit, before budget is spent.
      NoResult: the result is not finite. Nothing is then released, and what was spent stays spent.
      RuntimeError: the float64 check after the run contradicts the filter; the same holds. Also for any error while a
        release or a source has rows at hand; what it says is withheld then, as it may quote them.
      Whatever else ends a run with a ledger before it has settled, such as KeyboardInterrupt, passes on, with a note on
        the reservation that stays there.

    >>> import jax.numpy as jnp
    >>> from l2p.task import Rows
    >>> rows = Rows(jnp.ones((900, 1)), jnp.ones(900), jnp.ones(900))
    >>> private_train(rows, "noisygd", Budget(1.0, 1e-5)).card.private_release
    True
    """
    if schema is not None or bounds is not None or is_pair(data):
        data, schema = declared(data, schema, bounds, classes, target_bounds)
        model, kind = model_for(schema, model, kind)
        check(protector, budget, model, accountant)
        check_supported(schema)
        encoding = Encoding(schema)
        known = None if public is None else read_rows(declared(public, schema)[0], encoding, on_invalid)
        data = Task(private=read_rows(data, encoding, on_invalid), public=known)
    elif given := [
        name
        for name, value in (("classes", classes), ("target_bounds", target_bounds), ("public", public))
        if value is not None
    ]:
        raise InputError(
            f"{given[0]} is about a raw table, but the rows came encoded; pass (X, y) with bounds, or a schema, or "
            f"leave {given[0]} out (l2p.Task takes public rows that are encoded)."
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
        result = execute(planned, key, None)
    else:
        book = open_ledger(ledger, planned.num_rows, key)
        with held(book) as id:
            result = execute(planned, key, _reserve(book, planned, id))
    return result if schema is None else result.with_schema(schema)


def model_for(schema: Schema, model: str, kind: str | None = None) -> tuple[str, str]:
    """The full name of a model and the kind of target that it learns on a table.

    Raises:
      InputError: the model does not learn such a target, or `kind` is another.

    >>> from l2p.schema import Number, Target
    >>> model_for(Schema({"age": Number(0, 9)}, Target("ward", classes=("a", "b", "c"))), "softmax")
    ('softmax:3', 'multiclass')
    """
    target = schema.target
    if kind not in (None, target.kind):
        raise InputError(f"kind is {kind!r}, but the schema declares a {target.kind} target; leave the kind out.")
    found = find_model(model, None if target.classes is None else len(target.classes))
    if target.kind not in found.kinds:
        what = "a number" if target.classes is None else f"one of {len(target.classes)} classes"
        fitting = [name for name, one in MODELS.items() if target.kind in one.kinds]
        raise InputError(
            f"the target {target.column!r} is {what}, which model {model} does not learn; choose --model "
            f"{' or '.join([*fitting, 'softmax'] if target.kind == 'multiclass' else fitting)}."
        )
    return str(found), target.kind


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
    what = f"{planned.resolved.name}, {planned.filter.budget}, accountant {planned.filter.name}"
    return Reservation.make(book, planned.filter, planned.resolved.protector.mechanisms, what, id)
