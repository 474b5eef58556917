"""The config of a training on a user's own tables: that of a shipped protector, whose parameters or control it starts
from, with its ranges as its card says."""

import dataclasses
import re
from collections.abc import Sequence

from l2p.checkpoints import checkpoint
from l2p.checkpoints.control import CONTROL
from l2p.checkpoints.defaults import UNIVERSAL
from l2p.data.preparation import Kind
from l2p.errors import InputError
from l2p.models import find_model, plain_name
from l2p.models.softmax import Softmax
from meta_train.config import MetaConfig
from meta_train.tasks.own_tables import OwnTable
from meta_train.tasks.sources import AND
from meta_train.training.untrained import BUILDERS

#: What a start that trains every model is fine-tuned for, by what tasks predict.
MODEL_OF: dict[Kind, str] = {"binary": "logistic", "multiclass": Softmax.name, "regression": "square"}
#: Follows the start's name in that of what is made.
OWN_NAME = "-own"
#: Sizes of tasks that every table has columns for; each is compiled for, and so is the widest table's.
SIZES = 2
#: Outer steps between checks on held-out tasks, and batches of fresh tasks that gains are measured on.
EVAL_EVERY, GAIN_ROUNDS = 40, 2
#: Of the start's learning rate, where its own parameters are trained on: it was trained to the end.
FINE = 0.5


def config_for(start: str, tables: Sequence[OwnTable]) -> MetaConfig:
    """How a shipped protector is fine-tuned on some tables or, where its control is named, trained from that.

    A task is of as many columns as those of the start are, of the largest sizes that every table has columns for; or of
    as many as the widest table has.

    Args:
      start: `universal` or another shipped protector; `control-universal` for networks that begin silent on top of its
        constants.
      tables: of one kind of target.

    Raises:
      InputError: the start is no shipped protector that is trained on columns of any table, or does not learn what a
        table predicts; two tables are one, or predict different things.
    """
    name, shipped = _shipped(start)
    _check(start, shipped, tables)
    most, (narrowest, *_, widest) = max(len(table.y) for table in tables), sorted(2 * [t.x.shape[1] for t in tables])
    shared = sorted({count for count in shipped.num_features or () if count <= narrowest and count < widest})
    counts = (*shared[-SIZES:], widest)
    model = _model(shipped, tables[0].kind)
    rates = shipped.sampling_rates
    return dataclasses.replace(
        shipped,
        name=name + OWN_NAME,
        source=AND.join(table.source for table in tables),
        sources=None,
        models=None,
        model=f"{model}:{tables[0].num_classes}" if model == Softmax.name else model,
        warm_start=checkpoint.canonical(start),
        learning_rate=shipped.learning_rate * (1.0 if start.startswith(CONTROL) else FINE),
        # A task repeats rows of a table that has fewer.
        rows=min(shipped.rows, int(0.8 * most)),
        num_features=counts,
        num_classes=None,
        sampling_rates=None if rates is None else rates[:1] * len(counts),
        eval_every=EVAL_EVERY,
        gain_rounds=GAIN_ROUNDS,
    )


def _shipped(start: str) -> tuple[str, MetaConfig]:
    """The protector that a start stands for, and its config; `InputError` where there is none to train so."""
    name = checkpoint.canonical(start).removeprefix(f"{CONTROL}-")
    options = f"choose {UNIVERSAL}, which learns any target, or {CONTROL}-{UNIVERSAL}"
    if not re.fullmatch(r"[\w,-]+", start) or not {checkpoint.canonical(start), name} <= set(checkpoint.names()):
        raise InputError(f"there is no shipped protector {start!r} to start from; {options}.")
    card = checkpoint.load(name).card
    config = MetaConfig.from_json(card["config"]) if "config" in card else None
    fits = (
        config is not None
        and config.coefficients is None
        and config.protector in BUILDERS
        and config.num_features is not None
        and config.directions is None
        and (config.method, config.objective, config.constraint) == ("gradient", "final", "share")
    )
    if config is None or not fits:
        raise InputError(
            f"{start!r} is not trained on columns that any table could lend, so it cannot start from yours; {options}."
        )
    return name, config


def _check(start: str, shipped: MetaConfig, tables: Sequence[OwnTable]) -> None:
    if not tables:
        raise InputError("no table is given, so there is nothing to train on; name at least one with --data.")
    sources = [table.source for table in tables]
    twice = next((table.name for table in tables if sources.count(table.source) > 1), None)
    if twice is not None:
        raise InputError(
            f"the table {twice} is given twice, so what is held out of it would be trained on; leave one out."
        )
    for table in tables:
        if table.kind not in _kinds(shipped):
            what = {"binary": "one of two classes", "multiclass": "one of several classes", "regression": "a number"}
            raise InputError(
                f"{start} learns no target like that of {table.name}, which is {what[table.kind]}; start from "
                f"{UNIVERSAL} (--start {UNIVERSAL})."
            )
        if (table.kind, table.num_classes) != (tables[0].kind, tables[0].num_classes):
            raise InputError(
                f"{table.name} and {tables[0].name} predict different things ({_said(table)} and {_said(tables[0])}), "
                "and one protector is trained for one kind; train on each kind apart."
            )


def _model(shipped: MetaConfig, kind: Kind) -> str:
    """The plain name of the model to fine-tune for, on targets of a kind."""
    return plain_name(shipped.model) if shipped.models is None else MODEL_OF[kind]


def _kinds(shipped: MetaConfig) -> tuple[str, ...]:
    """Kinds of targets that the start's tasks have."""
    if shipped.models is not None:
        return tuple(MODEL_OF)
    # What learns several classes learns two, but starts from nothing that was trained on two.
    return ("multiclass",) if ":" in shipped.model else find_model(shipped.model, 2).kinds


def _said(table: OwnTable) -> str:
    return "numbers" if table.num_classes is None else f"{table.num_classes} classes"
