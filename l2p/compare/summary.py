"""A comparison for people: tables on the terminal, the same in summary.md, and figure.svg."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from l2p.base import drawing
from l2p.compare import relative, results, standings
from l2p.compare.config import CompareConfig
from l2p.compare.figures import against_epsilon
from l2p.compare.inputs import title_of
from l2p.compare.wins import headline
from l2p.models import find_model

Cells = Mapping[str, Mapping[float, object]]


def report(rows: list[results.Row], config: CompareConfig, missing: str = "") -> None:
    """Print the tables, and write them to `config.out` as summary.md beside figure.svg.

    Args:
      rows: of results.csv.
      config: the comparison.
      missing: a sentence on missing cells.
    """
    kinds = standings.kinds(rows, config.adjacency)
    metric = results.metric_of(rows)
    private = standings.competing(rows, config.adjacency, metric)
    verdicts = [verdict.sentence(metric) for verdict in standings.verdicts(private, metric)]
    tables, printed = _tables(rows, metric, private)
    tables = {
        title: {standings.marked(m, kinds[m]): estimates for m, estimates in cells.items()}
        for title, cells in tables.items()
    }
    for title in printed:
        Console().print(_rich(title, tables[title]))
    notes = [missing] if missing else []
    notes += [*results.hold_outs(rows), *_notes(rows)]
    legend = standings.legend(kinds.values(), config.adjacency)
    for line in (*legend, *verdicts, *notes):
        Console().print(line, markup=False, highlight=False)
    # The name in the results, where `softmax` of a config is `softmax:10`, for example.
    _write(config, str(rows[0]["model"]), tables, verdicts, legend, notes)
    excess = relative.excess_loss(rows)
    panels = {relative.LABEL: excess} if excess else {"test loss": results.by_method(rows, "test_loss")}
    panels[metric.label] = results.by_method(rows, metric.column)
    references = tuple(method for method, kind in kinds.items() if kind == "reference")
    figure = against_epsilon(
        panels, headline(rows, config.adjacency), references, title_of(config, str(rows[0]["model"]))
    )
    drawing.save(figure, config.out / "figure.svg")


def _notes(rows: list[results.Row]) -> list[str]:
    """The notes of rows, each once, with its methods and budgets, without those on hold-outs.

    >>> row = {"note": "Far out.", "epsilon": 0.1}
    >>> _notes([{"method": "agd"} | row, {"method": "paper"} | row, {"method": "sgd", "note": "", "epsilon": 1.0}])
    ['agd, paper at epsilon 0.1: Far out.']
    """
    epsilons: dict[tuple[str, str], set[float]] = {}
    for row in rows:
        _, note = results.split_note(row["note"])
        if note:
            epsilons.setdefault((note, row["method"]), set()).add(row["epsilon"])
    methods: dict[tuple[str, tuple[float, ...]], list[str]] = {}
    for (note, method), budgets in sorted(epsilons.items()):
        methods.setdefault((note, tuple(sorted(budgets))), []).append(method)
    return [
        f"{', '.join(names)} at epsilon {', '.join(f'{epsilon:g}' for epsilon in budgets)}: {note}"
        for (note, budgets), names in sorted(methods.items(), key=lambda item: (item[1], item[0][1]))
    ]


def _tables(
    rows: list[results.Row], metric: results.Metric, private: results.BySeed
) -> tuple[dict[str, Cells], list[str]]:
    """Tables by title, and the titles of those that a terminal shows."""
    label = metric.label.capitalize()
    means = f"{label} (mean ± standard error)"
    tables: dict[str, Cells] = {means: results.by_method(rows, metric.column)}
    losses = {"train_loss": f"Train {_loss(rows)}", "test_loss": f"Test {_loss(rows)}"}
    if any(row[results.AUC.column] is not None for row in rows):  # older results have none
        losses[results.AUC.column] = "Test AUC"
    tables |= {f"{title} (mean ± standard error)": results.by_method(rows, name) for name, title in losses.items()}
    printed = [means]
    first, *rest = tables[means]
    if rest:
        paired = f"{label} minus that of {first}, by seed (mean ± standard error)"
        tables[paired] = results.against_first(rows, metric.column)
        won = f"Share of seeds on which a method beats {first} (ties count half; p of a two-sided sign test)"
        tables[won] = standings.share_won(rows, metric)
        printed.append(paired)
    if len(private) > 1:
        tables["Seeds on which a private method is the best of all that were scored"] = standings.times_best(
            private, metric
        )
    return tables, printed


def _loss(rows: Sequence[results.Row]) -> str:
    """The name of the model's loss."""
    return "log loss" if find_model(rows[0]["model"]).gives_probabilities else "loss"


def _header_and_body(cells: Cells) -> tuple[list[str], list[list[str]]]:
    """Header and body of a table: methods down, epsilons across."""
    epsilons = sorted({epsilon for estimates in cells.values() for epsilon in estimates})
    body = [
        [method, *(str(estimates.get(epsilon) or "–") for epsilon in epsilons)] for method, estimates in cells.items()
    ]
    return ["method", *(f"ε = {epsilon:g}" for epsilon in epsilons)], body


def _rich(title: str, cells: Cells) -> Table:
    header, body = _header_and_body(cells)
    table = Table(*header, title=title)
    for line in body:
        table.add_row(*line)
    return table


def markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table as Markdown writes it."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *body])


def _write(
    config: CompareConfig,
    model: str,
    tables: Mapping[str, Cells],
    verdicts: list[str],
    legend: list[str],
    notes: list[str],
) -> None:
    parts = [
        f"# {', '.join(config.methods)} on {config.data}",
        f"Model {model}, δ = {config.delta:g}, {config.adjacency} adjacency, {config.seeds} seeds; a seed fixes "
        "split and noise for every method. These are simulations with reproducible noise, scored on data outside any "
        "guarantee: nothing here is a private release. Every run is in results.csv.",
        "![Test loss and the metric against epsilon](figure.svg)",
    ]
    if verdicts:
        parts += ["## Who wins", "\n".join(f"- {line}" for line in verdicts)]
    for title, cells in tables.items():
        parts += [f"## {title}", markdown(*_header_and_body(cells))]
    parts += [" ".join(legend)] if legend else []
    if notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in notes)]
    config.out.mkdir(parents=True, exist_ok=True)
    Path(config.out, "summary.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
