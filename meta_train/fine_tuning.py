"""Meta-training on a user's own public tables, and every training's way from a config to a judged checkpoint."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from l2p.checkpoints import checkpoint
from l2p.checkpoints.defaults import UNIVERSAL
from l2p.checkpoints.folds import is_fold
from l2p.data.own import is_own
from l2p.data.reading import Format
from l2p.errors import InputError
from l2p.protector import Protector
from l2p.schema import Schema
from meta_train.config import MetaConfig
from meta_train.evaluation import meta_test
from meta_train.evaluation.gained import gained
from meta_train.recipes import own
from meta_train.recipes.remembered import remember
from meta_train.tasks import own_tables
from meta_train.tasks.sources import parts_of
from meta_train.training.loop import meta_train
from meta_train.training.starting_points import starting_point
from meta_train.training.watch import Watch, to_stderr

#: Tasks per feature count in the meta-test of what is made from a user's tables.
OWN_TASKS = 8


def fine_tune(
    data: Sequence[Any],
    schema: Sequence[Schema | str | Path],
    out: str | Path,
    start: str = UNIVERSAL,
    minutes: float | None = None,
    format: Format | None = None,
    say: Callable[[str], None] = to_stderr,
) -> Path:
    """Fine-tune a shipped protector on public tables of one's own, or train one from its control.

    Of every table four rows in five make tasks to train on. The others, which no training sees, make those that say
    what was gained over the start, and where: there alone the new one runs, and elsewhere the start. A training found
    in `out` goes on.

    Args:
      data: public tables: files, DataFrames or whatever else `l2p.data.reading.open_table` takes.
      schema: one for each of them: a `Schema` or its JSON file.
      out: folder for the checkpoint and the state to resume from.
      start: `universal` or another shipped protector; with `control-` before it, networks are trained anew on top of
        its constants.
      minutes: that all of it may take; None for as many steps as the start's own training took.
      format: how text files are laid out.
      say: what gets lines on progress and gains.

    Returns:
      Path of `out/START-own.safetensors`, which `--protector` and `private_train(protector=...)` take.

    Raises:
      InputError: before anything is compiled, for a table or schema that cannot be read or does not fit the start; or,
        once steps were measured, where the minutes leave no time to train.

    For instance::

        path = meta_train.fine_tune(["a.csv", "b.csv"], ["a.json", "b.json"], out="mine", minutes=10)
        l2p.private_train(rows, str(path), budget)
    """
    watch = Watch(minutes, foretells=True, say=say)
    if len(data) != len(schema):
        raise InputError(
            f"{len(data)} tables and {len(schema)} schemas are given, and they go in pairs; name one schema for each."
        )
    tables = [
        own_tables.read(table, declared, f"table-{place}", format)
        for place, (table, declared) in enumerate(zip(data, schema, strict=True), 1)
    ]
    config = own.config_for(start, tables)
    for table in tables:
        own_tables.keep(table)
        left_out = f", {table.left_out:,} of them left out" if table.left_out else ""
        watch.say(f"{table.name}: {table.rows:,} rows{left_out}, {table.x.shape[1]} features")
    remember(Path(out), tables, data, schema, format)
    return train(config, Path(out), watch)


def train(config: MetaConfig, out: Path, watch: Watch) -> Path:
    """Train as configured, write the meta-test onto the card of the result, say its gains, and return its path."""
    if watch.is_bound and config.method != "gradient":
        raise InputError(
            f"minutes bound trainings by meta-gradients, and {config.name} is also found by search; leave them out."
        )
    is_users = any(map(is_own, parts_of(config.source)))
    tasks, rows = (OWN_TASKS, min(config.rows, meta_test.ROWS)) if is_users else (meta_test.TASKS, None)
    start = starting_point(config)
    if watch.foretells:
        _rehearse(config, start, watch, tasks, rows)
    path = meta_train(config, out, watch)
    if not is_fold(config.name):  # these are for comparisons, and no plan reads their cards
        try:
            meta_test.update(path, tasks, rows)
        except InputError as error:
            watch.say(f"no meta-test of {path}: {error}")
    for line in gained(path, config, start):
        watch.say(line)
    return path


def _rehearse(config: MetaConfig, start: Protector, watch: Watch, tasks: int, rows: int | None) -> None:
    """Meta-test the start, and set aside as much time for testing the result, which needs less compiling."""
    watch.say("preparing: drawing and running test tasks")
    card = {"name": config.name, "config": config.__dict__, "range": {"log_signal": list(config.log_signal)}}
    began = time.monotonic()
    try:
        meta_test.meta_test(checkpoint.Checkpoint(start, card, "", ""), tasks, rows)
    except InputError:
        return  # the test of the result says why
    watch.set_aside(time.monotonic() - began)
