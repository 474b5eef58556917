"""`l2p plan`: a forecast for a budget, before anything is spent."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from l2p.base.errors import InputError
from l2p.commands.warn import warn

if TYPE_CHECKING:
    from l2p.checkpoints.forecast import Forecast, Outlook

NOISE = (
    "Noise is the standard deviation of the noise on the mean of all rows, each of norm at most 1, if the whole budget "
    "were spent on that mean."
)


@dataclasses.dataclass(frozen=True)
class PlanCommand:
    """Say what a budget buys on a table of your size; no row is read."""

    rows: int
    """Number of rows N of the private table."""
    features: int
    """Number of features."""
    epsilon: float
    """Privacy budget."""
    delta: float
    """Privacy budget, a probability below 1 / number of rows."""
    model: str | None = None
    """The model to train: logistic, svm, hinge, softmax, mlp, square or quadratic; default softmax with three
    --classes or more, else logistic."""
    classes: int | None = None
    """Number of classes of the target; for softmax, and for square where the target is one of two classes."""
    majority: float | None = None
    """Share of the commonest class, as far as it is publicly known: uneven classes gain less. Without it the range
    is from one class with 95 % of the rows, its low end, to even classes, its high end."""
    protector: str | None = None
    """Plan for another protector than the model's default; a name, file or mypackage:MyProtector."""
    adjacency: Literal["zero_out", "add_remove", "replace_one"] = "zero_out"
    """The tables that count as neighbours."""
    curve: bool = False
    """Also print the forecast for epsilons from .01 to 10."""
    out: Path | None = None
    """With --curve: a page to draw it on, such as plan.html."""
    all: bool = False
    """Print a table of all protectors for this model, and how to read it."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        """Print the forecast."""
        from l2p.checkpoints.defaults import MODEL_OF
        from l2p.checkpoints.epsilon_curve import curve
        from l2p.checkpoints.forecast import plan
        from l2p.privacy.budget import Budget
        from l2p.privacy.events import Adjacency

        if self.out is not None and (self.json or not self.curve):
            raise InputError("--out is the page of the curve over epsilon; add --curve, and leave out --json.")
        # Budget takes an adjacency's name, and refuses an unknown one with a sentence.
        budget = Budget(self.epsilon, self.delta, cast(Adjacency, self.adjacency))
        model = self.model or MODEL_OF["multiclass" if (self.classes or 2) > 2 else "binary"]
        outlook = plan(self.rows, self.features, budget, model, self.classes, self.protector, self.majority)
        forecasts = curve(outlook) if self.curve else {}
        if self.json:
            content: dict[str, Any] = dataclasses.asdict(outlook)
            if forecasts:
                content["curve"] = {epsilon: dataclasses.asdict(point) for epsilon, point in forecasts.items()}
            print(json.dumps(content, indent=1, allow_nan=False))
            return 0
        for line in _report(outlook, default=self.protector is None):
            print(line)
        if forecasts:
            _print_curve(outlook, forecasts)
        if self.out is not None:
            _write_curve(outlook, forecasts, self.out)
        if self.all:
            _print_table(outlook)
        warn(outlook.warnings)
        return 0


def _report(outlook: "Outlook", default: bool) -> list[str]:
    """The forecast of the first protector, in at most six lines of at most 80 columns."""
    from l2p.privacy.rounded import rounded

    first = outlook.forecasts[0]
    why = f" (the default for {outlook.model})" if default else ""
    report = [f"protector  {first.name}{why}, accountant {first.accountant}"]
    if first.share is None:
        report.append("gain       not measured; try l2p compare on public data like yours")
    else:
        low, median, high = (round(100 * value) for value in first.share)
        report.append(f"gain       {median} % of what training without privacy gains in test loss over the")
        report.append(f"           best constant; {low} to {high} % in 8 of 10 runs on tables it never saw")
        if outlook.classes is not None and outlook.majority is None:
            report.append("           (low end: one class of 95 %; high end: even ones; see --majority)")
    if first.least_epsilon is not None:
        more = f", or {first.least_rows:,} rows for this epsilon" if first.least_rows else ""
        report.append(f"enough     epsilon {rounded(first.least_epsilon, up=True)} for {outlook.rows:,} rows{more}")
    report.append(f"noise      {first.noise:.2g} on the mean of all rows, were everything spent on it")
    return report


def _print_curve(outlook: "Outlook", forecasts: "dict[float, Forecast]") -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from l2p.checkpoints import epsilon_curve

    table = Table(*epsilon_curve.TITLES, title=_subject(outlook), box=SIMPLE, pad_edge=False)
    for cells in epsilon_curve.cells(forecasts):
        table.add_row(*cells)
    print()
    Console().print(table)


def _write_curve(outlook: "Outlook", forecasts: "dict[float, Forecast]", out: Path) -> None:
    """Write the page of a forecast over epsilon."""
    from l2p.checkpoints import epsilon_curve
    from l2p.privacy.card import html

    subject = f"{_subject(outlook)}, {outlook.budget.adjacency} neighbours, by {outlook.recommended}."
    content = {
        "Gain": epsilon_curve.figure(forecasts, outlook.budget.epsilon),
        "Figures": html.grid(
            "Forecast by epsilon", epsilon_curve.TITLES, epsilon_curve.cells(forecasts), stacked=False
        ),
        "How to read them": html.bullets([epsilon_curve.ODDS, NOISE, *outlook.notes]),
    }
    try:
        out.write_text(html.page("Forecast", subject, "What does each epsilon buy?", content), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out} cannot be written ({error.strerror}); name another --out.") from None
    print(f"written to {out}")


def _subject(outlook: "Outlook") -> str:
    """The model, the table's size and delta."""
    return f"{outlook.model} on {outlook.rows:,} rows x {outlook.features:,} features, delta {outlook.budget.delta:g}"


def _print_table(outlook: "Outlook") -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Column, Table

    title = f"{outlook.model} on {outlook.rows:,} rows x {outlook.features:,} features, {outlook.budget}"
    columns = ("log(mu N),\nnoise", "share of the\ngain, %", "epsilon to beat\nthe constant")
    table = Table(Column("protector,\naccountant", overflow="fold"), *columns, title=title, box=SIMPLE, pad_edge=False)
    fitting = [forecast for forecast in outlook.forecasts if forecast.fits_features]
    for forecast in fitting:
        table.add_row(*_cells(forecast))
    print()
    Console().print(table)
    misfits = [forecast.name for forecast in outlook.forecasts if not forecast.fits_features]
    left_out = [f"Made for other numbers of features: {', '.join(misfits)}."] if misfits else []
    for line in [*left_out, NOISE, *outlook.notes]:
        Console().print(line, markup=False, highlight=False)


def _cells(forecast: "Forecast") -> list[str]:
    from l2p.privacy.rounded import rounded

    least = forecast.least_epsilon
    return [
        f"{forecast.name}\n{forecast.accountant}",
        f"{forecast.log_signal:.2f}\n{forecast.noise:.2g}",
        _triple(forecast.share),
        "not measured" if forecast.share is None else "never" if least is None else rounded(least, up=True),
    ]


def _triple(values: tuple[float, ...] | None) -> str:
    """The median, with the range below it."""
    if values is None:
        return "not\nmeasured"
    low, median, high = (round(100 * value) for value in values)
    return f"{median}\n{low} to {high}"
