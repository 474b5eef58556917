"""A comparison for people: tables on the terminal, the same in summary.md, and figure.png."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from l2p import results
from l2p.compare_config import CompareConfig
from l2p.figures import against_epsilon
from l2p.results import Estimate

_LABELS = {
    "test_accuracy": "Test accuracy",
    "test_mse": "Test mean squared error",
    "train_loss": "Train loss",
    "test_loss": "Test loss",
}
Cells = Mapping[str, Mapping[float, Estimate | None]]


def report(rows: list[results.Row], config: CompareConfig) -> None:
    """Print the tables, and write them to `config.out` as summary.md beside figure.png."""
    first = config.methods[0]
    # What a test says: accuracy, or the squared error of a regression.
    test = "test_mse" if any(row["test_mse"] is not None for row in rows) else "test_accuracy"
    labels = {metric: _LABELS[metric] for metric in (test, "train_loss", "test_loss")}
    tables = {f"{label} (mean ± standard error)": results.by_method(rows, metric) for metric, label in labels.items()}
    if len(config.methods) > 1:
        title = f"{labels[test]} minus that of {first}, by seed (mean ± standard error)"
        tables[title] = results.against_first(rows, test)
    notes = sorted({f"{row['method']} at epsilon {row['epsilon']:g}: {row['note']}" for row in rows if row["note"]})
    for title in (next(iter(tables)), *list(tables)[len(labels) :]):
        Console().print(_rich(title, tables[title]))
    for note in notes:
        Console().print(note, markup=False, highlight=False)
    _write(config, tables, notes, labels[test])
    reference = tuple({row["method"] for row in rows if row["accountant"] == "none"})
    scores, loss = (results.by_method(rows, metric) for metric in (test, "train_loss"))
    against_epsilon(scores, loss, dashed=reference, label=labels[test].lower()).savefig(
        config.out / "figure.png", dpi=150
    )


def _lines(cells: Cells) -> tuple[list[str], list[list[str]]]:
    """Header and lines of a table: epsilons down, methods across."""
    epsilons = sorted({epsilon for found in cells.values() for epsilon in found})
    lines = [[f"{epsilon:g}", *(str(found.get(epsilon) or "–") for found in cells.values())] for epsilon in epsilons]
    return ["ε", *cells], lines


def _rich(title: str, cells: Cells) -> Table:
    header, lines = _lines(cells)
    table = Table(*header, title=title)
    for line in lines:
        table.add_row(*line)
    return table


def _write(config: CompareConfig, tables: Mapping[str, Cells], notes: list[str], label: str) -> None:
    parts = [
        f"# {', '.join(config.methods)} on {config.data}",
        f"Model {config.model}, δ = {config.delta:g}, {config.adjacency} adjacency, {config.seeds} seeds; a seed fixes "
        "split and noise for every method. These are simulations with reproducible noise, scored on data outside any "
        "guarantee: nothing here is a private release. Every run is in results.csv.",
        f"![{label} and train loss against epsilon](figure.png)",
    ]
    for title, cells in tables.items():
        header, lines = _lines(cells)
        rows = [header, ["---"] * len(header), *lines]
        parts += [f"## {title}", "\n".join(f"| {' | '.join(line)} |" for line in rows)]
    if notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in notes)]
    config.out.mkdir(parents=True, exist_ok=True)
    Path(config.out, "summary.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
