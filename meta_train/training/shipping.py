"""The checkpoint that a training ends with, and its card: what it was made of, and for what."""

import platform
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from l2p.checkpoints import checkpoint
from l2p.checkpoints.other_tables import ELSEWHERE
from l2p.privacy.accountants import find
from l2p.run.protector import Protector
from meta_train.config import Addition, MetaConfig
from meta_train.tasks.own_tables import card_entries
from meta_train.training.deviations import deviations

#: A protector that is fine-tuned on a user's tables serves tables of up to so many times their columns, or that
#: fraction of them, as far as its start does.
REACH = 2


def made_for(config: MetaConfig, counts: tuple[int, ...], warm: checkpoint.Checkpoint | None) -> list[int]:
    """Numbers of columns that a protector is made for: those it was trained on.

    One that is fine-tuned on a user's tables was first trained on many more, and reaches beyond theirs within those.
    What is tuned for wide or very wide tables alone serves all others as before, and steps along the line serve what
    their start does.
    """
    # Tasks of a user's tables are filled up with columns of zeros, or have some of very many.
    counts = tuple(table["features"] for table in card_entries(config.tasks.all_sources)) or counts
    low, high = min(counts), max(counts)
    start = None if warm is None else warm.card["range"].get("num_features")
    if start is not None and isinstance(config, Addition):
        return [start[0], high if config.learner.tunes in ("wide", "very_wide") else start[1]]
    return [low, high] if start is None or not config.tasks.are_own else _reach((low, high), start)


def _reach(trained: Sequence[int], start: Sequence[int]) -> list[int]:
    """Ends of a range around those of a user's tables, as far as the start's range goes."""
    low, high = min(trained), max(trained)
    return [min(low, max(start[0], low // REACH)), max(high, min(start[1], high * REACH))]


def _classes_of(config: MetaConfig, warm: checkpoint.Checkpoint | None) -> tuple[int, ...]:
    """Numbers of classes that it was trained on, if the config lists several; none where its model says it."""
    tasks = config.tasks
    if not tasks.lends:
        return tuple(shape.num_classes for shape in tasks.shapes if shape.num_classes is not None)
    trained = tuple(len(tasks.find_model(shape).labels) for shape in tasks.shapes)
    start = () if warm is None else warm.card["range"].get("num_classes", ())
    if tasks.are_own:
        return () if max(trained) <= 2 else tuple(_reach(trained, start)) if start else trained
    return (*start, *trained) if isinstance(config, Addition) else trained


def models_of(config: MetaConfig, warm: checkpoint.Checkpoint | None) -> list[str]:
    """Models that it trains."""
    before = warm.card["models"] if warm is not None and isinstance(config, Addition) else []
    return list(dict.fromkeys([*before, *config.tasks.all_models]))


def ship(
    config: MetaConfig, out: Path, protector: Protector, report: dict[str, Any], seconds: float, counts: tuple[int, ...]
) -> Path:
    """Write the frozen protector with its card."""
    path = out / f"{config.name}{checkpoint.SUFFIX}"
    start, tasks, accountant = config.start.warm_start, config.tasks, config.simulated.accountant
    warm = None if start is None else checkpoint.load(start)
    low, high = tasks.log_signal
    classes = _classes_of(config, warm) if tasks.reads_features else ()
    listed = {"num_classes": classes, "sampling_rate": tasks.rates}
    card = {
        "name": config.name,
        "models": models_of(config, warm),
        # The sources of the starting point are sources of this protector, too.
        "sources": sorted({*tasks.all_sources, *(warm.card["sources"] if warm else ())}),
        "warm_start_arrays_sha256": None if warm is None else warm.arrays_sha256,
        # Named if it is the constraint's unit or a method's own; otherwise runs take the tightest there is.
        "accountant": accountant if find(accountant).binds else None,
        "range": {
            "log_signal": [low, high],
            **({"num_features": made_for(config, counts, warm)} if tasks.reads_features else {}),
            **{name: [min(values), max(values)] for name, values in listed.items() if values},
        },
        "budgets": f"every (epsilon, delta) and N with log(mu N) in [{low}, {high}]",
        "seed": config.outer.seed,
        "command": f"l2p meta-train --like {config.name} --out OUT",
        "config": config.flat(),
        # Beside what names them: whoever asks whether a table of theirs was among them needs the whole SHA-256.
        **({"tables": tables, "elsewhere": ELSEWHERE} if (tables := card_entries(tasks.all_sources)) else {}),
        **({"deviations": sentences} if (sentences := deviations(config, protector)) else {}),
        "held_out": report,
        "seconds": round(seconds, 1),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "platform": f"{platform.machine()}, {jax.default_backend()}",
    }
    checkpoint.save(protector, path, card)
    return path
