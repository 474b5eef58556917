"""Private training in one call: check everything, run, certify, and say what is guaranteed."""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import jax

from l2p.base.errors import InputError, ending_run
from l2p.base.garbage import seldom_collected
from l2p.base.kept_programs import kept_programs
from l2p.checkpoints import lookup
from l2p.checkpoints.defaults import MODEL_OF, default_for
from l2p.checkpoints.named import NamedProtector
from l2p.models import MODELS, Model, find_model
from l2p.privacy.budget import Budget
from l2p.privacy.card.statements import checked
from l2p.privacy.events import Adjacency
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import Reservation, held, open_ledger
from l2p.protectors import HAND_DESIGNED
from l2p.queries.bins import SCALE
from l2p.release.admission import admit
from l2p.release.losses.custom import custom
from l2p.release.losses.exactness import EXACT, in_float32
from l2p.release.planned_run import PlannedRun, checked_public, plan_run
from l2p.release.private_bounds import SHARE, Purchase, check_share
from l2p.release.private_run import execute
from l2p.release.progress import resumed
from l2p.release.result import Result
from l2p.run.protector import Protector
from l2p.tables.private_table import read_private, read_public
from l2p.tables.reading import Format
from l2p.tables.same_table import refuse_same
from l2p.tables.schema import Encoding, Schema, schema_of
from l2p.tables.schema.declaring import given_schema, schema_of_pair
from l2p.tables.schema.encoding import OnInvalid
from l2p.tables.schema.pair import is_pair
from l2p.tables.schema.unbounded import Unbounded
from l2p.task.sources import RowSource
from l2p.task.task import Task

Train = TypeVar("Train", bound=Callable[..., Result])


def _keeps_programs(train: Train) -> Train:
    """`private_train`, whose programs are kept for the next start, but for tables whose number of lines is private, and
    for a loss of one's own, of which a program holds the numbers that it closes over, and all frozen parameters."""

    @functools.wraps(train)
    def run(data: Any, protector: Any = None, budget: Budget | None = None, **options: Any) -> Any:
        keep = budget is None or budget.adjacency is not Adjacency.ADD_REMOVE
        with kept_programs(keep and not callable(options.get("model"))), seldom_collected():
            return train(data, protector, budget, **options)

    return cast(Train, run)


