"""Tuning of a hand-designed method: fields derived from method, model and source, and the rows of `tuned.toml`."""

import functools
import tomllib
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError
from l2p.checkpoints.lookup import tuned_name
from l2p.models import find_model, plain_name
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import default_accountant
from l2p.protectors import HAND_DESIGNED
from l2p.tables.public import catalog
from meta_train.config import Comparison, MetaConfig
from meta_train.config.base import KIND
from meta_train.recipes import files
from meta_train.tasks.quadratics import QUADRATICS
from meta_train.tasks.synthetic import SYNTHETIC
from meta_train.training.untrained import BUILDERS

#: The name of this recipe, which takes a method, a model and a source.
RECIPE = "tuned"
FILE = Path(__file__).with_name("tuned.toml")
#: Image tables: their tasks keep every column, and there are fewer tasks per step so that it takes about as long.
IMAGES = ("mnist", "digits")
#: Feature counts of tasks from other tables, up to the table's number of columns. Each is compiled separately.
FEATURE_COUNTS = (8, 32, 104)
#: Feature counts of random quadratic problems.
QUADRATIC_COUNTS = (5, 20)
#: Maximum steps of a run while tuning, to limit the time it takes (AGD runs until its budget ends).
MAX_STEPS = 256
#: Number of held-out evaluations in a training.
EVALUATIONS = 8
#: `Descent.damping` where the loss is not convex.
DAMPING = 1.0


def config_for(method: str, model: str, source: str) -> MetaConfig:
    """The config that tunes a method on a public set, as for the checkpoint METHOD-tuned-MODEL-SOURCE if one ships.

    The accountant is the default one of the method's runs.

    Raises:
      InputError: there is no such method, model or source.

    >>> config_for("dpsgd", "logistic", "breast_cancer").simulated.accountant
    'rdp'
    """
    if method not in HAND_DESIGNED:
        raise InputError(f"method {method!r} is not hand-designed; choose one of {', '.join(HAND_DESIGNED)}.")
    row = _file()["names"].get(model, {}).get(source, {}).get(method, {})
    values = {**_file()["defaults"], **row}
    fields = {**_derived(method, model, source), "eval_every": max(1, values["steps"] // EVALUATIONS), **values}
    if values[KIND] == Comparison.kind:
        is_convex = find_model(model, None if ":" in model else 2).convex
        fields |= {"damping": None if is_convex else DAMPING, **_file()[Comparison.kind], **row}
    return files.from_fields({name: value for name, value in fields.items() if value is not None}, FILE)


def rows() -> dict[str, tuple[str, str, str]]:
    """Method, model and source of every row of `tuned.toml`, by the name of its checkpoint."""
    return {
        tuned_name(method, plain_name(model), source): (method, model, source)
        for model, sources in _file()["names"].items()
        for source, methods in sources.items()
        for method in methods
    }


def feature_counts(source: str) -> list[int]:
    """`FEATURE_COUNTS` of a table, or its number of columns where it has fewer than any; `QUADRATIC_COUNTS`."""
    if source == QUADRATICS:
        return list(QUADRATIC_COUNTS)
    if source.startswith(SYNTHETIC):
        return list(FEATURE_COUNTS)
    if source in _file()["num_features"]:
        return _file()["num_features"][source]
    columns = catalog.load(source).x.shape[1]
    return [count for count in FEATURE_COUNTS if count <= columns] or [columns]


def _derived(method: str, model: str, source: str) -> dict[str, Any]:
    """Fields that follow from the three; None where nothing follows."""
    design = HAND_DESIGNED[method]
    at_one = design(Budget(1.0, 1e-8), find_model(model, None if ":" in model else 2), 30_000)
    images = source.split(":")[0] in IMAGES
    return {
        "name": tuned_name(method, plain_name(model), source),
        "protector": method,
        "source": source,
        "model": model,
        # These have a better starting point of their own: it averages, or takes few steps.
        "coefficients": None if method in BUILDERS else 3,
        "num_steps": MAX_STEPS if at_one.num_steps > MAX_STEPS else None,
        "tasks": 8 if images else 16,
        "num_features": "null" if images else feature_counts(source),
        "accountant": design.accountant or default_accountant(at_one.mechanisms, at_one.sampler),
    }


@functools.cache
def _file() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
