"""What a config has to say, and may not say together; refused before anything is trained."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from l2p.data.own import is_own
from l2p.errors import InputError
from l2p.privacy.accountants import for_runs
from meta_train.config.bands import BANDS
from meta_train.constants import parse

if TYPE_CHECKING:
    from meta_train.config import MetaConfig


def check(config: "MetaConfig") -> None:
    """Refuse a field, or fields that exclude one another.

    Raises:
      InputError: it names the field.
    """
    _check_names(config)
    _check_numbers(config)
    _check_values(config)
    for one in config.constants:
        parse(one)
    _check_gains(config)
    _check_together(config)


def _check_names(config: "MetaConfig") -> None:
    choices = {
        "method": ("gradient", "search", "both", "evolution"),
        "estimator": ("backpropagation", "evolution"),
        "objective": ("final", "truncated"),
        "constraint": ("share", "augmented_lagrangian", "soft"),
        "tunes": ("all", "wide", "narrow", "line"),
        "accountant": tuple(one.name for one in for_runs() if one.trains),
    }
    for field, allowed in choices.items():
        if getattr(config, field) not in allowed:
            raise InputError(f"{field} {getattr(config, field)!r} is unknown; choose one of {', '.join(allowed)}.")


def _check_numbers(config: "MetaConfig") -> None:
    counts = ("steps", "rows", "unroll", "eval_every", "tasks", "eval_tasks", "simulated_rows")
    for field in (
        *counts,
        *(name for name in ("coefficients", "num_steps", "directions") if getattr(config, name) is not None),
    ):
        count = getattr(config, field)
        unit = BANDS if field in ("tasks", "eval_tasks") else 1
        if not isinstance(count, int) or count < 1 or count % unit:
            raise InputError(f"{field} is {count!r}, but it is a count; choose a positive multiple of {unit}.")
    if not isinstance(config.gain_rounds, int) or config.gain_rounds < 0:
        raise InputError(f"gain_rounds is {config.gain_rounds!r}, but it is a count; choose 0 or more.")
    for field in ("excess_floor", "ridge", *(() if config.damping is None else ("damping",))):
        if not 0 < getattr(config, field) < math.inf:
            raise InputError(
                f"{field} is {getattr(config, field)!r}, but it has to be positive; choose a number above 0."
            )
    if not 0 < config.delta < 1 / config.simulated_rows:
        raise InputError(
            f"delta is {config.delta!r}, but a guarantee for {config.simulated_rows} simulated rows needs one above 0 "
            f"and below {1 / config.simulated_rows:.1e}."
        )


def _check_values(config: "MetaConfig") -> None:
    """Refuse fields that have the right type but an unusable value."""
    low, high = config.log_signal
    found = {
        "name": (config.name != Path(config.name).name, "it is a file name; leave out folders"),
        "num_features": (
            config.num_features is not None and (not config.num_features or min(config.num_features) < 1),
            "tasks need feature counts from 1 up; list some, or write null for the table's own columns",
        ),
        "num_classes": (
            config.num_classes is not None
            and (len(config.num_classes) != len(config.num_features or ()) or min(config.num_classes) < 2),
            "it needs one number, from 2 up, for each of num_features; list equally many",
        ),
        "sampling_rates": (
            config.sampling_rates is not None
            and (
                len(config.sampling_rates) != len(config.num_features or ())
                or not 0 < min(config.sampling_rates) <= max(config.sampling_rates) < 1
            ),
            "it needs one rate, strictly between 0 and 1, for each of num_features; list equally many",
        ),
        **{
            field: (
                getattr(config, field) is not None and len(getattr(config, field)) != len(config.num_features or ()),
                "it needs one name for each of num_features; list equally many",
            )
            for field in ("sources", "models")
        },
        "directions": (
            config.directions is not None and config.num_features is not None,
            "tasks with drawn columns have no directions in common; set num_features to null",
        ),
        "log_signal": (not low < high, "it is a range; put the lower end first"),
        "signal_power": (
            not 0 < config.signal_power < math.inf,
            "it is a power of numbers from 0 to 1; choose a positive number",
        ),
        "fresh_shares": (
            len(config.fresh_shares) != 2 or not all(0 <= share <= 1 for share in config.fresh_shares),
            "it is a share of tasks at either end of log_signal; write two numbers from 0 to 1",
        ),
        "curriculum": (
            config.curriculum is not None
            and not (0 < config.curriculum <= 1 and config.method == "gradient" and config.constraint == "share"),
            "it is a share of the outer steps, above 0 and up to 1, with method 'gradient' and constraint 'share'; "
            "choose these, or leave it out",
        ),
        "learning_rate": (
            not 0 <= config.learning_rate < math.inf,
            "steps have to go downhill; choose a number from 0 up",
        ),
        "alternate": (
            config.alternate is not None and min(config.alternate) < 1,
            "scheduler and projector need at least one update each; choose positive counts",
        ),
    }
    for field, (is_wrong, why) in found.items():
        if is_wrong:
            raise InputError(f"{field} is {getattr(config, field)!r}, but {why}.")


def _check_gains(config: "MetaConfig") -> None:
    if 0 < config.gain_rounds * config.eval_tasks * _fewest_shapes(config) < 2 * BANDS:
        raise InputError(
            "gains with a single task in a band have no standard error, and they are measured for every source and "
            f"model; choose more gain_rounds, or at least {2 * BANDS} eval_tasks."
        )


def _fewest_shapes(config: "MetaConfig") -> int:
    """How many shapes the source and model with the fewest has."""
    kinds = [(config.source_of(shape), shape.model) for shape in set(config.shapes)]
    return min(map(kinds.count, kinds))


def _check_together(config: "MetaConfig") -> None:
    if config.estimator == "evolution" and config.objective == "truncated":
        raise InputError(
            "estimator 'evolution' compares whole runs of perturbed protectors, and a segment would continue a run "
            "without that perturbation; choose objective 'final'."
        )
    if config.fresh_rows and (config.objective != "final" or config.constraint == "soft"):
        raise InputError(
            "fresh_rows is for runs that are scored at their end, and these are scored along the way; choose "
            "objective 'final' and a constraint other than 'soft'."
        )
    if config.method == "evolution" and not all(map(is_own, config.all_sources)):
        raise InputError(
            "method 'evolution' is for tables of a user's own, which --data names; choose 'gradient', or estimator "
            "'evolution'."
        )
    searches = config.method in ("search", "both")
    of_one = config.directions is not None or config.unseen is not None or searches
    if config.sources is not None and of_one:
        raise InputError(
            "directions, unseen classes and a search are of tasks from one source; leave these out, or sources."
        )
    if config.unseen is not None and not config.fresh_rows:
        raise InputError("unseen classes need runs that are scored on fresh_rows; set fresh_rows, or leave unseen out.")
    if config.adds and (config.warm_start is None or config.method != "gradient" or config.constants):
        raise InputError(
            f"with tunes {config.tunes!r} all else stays as it was trained; name a warm_start to take it from, and "
            "leave out constants and a search, which would change it."
        )
    if config.method == "both" and config.constraint != "share":
        raise InputError(
            f"constraint {config.constraint!r} is not supported by random search, so the two "
            "cannot be compared; choose method 'gradient'."
        )
