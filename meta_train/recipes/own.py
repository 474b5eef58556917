"""The config of a training on a user's own tables: that of a shipped protector, whose parameters or control it starts
from, with its ranges as its card says."""

import re
from collections.abc import Sequence

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.checkpoints.control import CONTROL, constants_checkpoint
from l2p.checkpoints.defaults import MODEL_OF, UNIVERSAL
from l2p.models import find_model, plain_name
from l2p.models.softmax import Softmax
from meta_train import planning
from meta_train.config import EveryModel, OwnConstants, OwnTables, Plain, on_card
from meta_train.config.drawn import ALL_FRESH
from meta_train.tasks.own_tables import OwnTable
from meta_train.tasks.sources import AND
from meta_train.training.untrained import BUILDERS

#: Follows the start's name in the name of the result.
OWN_NAME = "-own"
#: Outer steps between checks on held-out tasks, and most batches of fresh tasks that gains are measured on.
EVAL_EVERY, GAIN_ROUNDS = 40, 16
#: Of the start's learning rate, where its own parameters are trained on: it was trained to the end.
FINE = 0.5
#: Tasks of an outer step with more columns than the first of these, and at least that many rows in a task.
WIDE, TASKS_IF_WIDE, LEAST_ROWS = 150, 8, 128


def config_for(start: str, tables: Sequence[OwnTable]) -> OwnTables:
    """The config that fine-tunes a shipped protector on some tables or, where its control is named, trains from that.

    Tables with targets of one kind, and equally many classes, make the tasks of a shape together (`planning.sizes`).

    Args:
      start: `universal` or another shipped protector; `control-universal` for networks that begin silent on top of its
        constants.
      tables: which predict one of two classes, one of several, or numbers.

    Raises:
      InputError: the start is no shipped protector that is trained on columns of any table, or does not learn what a
        table predicts; two tables are one.
    """
    name, shipped = _shipped(start)
    _check_tables(start, shipped, tables)
    sizes = planning.sizes([planning.Width(table.x.shape[1], _model(shipped, table)) for table in tables])
    rates, before = shipped.tasks.rates, shipped.learner.learning_rate
    most = int(0.8 * max(len(table.y) for table in tables))
    fields = {
        **shipped.common(OwnTables),
        "name": name + OWN_NAME,
        "sources": tuple(AND.join(tables[place].source for place in size.tables) for size in sizes),
        "models": tuple(size.model for size in sizes),
        "warm_start": start,
        "learning_rate": before * (1.0 if start.startswith(CONTROL) else FINE),
        "tasks": TASKS_IF_WIDE if max(size.width for size in sizes) > WIDE else shipped.tasks.tasks,
        # A power of two, so that programs serve tables of other lengths, too; a task repeats rows of a shorter table.
        "rows": min(shipped.tasks.rows, max(LEAST_ROWS, 2 ** (most.bit_length() - 1))),
        "num_features": tuple(size.width for size in sizes),
        "sampling_rates": rates[:1] * len(sizes) or None,
        "shape_rows": None,
        # What is judged is the whole table.
        "least_rows": 1.0,
        # Runs are scored on rows that they did not read: those of the tables that are held out, where they are judged.
        "fresh_shares": shipped.tasks.fresh_shares or ALL_FRESH,
        "eval_every": EVAL_EVERY,
        "gain_rounds": GAIN_ROUNDS,
    }
    return OwnTables.from_flat(fields)


def constants_of(config: OwnTables) -> OwnConstants | None:
    """The config without networks, which trains the constants of the start's control; None where there are none."""
    card = constants_checkpoint(config.start.warm_start).card
    if not card["name"].startswith(CONTROL):
        return None
    protector = on_card(card).start.protector
    if protector == config.start.protector:
        return None
    return OwnConstants.from_flat({**config.common(OwnConstants), "protector": protector})


def _shipped(start: str) -> tuple[str, Plain | EveryModel]:
    """The protector that a start stands for, and its config; `InputError` where there is none to train so."""
    name = start.removeprefix(f"{CONTROL}-")
    options = f"choose {UNIVERSAL}, which learns any target, or {CONTROL}-{UNIVERSAL}"
    if not re.fullmatch(r"[\w,-]+", start) or not {start, name} <= set(checkpoint.names()):
        raise InputError(f"there is no shipped protector {start!r} to start from; {options}.")
    card = checkpoint.load(name).card
    config = on_card(card) if "config" in card else None
    if (
        not isinstance(config, (Plain, EveryModel))
        or config.start.protector not in BUILDERS
        or None in config.tasks.counts
        or (isinstance(config, Plain) and (config.start.coefficients, config.learner.unroll) != (None, None))
    ):
        raise InputError(
            f"{start!r} is not trained on columns that any table could lend, so it cannot start from yours; {options}."
        )
    return name, config


def _check_tables(start: str, shipped: Plain | EveryModel, tables: Sequence[OwnTable]) -> None:
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
            targets = {"binary": "one of two classes", "multiclass": "one of several classes", "regression": "a number"}
            raise InputError(
                f"{start} learns no target like that of {table.name}, which is {targets[table.kind]}; start from "
                f"{UNIVERSAL} (--start {UNIVERSAL})."
            )


def _model(shipped: Plain | EveryModel, table: OwnTable) -> str:
    """The name of the model to fine-tune for on a table, with its number of classes if there are several."""
    plain = plain_name(shipped.tasks.model) if isinstance(shipped, Plain) else MODEL_OF[table.kind]
    return f"{plain}:{table.num_classes}" if plain == Softmax.name else plain


def _kinds(shipped: Plain | EveryModel) -> tuple[str, ...]:
    """Kinds of targets that the start's tasks have."""
    if isinstance(shipped, EveryModel):
        return tuple(MODEL_OF)
    return find_model(shipped.tasks.model, 2).kinds
