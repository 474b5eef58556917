"""The methods of a comparison that names none: those that fit its table and model, and why the others are left out."""

import dataclasses

from l2p.base.errors import InputError
from l2p.checkpoints.checkpoint import first_floor, load, names
from l2p.checkpoints.control import control_of
from l2p.checkpoints.defaults import UNIVERSAL
from l2p.checkpoints.method_name import TUNED
from l2p.checkpoints.overlaps import overlaps
from l2p.compare import relative
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import identity, kind_of, model_of, resolve_methods
from l2p.compare.standings import PAIR
from l2p.models import plain_name
from l2p.task.rows import Rows

#: Beside the learned methods: AGD, which the pair is made to beat, the strongest hand-designed rivals, two references.
HAND_DESIGNED = (
    "agd",
    *(name + TUNED for name in ("agd", "noisygd", "noisygd_mean", "dp_fc")),
    relative.NONPRIVATE,
    relative.CONSTANT,
)


def candidates(config: CompareConfig) -> list[str]:
    """The methods that a comparison has by default, if they fit; the first is what the others are compared with.

    >>> from pathlib import Path
    >>> candidates(CompareConfig("ipums_br", Path("cmp")))[:4]
    ['universal', 'control-universal', 'paper-adult', 'agd']
    """
    control = control_of(load(UNIVERSAL).card)
    pair = _pair(plain_name(str(model_of(config))), identity(config))
    learned = [UNIVERSAL, None if control is None else control.name, pair]
    return [*(name for name in learned if name is not None), *HAND_DESIGNED]


def _pair(model: str, data: str) -> str | None:
    """The shipped pair of LSTMs for a model that was not made from the data, one for users if there is; else None."""
    shipped = [*first_floor(), *names()]
    cards = ((name, load(name).card) for name in shipped if name.startswith(PAIR))
    return next(
        (
            name
            for name, card in cards
            if model in card["models"] and not any(overlaps(source, (data,)) for source in card["sources"])
        ),
        None,
    )


def with_methods(config: CompareConfig, rows: Rows) -> tuple[CompareConfig, list[str]]:
    """The comparison with its default methods if it names none, and a sentence on each that was left out.

    A method is left out if it runs at none of the budgets; a pair of LSTMs, which has no stand-in, also where it
    was made for other tables.
    """
    if config.methods:
        return config, []
    reasons = {name: _reason(name, config, rows) for name in candidates(config)}
    fitting = tuple(name for name, reason in reasons.items() if not reason)
    sentences = [f"{name} is left out: {reason}" for name, reason in reasons.items() if reason]
    if not any(name.startswith(PAIR) for name in reasons):
        sentences.append(f"a pair of LSTMs is left out: none that fits ships for model {config.model}.")
    return dataclasses.replace(config, methods=fitting), sentences


def _reason(name: str, config: CompareConfig, rows: Rows) -> str:
    """The reason why a method does not belong into a comparison; empty if it does."""
    try:
        (method,) = resolve_methods(dataclasses.replace(config, methods=(name,)), rows)
    except InputError as error:
        return str(error)
    reasons = []
    for budget in method.protectors:
        try:
            note = method.prepare(budget, model_of(config), rows, kind_of(config)).note
        except InputError as error:
            note = str(error)
        else:
            note = note if name.startswith(PAIR) else ""
        if not note:
            return ""
        reasons.append(note)
    return reasons[0]
