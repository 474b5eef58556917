"""Meta-training on a user's own public tables, and every training's way from a config to a judged checkpoint."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError
from l2p.checkpoints.control import constants_checkpoint
from l2p.checkpoints.defaults import UNIVERSAL
from l2p.checkpoints.folds import is_fold
from l2p.tables.reading import Format
from l2p.tables.schema import Schema
from meta_train import planning
from meta_train.config import Comparison, MetaConfig, OwnTables, Search
from meta_train.evaluation import meta_test
from meta_train.evaluation.gained import gained
from meta_train.recipes import files, own
from meta_train.recipes.remembered import check_same, remember
from meta_train.tasks import own_tables
from meta_train.training.loop import meta_train
from meta_train.training.saved import CONFIG
from meta_train.training.starting_points import starting_point
from meta_train.training.watch import Watch, to_stderr

#: Tasks per feature count in the meta-test of a protector that is made from a user's tables.
OWN_TASKS = 8
#: A sentence on every table that is trained on.
PUBLIC = (
    "these tables count as public: nothing that is learned from them is private, so name none that has to be protected"
)


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

    Of every table four rows in five make tasks to train on. Runs on the others, which no training reads, measure the
    gain over the start by log(mu N): where there is a gain the new protector runs, and elsewhere the start. A training
    that is in `out` already goes on.

    Args:
      data: public tables: files, DataFrames or other sources that `l2p.tables.reading.open_table` takes; with targets
        of any kinds.
      schema: one for each of them: a `Schema` or its JSON file.
      out: folder for the checkpoint and the state to resume from.
      start: `universal` or another shipped protector; with `control-` before it, networks are trained anew on top of
        its constants.
      minutes: that all of it may take; None for as many steps as the start's own training took. In few minutes
        constants are trained alone, or tables of some kinds are left out, with a line on it.
      format: how text files are laid out.
      say: called with lines on progress and gains.

    Returns:
      Path of `out/START-own.safetensors`, which `--protector` and `private_train(protector=...)` take.

    Raises:
      InputError: before anything is compiled, for a table or schema that cannot be read or does not fit the start, or
        minutes that leave no time to train.

    For instance::

        path = meta_train.fine_tune(["a.csv", "b.csv"], ["a.json", "b.json"], out="mine", minutes=10)
        l2p.private_train(rows, str(path), budget)
    """
    watch, out = Watch(minutes, foretells=True, say=say), Path(out)
    if len(data) != len(schema):
        raise InputError(
            f"{len(data)} tables and {len(schema)} schemas are given, and they go in pairs; name one schema for each."
        )
    tables = [
        own_tables.read(table, declared, f"table-{place}", format)
        for place, (table, declared) in enumerate(zip(data, schema, strict=True), 1)
    ]
    fresh = own.config_for(start, tables)
    for table in tables:
        own_tables.keep(table)
        left_out = f", {table.left_out:,} of them left out" if table.left_out else ""
        watch.say(f"{table.name}: {table.rows:,} rows{left_out}, {table.x.shape[1]} features")
    watch.say(PUBLIC)
    check_same(out, tables, start)
    if (out / CONFIG).exists():
        config = files.read(out / CONFIG)
    elif watch.is_bound:
        config = _within(fresh, watch)
    else:
        config = fresh
    remember(out, tables, data, schema, format, start)
    return train(config, out, watch)


def _within(config: OwnTables, watch: Watch) -> MetaConfig:
    """The config for the time that the watch bounds: networks, or constants alone; `InputError` if it is too short."""
    minutes, constants = watch.all / 60.0, own.constants_of(config)
    first = {shape.model: shape.num_features or 0 for shape in reversed(config.shapes)}
    watch.slowness = planning.slowness()
    networks = planning.has_networks(list(first.values()), minutes, watch.slowness, constants is not None)
    if not networks and constants is not None:
        watch.say(
            f"{minutes:g} minutes do for constants alone, without networks: those of "
            f"{constants_checkpoint(constants.start.warm_start).card['name']} are the start"
        )
        return constants.but(steps=planning.steps_for(minutes))
    return config.but(steps=planning.steps_for(minutes))


def train(config: MetaConfig, out: Path, watch: Watch) -> Path:
    """Train as configured, write the meta-test onto the card of the result, say its gains, and return its path."""
    if watch.is_bound and isinstance(config, (Search, Comparison)):
        raise InputError(
            f"minutes bound trainings by meta-gradients, and {config.name} is also found by search; leave them out."
        )
    is_users = config.tasks.are_own
    if watch.is_bound:
        watch.slowness = planning.slowness()
        widths = [shape.num_features or planning.WIDTHS[-1] for shape in config.shapes]
        if not (out / CONFIG).exists() and not is_users:
            planning.has_networks(widths[:1], watch.all / 60.0, watch.slowness, constants=False)
    tested = not is_fold(config.name) and not (is_users and config.tasks.num_models > 1)
    testing = planning.META_TEST * len(set(config.shapes))
    if tested and watch.slowness * testing <= planning.MOST_TESTING * watch.all < math.inf:
        watch.set_aside(watch.slowness * testing)
    start = starting_point(config)
    path = meta_train(config, out, watch)
    if tested and watch.slowness * testing <= watch.left:  # folds are for comparisons, and no plan reads their cards
        tasks, rows = (OWN_TASKS, min(config.tasks.rows, meta_test.ROWS)) if is_users else (meta_test.TASKS, None)
        try:
            meta_test.update(path, tasks, rows)
        except InputError as error:
            watch.say(f"no meta-test of {path}: {error}")
    elif tested:
        watch.say("for lack of time there is no meta-test, by which l2p plan foretells accuracies")
    for line in gained(path, files.read(out / CONFIG) if (out / CONFIG).exists() else config, start):
        watch.say(line)
    return path