@_keeps_programs
def private_train(
    data: Any,
    protector: Protector | NamedProtector | str | Path | None = None,
    budget: Budget | None = None,
    *,
    model: str | Model | Callable[[Any, Any], Any] | None = None,
    key: jax.Array | None = None,
    accountant: str | None = None,
    params: Any = None,
    trainable: Callable[[str], bool] | None = None,
    predict: Callable[[Any, Any], Any] | None = None,
    per_tensor: Callable[[str], float] | None = None,
    exactness: str = EXACT,
    num_rows: int | None = None,
    ledger: Ledger | str | Path | None = None,
    resume: str | Path | None = None,
    kind: str | None = None,
    schema: Schema | str | Path | None = None,
    bounds: Any = None,
    classes: Sequence[Any] | None = None,
    target_bounds: Any = None,
    class_weights: Any = None,
    public: Any = None,
    on_invalid: OnInvalid = "refuse",
    format: Format | None = None,
    bounds_share: float | None = None,
    statements: Mapping[str, str | None] | None = None,
) -> Result:
    """Train on private rows within `budget`.

    Args:
      data: with a `schema`, the raw table: a path or several, a DataFrame, an Arrow table, an array, or columns by
        name (`l2p.tables.reading.open_table`); or features and target apart, (X, y). Without one, (X, y) of numbers
        with `bounds`, rows in [0, 1], a source that streams them, a raw table that streams
        (`l2p.tables.schema.stream.streamed`), or a task whose public rows the protector may read freely. For a loss of
        your own: a pytree of arrays whose first axis is rows, such as {"x": images, "y": labels}, or an
        `l2p.BlockSource` of such blocks.
      protector: a protector, a `NamedProtector`, or a name as `l2p apply --protector` takes it: a method, a checkpoint
        or its file; None for the model's default (`l2p.checkpoints.defaults`).
      budget: what may be spent, and on which adjacency; there is no default for it.
      model: what to train, or its name as `l2p.models.find_model` takes it: `softmax:10` has ten classes by
        declaration, for they are never read off labels. None for the default of the target that a schema or `classes`
        and `target_bounds` declare (`l2p.checkpoints.defaults`), and for `logistic` where nothing does. Or a model of
        your own: a `Model`, or a function loss(params, row) of one row of `data`, which returns a scalar; or
        loss(params, row, key) of one that draws (`l2p.release.losses.drawing`). All that it reads besides that row is
        public.
      key: None is a release, with noise from the operating system. A JAX key makes it a simulation: anybody who knows
        the key can undo its noise, and its card says so.
      accountant: one of `accountants.run_names()`; default the protector's own.
      params: f32[p], the public starting point; default the model's own. For a loss of your own the pytree that it
        takes, which `Result.params` has the structure of.
      trainable: of a loss of your own: true for the paths of parameters that are trained, such as "layers/0/kernel";
        default all arrays.
      predict: of a loss of your own: (params, row) -> a prediction, for `Result.predict`.
      per_tensor: of a loss of your own: for the path of a trained array its weight, such as `lambda path: 1.0`. Each
        array's gradient is then clipped by itself, to the method's clipping norm times its weight over the root of the
        sum of all weights' squares, so that a row adds no more than before; default one norm for all of them together.
      exactness: of a loss of your own: "exact" adds up whole numbers, so that no row changes what another adds;
        "float32" adds up gradients as the device rounds them, in less time, with the same float64 noise. What that
        rests on is not proved, as the card says.
      ledger: the ledger of this data set (`l2p ledger create`) or its file. The most that this run may spend is
        reserved there before it reads a row, and settled when it ends.
      resume: a file, made if need be, in which the run saves how far it has come. Called again after its process was
        killed, with the same arguments, it goes on from there: no step counts twice, and one that has ended gives its
        result without reading a row. Keep one copy: two that go on would each spend what one counts. A run that ended
        in an error does not go on, and one that buys bounds cannot be resumed.
      num_rows: N, public by declaration; default the number of lines of `data`, null rows included. It is required
        under add_remove.
      kind: what the target is, for a model that learns several; public by declaration. "binary" makes `square` a
        classifier of labels 0 and 1; default the model's own, which for `square` is a number. A schema says it.
      schema: the declaration of the raw table, or its file (docs/tables.md).
      bounds: of the features of (X, y) without a schema, from public knowledge: one pair [low, high] for all, two
        arrays of lows and highs, or {column: [low, high]}.
      classes, target_bounds: with `bounds`, the labels, or [low, high] of a number to predict.
      class_weights: with `classes`, how much a row of each counts in what is learned, from public knowledge: {class:
        number}, or numbers in the order of `classes`. A schema says it itself.
      public: public rows, which the protector may read freely: a table with its target, or (X, y), as `data`, with the
        same columns; or rows that the schema encoded. A private row that equals one of them counts as null, and nothing
        says so.
      on_invalid: what a raw row does that cannot be encoded: "refuse" refuses the table, "null" counts it as null.
      format: how the table's text is written, and which columns are left out (`l2p.tables.reading.Format`). Its
        encoding and its decimal mark are kept with the schema, by which predictions read their tables.
      bounds_share: the share of the budget, in the accountant's own unit, that buys the bounds of all columns which the
        schema declares as private; default `l2p.release.private_bounds.SHARE`, a twentieth.
      statements: of whoever releases, for the card: {"justification": ..., "contact": ..., "audit": ...}, in your own
        words; none of them is needed.

    Raises:
      InputError: an argument does not fit; raised before budget is spent.
      NoResult: the result is not finite. Nothing is released, and what was spent stays spent.
      RuntimeError: the float64 check after the run contradicts the filter; nothing is released, and what was spent
        stays spent. Also in place of any error raised while a release or a source handles rows; its message is
        withheld, as it may quote them.
      Any other exception that ends a run before its reservation is settled, such as KeyboardInterrupt, passes through
        with a note on the reservation that remains.

    >>> import jax.numpy as jnp
    >>> from l2p.task.rows import Rows
    >>> rows = Rows(jnp.ones((900, 1)), jnp.ones(900), jnp.ones(900))
    >>> private_train(rows, "noisygd", Budget(1.0, 1e-5)).card.private_release
    True
    """
    if not isinstance(budget, Budget):
        raise InputError(
            "private training needs a budget, epsilon and delta in one, for which there is no default; pass "
            "budget=l2p.Budget(1.0, 1e-6)."
        )
    statements = checked(statements)
    ledger = None if ledger is None else open_ledger(ledger, releases=key is None)
    of_table = {"schema": schema, "bounds": bounds, "kind": kind, "classes": classes, "target_bounds": target_bounds}
    of_table |= {"class_weights": class_weights, "public": public, "format": format, "bounds_share": bounds_share}
    float32 = in_float32(exactness, callable(model))
    if callable(model):
        _refuse_for_loss(**of_table, on_invalid=None if on_invalid == "refuse" else on_invalid)
        data, model, params = custom(data, model, params, trainable, predict, per_tensor)
    elif not (trainable is predict is per_tensor is None):
        raise InputError(
            "trainable, predict and per_tensor are about a loss of your own; pass it as model=, or leave them out."
        )
    if public is not None:
        refuse_same(data, public)
    if schema is None and isinstance(data, RowSource):
        schema = schema_of(data)
    of_target = {"classes": classes, "target_bounds": target_bounds, "class_weights": class_weights}
    if schema is not None:
        schema = given_schema(schema, bounds=bounds, **of_target).written_as(format)
    elif bounds is not None or is_pair(data):
        schema = schema_of_pair(data, bounds, **of_target).written_as(format)
    else:
        _refuse_for_encoded(**of_target, public=public, format=format, bounds_share=bounds_share)
    if schema is None:
        model = find_model("logistic" if model is None else model)
    else:
        model, kind = model_for(schema, model, kind)
    protector = default_for(model) if protector is None else protector
    has_public = public is not None or (isinstance(data, Task) and data.public is not None)
    named = admit(protector, budget, model, accountant, schema=schema, has_public=has_public)
    share = 0.0 if schema is None else share_of(schema, bounds_share)
    rows: Any = data if schema is None else _read(data, public, named, schema, model, on_invalid, format)
    table = rows if isinstance(rows, Unbounded) else None
    planned = plan_run(
        rows if table is None else table.rows,
        named,
        budget,
        model,
        key=key,
        params=params,
        num_rows=num_rows,
        kind=kind,
        schema=schema,
        share=share,
        in_float32=float32,
    )
    purchase = None if table is None else Purchase.plan(table, share, planned, key)
    saved = None if resume is None else resumed(resume, planned, ledger, buys_bounds=purchase is not None)

    def run(reservation: Reservation | None) -> Result:
        if table is None or purchase is None:
            result = execute(planned, reservation, saved=saved).stating(statements)
            return result if schema is None else result.with_schema(schema).of_table(data, schema.target.column)
        bounds, purchased = purchase.buy(table.binned(SCALE))
        with ending_run():
            bounded, rows = table.bounded(bounds)
        result = execute(planned._replace(task=Task(rows)), reservation, purchased).stating(statements)
        return result.with_schema(bounded, tuple(bounds)).of_table(data, bounded.target.column)

    with contextlib.nullcontext() if saved is None else contextlib.closing(saved):
        if ledger is None:
            return run(None)
        ledger.budget.check_rows(planned.num_rows)
        with held(ledger, None if saved is None else saved.reservation) as id:
            try:
                reservation = _reserve(ledger, planned, id, share > 0)
            except InputError:
                if saved is not None:
                    saved.forget()
                raise
            return run(reservation)


