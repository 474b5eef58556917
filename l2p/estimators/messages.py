"""Warnings and refusals of estimators."""

import contextlib
import warnings
from collections.abc import Iterator

import numpy as np

from l2p.base.errors import InputError, alone

#: Where neither bounds nor a schema are given, all numbers count as lying between these, which do not depend on rows.
#: Numbers that are standardised by public means and deviations mostly do; others are clipped.
DEFAULT_BOUNDS = (-5.0, 5.0)
#: Where messages of scikit-learn begin to quote a table, and what to say instead.
_QUOTES = {
    "\narray=": " X has a row per record and a column per feature. Reshape your data.",
    "Complex data not supported\n": "Complex data not supported: cells are real numbers; leave out what is not.",
}


class PrivacyLeakWarning(UserWarning):
    """Something was read off private rows that the budget does not pay for."""


class DefaultBoundsWarning(UserWarning):
    """Bounds were not declared, so a default pair that knows nothing of the table took their place."""


class NothingLearnedWarning(UserWarning):
    """The fit was charged, and its model holds nothing that its steps learned."""


class RepeatedFitWarning(UserWarning):
    """Several fits of one estimator or of its clones, each of which spends a budget of its own."""


class SimulationWarning(UserWarning):
    """A fit whose noise can be reproduced, so that it protects nobody."""


@contextlib.contextmanager
def unquoted() -> Iterator[None]:
    """Messages of scikit-learn and NumPy on a refused table without the cells that they quote."""
    with alone():
        try:
            yield
        except ValueError as error:
            message = str(error)
            if "could not convert" in message:
                raise InputError(
                    "X holds cells that are not numbers, which only a schema says how to read; pass schema=, or encode "
                    "them first."
                ) from None
            for quotes, instead in _QUOTES.items():
                if quotes in message:
                    raise InputError(message.partition(quotes)[0] + instead) from None
            raise


def present_labels(y: np.ndarray) -> np.ndarray:
    """The labels that private rows hold."""
    labels = np.unique(y)
    if len(labels) < 2:
        raise InputError(
            "the labels are of one class, so there is nothing to tell apart; declare all classes (classes=), or check "
            "the table."
        )
    warnings.warn(
        "classes are not declared and are read off the labels, which the budget does not pay for: whether some person "
        "has a rare label may be told; declare them (classes=).",
        PrivacyLeakWarning,
        stacklevel=3,
    )
    return labels


def warn_of_default_bounds(name: str, remedy: str) -> str:
    """Warn that the default bounds took the place of declared ones, and return the card's sentence on it."""
    low, high = DEFAULT_BOUNDS
    warnings.warn(
        f"{name} have no declared bounds, so they count as lying in [{low:g}, {high:g}] and are clipped to it; declare "
        f"{remedy} from public knowledge, or a schema.",
        DefaultBoundsWarning,
        stacklevel=4,
    )
    return (
        f"No bounds of {name} were declared; [{low:g}, {high:g}], which knows nothing of the table, took their place."
    )


def unreadable_rows() -> InputError:
    """The refusal of rows that have no prediction."""
    return InputError(
        "X has rows that cannot be read (a cell is missing where the schema lets nothing stand in for it, infinite or "
        "no number), and scikit-learn knows no empty prediction; correct them, declare what stands in for missing "
        "cells, or use result_.predict, which leaves such rows empty."
    )
