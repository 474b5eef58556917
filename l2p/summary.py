"""A comparison for people: tables on the terminal, the same in summary.md, and figure.png."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from l2p import results
from l2p.compare_config import CompareConfig
from l2p.figures import against_epsilon
from l2p.results import Estimate

_LABELS = {"test_accuracy": "Test accuracy", "train_loss": "Train loss", "test_loss": "Test loss"}
Cells = Mapping[str, Mapping[float, Estimate | None]]


def report(rows: list[results.Row], config: CompareConfig) -> None:
    """Print the tables, and write them to `config.out` as summary.md beside figure.png."""
    rows = [row | {"method": _marked(row, config)} for row in rows]
    first = rows[0]["method"]
    tables = {f"{label} (mean ± standard error)": results.by_method(rows, metric) for metric, label in _LABELS.items()}
    if len(config.methods) > 1:
        title = f"Test accuracy minus that of {first}, by seed (mean ± standard error)"
        tables[title] = results.against_first(rows, "test_accuracy")
    notes = sorted({f"{row['method']} at epsilon {row['epsilon']:g}: {row['note']}" for row in rows if row["note"]})
    for title in (next(iter(tables)), *list(tables)[len(_LABELS) :]):
        Console().print(_rich(title, tables[title]))
    for note in notes:
        Console().print(note, markup=False, highlight=False)
    _write(config, tables, notes)
    reference = tuple({row["method"] for row in rows if row["accountant"] == "none"})
    accuracy, loss = (results.by_method(rows, metric) for metric in ("test_accuracy", "train_loss"))
    against_epsilon(accuracy, loss, dashed=reference).savefig(config.out / "figure.png", dpi=150)


def _marked(row: results.Row, config: CompareConfig) -> str:
    """A method's name, with its neighbours where they are its own and not those asked for."""
    return row["method"] if row["adjacency"] == config.adjacency else f"{row['method']} ({row['adjacency']})"


def _lines(cells: Cells) -> tuple[list[str], list[list[str]]]:
    """Header and lines of a table: epsilons down, methods across."""
    epsilons = sorted({epsilon for found in cells.values() for epsilon in found})
    lines = [[f"{epsilon:g}", *(str(found.get(epsilon) or "–") for found in cells.values())] for epsilon in epsilons]
    return ["ε", *cells], lines


def _rich(title: str, cells: Cells) -> Table:
    header, lines = _lines(cells)
    table = Table(*(Column(name, overflow="fold") for name in header), title=title)
    for line in lines:
        table.add_row(*line)
    return table


def _write(config: CompareConfig, tables: Mapping[str, Cells], notes: list[str]) -> None:
    parts = [
        f"# {', '.join(config.methods)} on {config.data}",
        f"Model {config.model}, δ = {config.delta:g}, {config.adjacency} adjacency, {config.seeds} seeds; a seed fixes "
        "split and noise for every method. These are simulations with reproducible noise, scored on data outside any "
        "guarantee: nothing here is a private release. Every run is in results.csv.",
        "![Test accuracy and train loss against epsilon](figure.png)",
    ]
    for title, cells in tables.items():
        header, lines = _lines(cells)
        rows = [header, ["---"] * len(header), *lines]
        parts += [f"## {title}", "\n".join(f"| {' | '.join(line)} |" for line in rows)]
    if notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in notes)]
    config.out.mkdir(parents=True, exist_ok=True)
    Path(config.out, "summary.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
