"""A page of everything that a run left in its folder: card, trace, model, encoding, forecast, ledger."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors

from l2p.base.errors import InputError
from l2p.base.whole_folder import MODEL_FILE
from l2p.checkpoints import epsilon_curve, forecast
from l2p.privacy.card import html, plots
from l2p.privacy.card import text as wording
from l2p.privacy.card.card import Card
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.rounded import rounded
from l2p.tables.schema import Category, Column, Ignore, Schema
from l2p.tables.schema.columns import Value
from l2p.tables.schema.names import names_of, text_of

#: Weights that are listed; the others are in the model's file.
LISTED = 20


class Step(NamedTuple):
    """A granted query, as a line of trace.csv has it."""

    step: int
    query: str
    noise_multiplier: float
    clip_norm: float
    spent: float


def render(folder: Path, ledger: Ledger | None = None) -> str:
    """The report on the run in a folder, as one HTML file that needs no script and no network.

    Args:
      ledger: of the run's data set; its runs are then listed in place of those that the card names.

    Raises:
      InputError: the folder holds no card, or a file beside it is none that a run wrote.
    """
    card = Card.from_json(folder / "card.json")
    steps = _steps(folder / "trace.csv")
    content = html.sections(card, steps, card.filter().limit)
    content["Noise and spending"] += plots.clipping(steps or ())
    if ledger is not None:
        content[wording.EARLIER] = ""
        content["Ledger"] = _of_ledger(ledger, card)
    content |= {
        "Model": _of_model(folder / MODEL_FILE),
        "Encoding": _of_schema(folder / "schema.json"),
        "Scores on a test table": _of_scores(folder / "metrics.json"),
        "Forecast, from public facts": _of_forecast(card),
    }
    banner = "" if card.private_release else wording.BANNER
    return html.page("Report of a run", wording.subject(card), wording.headline(card), content, banner)


def _steps(path: Path) -> list[Step] | None:
    """The lines of a trace; None where there is none."""
    if not path.is_file():
        return None
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [
                Step(
                    int(line["step"]),
                    line["query"],
                    float(line["noise_multiplier"]),
                    float(line["clip_norm"]),
                    float(line["spent"]),
                )
                for line in csv.DictReader(file)
            ]
    except (KeyError, TypeError, ValueError) as error:
        raise _not_of_a_run(path, error) from None


def _of_model(path: Path) -> str:
    """Arrays of the model, and of a linear one the weights that are largest."""
    if not path.is_file():
        return ""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
        columns = json.loads(about.get("columns", "[]"))
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise _not_of_a_run(path, error) from None
    shapes = {name: " x ".join(map(str, array.shape)) or "1" for name, array in arrays.items()}
    shown = html.facts(
        "What was trained, and the shapes of the arrays of model.safetensors",
        {"Model": about.get("model", ""), **shapes},
    )
    weights = arrays.get("weights", np.zeros(0))
    if weights.ndim != 1 or not weights.size or len(columns) != len(weights):
        return shown
    largest = np.argsort(-np.abs(weights), kind="stable")[:LISTED]
    caption = f"Weights of features in [0, 1], the largest {len(largest)} of {len(weights)}; noise is in all of them"
    return shown + html.grid(
        caption, ("Feature", "Weight"), ((columns[place], f"{weights[place]:+.4g}") for place in largest), stacked=False
    )


def _of_schema(path: Path) -> str:
    if not path.is_file():
        return ""
    schema = Schema.read(path)
    target = schema.target
    declared = "bounds " + _listed(target.bounds) if target.bounds else "classes " + _listed(target.classes or ())
    rows = [(name, *_declared(name, column)) for name, column in schema.columns.items()]
    return html.grid(
        "How columns become features, as schema.json declares them",
        ("Column", "Declared", "Missing cells", "Features"),
        [*rows, (target.column, f"the target: {declared}", "", "")],
    )


def _declared(name: str, column: Column) -> tuple[str, str, str]:
    """Values, stand-in for missing cells, and number of features of a column."""
    if isinstance(column, Ignore):
        return "ignored", "", "0"
    if isinstance(column, Category):
        values = f"{'ordered ' if column.ordered else ''}category: {_listed(column.values)}"
    else:
        bounds = column.bounds
        values = "number, bounds bought" if bounds == "private" else f"number, bounds {_listed(bounds)}"
        values += "" if column.curve is None else ", as a curve"
    missing = column.missing
    fill = (
        "refused" if missing is None else "an average" if missing.fill is None else f"count as {_short(missing.fill)}"
    )
    return values, fill, str(len(names_of(name, column)))


def _short(fill: Value) -> str:
    """A stand-in for missing cells, a number in six digits."""
    return f"{fill:g}" if isinstance(fill, float) else text_of(fill)


def _listed(values: Sequence[Any]) -> str:
    shown = ", ".join(text_of(value) for value in values[:LISTED])
    return shown if len(values) <= LISTED else f"{shown} and {len(values) - LISTED} more"


def _of_scores(path: Path) -> str:
    """Scores of `l2p apply --test`, which no budget covers."""
    if not path.is_file():
        return ""
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
        numbers = {name: f"{value:.6g}" for name, value in scores.items() if name != "outside_guarantee"}
    except (ValueError, AttributeError) as error:
        raise _not_of_a_run(path, error) from None
    return html.facts("Outside the guarantee: computed on the rows of the test table, without noise", numbers)


def _of_forecast(card: Card) -> str:
    """The forecast for the run's own sizes; empty for what cannot be planned."""
    model, _, classes = card.model.partition(":")
    try:
        outlook = forecast.plan(
            card.num_rows,
            card.num_features,
            card.budget,
            card.model,
            int(classes) if model == "softmax" else None,
            card.protector["name"],
        )
        if outlook.forecasts[0].share is None:
            return ""
        curve = epsilon_curve.curve(outlook, sorted({*epsilon_curve.EPSILONS, card.epsilon}))
    except InputError:  # a model, a method or an accountant of which nothing is foretold
        return ""
    return epsilon_curve.figure(curve, card.epsilon) + html.grid(
        "By epsilon", epsilon_curve.TITLES, epsilon_curve.cells(curve), stacked=False
    )


def _of_ledger(ledger: Ledger, card: Card) -> str:
    """All runs of a ledger, the card's own among them."""
    left = ledger.in_epsilon(ledger.left(), up=False)
    caption = f"{ledger.name}: {ledger.in_epsilon(ledger.limit)} for all runs, {left} left"
    own = None if card.composition is None else card.composition["reservation"]
    return html.grid(caption, ("Run", "Epsilon", "State", "Changed (UTC)", "What"), _runs(ledger, own))


def _runs(ledger: Ledger, own: str | None) -> Iterator[tuple[str, ...]]:
    for run in ledger.entries():
        name = f"{run.id} (this run)" if run.id == own else run.id
        epsilon = rounded(ledger.epsilon(run.counted), up=True)
        yield name, epsilon, run.state, run.changed[:16].replace("T", " "), run.what


def _not_of_a_run(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path} is not as a run leaves it ({error}); name the folder of a run, with its files unchanged."
    )