def _read(
    data: Any,
    public: Any,
    named: NamedProtector,
    schema: Schema,
    model: Model,
    on_invalid: OnInvalid,
    format: Format | None,
) -> Task | Unbounded:
    """The private rows of a table beside public ones, which are read and checked first."""
    if public is not None:
        public = read_public(public, schema, format)
        public = checked_public(public, named, len(Encoding(schema).names), model, schema.target.kind)
    rows = read_private(data, schema, on_invalid, format, public, named.sources, named.protector.reads_in_order)
    return rows if isinstance(rows, Unbounded) else Task(private=rows, public=public)


def _refuse_for_encoded(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise InputError(
                f"{name} is about a raw table, but the rows came encoded; pass (X, y) with bounds, or a schema, or "
                f"leave {name} out (l2p.Task takes public rows that are encoded)."
            )


def _refuse_for_loss(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise InputError(
                f"{name} is about a table, but model is a loss of your own, which says itself what it makes of a row; "
                f"leave {name} out, or name a model."
            )


def share_of(schema: Schema, bounds_share: float | None) -> float:
    """The share of the budget that buys bounds: 0 where the schema declares all of them.

    Raises:
      InputError: it is no share, or there is nothing to buy with one.
    """
    if not schema.private_bounds:
        if bounds_share is not None:
            raise InputError(
                "a share of the budget is set aside for bounds, but the schema declares all of them; leave the share "
                'out, or declare a column with "bounds": "private".'
            )
        return 0.0
    share = SHARE if bounds_share is None else bounds_share
    check_share(share)
    return share


def model_for(schema: Schema, model: str | Model | None, kind: str | None = None) -> tuple[Model, str]:
    """A model, None for the default of a table's target, and the kind of target that it learns there.

    Raises:
      InputError: the model does not learn such a target, or `kind` is another.

    >>> from l2p.tables.schema import Number, Target
    >>> model_for(Schema({"age": Number(0, 9)}, Target("ward", classes=("a", "b", "c"))), "softmax")
    (Softmax(num_classes=3), 'multiclass')
    """
    target = schema.target
    if kind not in (None, target.kind):
        raise InputError(f"kind is {kind!r}, but the schema declares a {target.kind} target; leave the kind out.")
    learner = find_model(
        MODEL_OF[target.kind] if model is None else model, None if target.classes is None else len(target.classes)
    )
    if target.kind not in learner.kinds:
        target_text = "a number" if target.classes is None else f"one of {len(target.classes)} classes"
        fitting = [name for name, candidate in MODELS.items() if target.kind in candidate.kinds]
        raise InputError(
            f"the target {target.column!r} is {target_text}, which model {model} does not learn; choose "
            f"{' or '.join([*fitting, 'softmax'] if target.kind == 'multiclass' else fitting)}, or leave the model out."
        )
    return learner, target.kind


def load(name: str | Path, budget: Budget | None = None, model: str | Model = "logistic") -> Protector:
    """A protector by whatever name `l2p apply` takes; hand-designed methods set themselves up for `budget` and `model`.

    >>> load("noisygd", Budget(1.0, 1e-5)).num_steps
    50
    """
    if budget is None:
        if str(name) in HAND_DESIGNED:
            raise InputError(f"protector {str(name)!r} sets itself up for a budget; pass load({str(name)!r}, budget).")
        budget = Budget(1.0, 1e-6)  # a checkpoint is the same at every budget
    return lookup.resolve(str(name), budget, model).protector


def _reserve(ledger: Ledger, planned: PlannedRun, id: str, buys_bounds: bool) -> Reservation:
    requested = planned.filter.budget
    purpose = (
        f"{planned.named.name}, epsilon {requested.epsilon:g}, delta {requested.delta:g}, accountant "
        f"{planned.filter.name}"
    )
    mechanisms = {*planned.named.protector.mechanisms, *(("gaussian",) if buys_bounds else ())}
    unit = None if planned.unit is None else planned.unit.column
    return Reservation.make(ledger, planned.filter, mechanisms, purpose, id, unit)
