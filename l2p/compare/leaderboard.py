"""Standings made from committed comparisons, as `l2p leaderboard` writes them."""

import dataclasses
import math
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from l2p.base.errors import InputError
from l2p.checkpoints.method_name import PRETRAINED, PROJECTED
from l2p.compare import cells, results, standings, wins
from l2p.compare.results import Metric, Row
from l2p.compare.summary import markdown

#: Relative excess of a certified epsilon over its budget that rounding may cause.
ROUNDING = 1e-9


#: The options of a public part; the last fact is a digest.
_PUBLIC = cells.PUBLIC_FACTS[:-1]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A folder's results.csv and inputs.json."""

    folder: Path
    rows: list[Row]
    inputs: Row

    @property
    def group(self) -> tuple[str, str, float, str]:
        """Results are compared within one data set with its public part, model, delta and adjacency."""
        part = [f"{name.replace('_', ' ')} {self.inputs[name]:g}" for name in _PUBLIC if self.inputs.get(name)]
        return (
            ", ".join([self.inputs["data"], *part]),
            self.inputs["model"],
            self.inputs["delta"],
            self.inputs["adjacency"],
        )


def read_comparison(folder: Path) -> Comparison:
    """A committed comparison, with all checks that need no new run.

    Raises:
      InputError: rows or facts are missing or contradict each other, or a run was certified beyond its budget.
    """
    rows, inputs = results.read(folder / "results.csv"), cells.read_inputs(folder)
    if not rows:
        raise InputError(f"{folder} has no rows, so there is nothing to show; run `l2p compare` into it.")
    kinds = standings.kinds(rows, inputs["adjacency"])
    occurred = set()
    for row in rows:
        where = f"{folder / 'results.csv'}, {row['method']} at epsilon {row['epsilon']:g}, seed {row['seed']}"
        for name in ("data", "model", "delta"):
            if row[name] != inputs[name]:
                raise InputError(
                    f"{where}: {name} is {row[name]!r}, but inputs.json says {inputs[name]!r}; run it again."
                )
        if results.cell(row) in occurred:
            raise InputError(f"{where} occurs twice, so it is unclear which row is right; merge folders with --merge.")
        occurred.add(results.cell(row))
        if row["method"] not in inputs["protectors"]:
            raise InputError(f"{where}: inputs.json does not say which protector ran; run it again.")
        certified = row["epsilon_certified"]
        bounded = kinds[row["method"]] in ("private", "paper") and results.is_scored(row)
        if bounded and not (certified is not None and certified <= row["epsilon"] * (1.0 + ROUNDING)):
            raise InputError(
                f"{where} is certified for epsilon {certified}, which is not within its budget; run it again."
            )
    return Comparison(folder, rows, inputs)


def read_all(folder: Path) -> list[Comparison]:
    """Every comparison in a folder of folders, by name; those of one data set must have the same table and splits."""
    comparisons = [read_comparison(path.parent) for path in sorted(folder.glob("*/results.csv"))]
    if not comparisons:
        raise InputError(f"{folder} holds no folder with a results.csv, so there is nothing to rank; name another.")
    first: dict[str, Comparison] = {}
    for comparison in comparisons:
        earlier = first.setdefault(comparison.inputs["data"], comparison)
        for name in ("table_sha256", "splits_sha256"):
            if comparison.inputs[name] != earlier.inputs[name]:
                raise InputError(
                    f"{comparison.folder} and {earlier.folder} differ in {name} of {comparison.inputs['data']}, so "
                    "their scores are not of the same task; run one of them again."
                )
    return comparisons


def page(folder: Path, out: Path | None = None) -> str:
    """The page of standings, in Markdown.

    Args:
      folder: of folders with comparisons.
      out: path of the page, for its links; None for the current folder.

    Raises:
      InputError: there is nothing to show, or a comparison must not be shown.
    """
    comparisons = read_all(folder)
    groups: dict[tuple, list[Comparison]] = {}
    for comparison in comparisons:
        groups.setdefault(comparison.group, []).append(comparison)
    parts = [
        "# Leaderboard",
        "<!-- no block is run: comparisons of minutes to hours each, whose results are committed -->",
        f"Made by `l2p leaderboard` from the results.csv and inputs.json of every folder in {folder.name}. Means and "
        "standard errors over seeds; a seed fixes split and noise for every method. Methods are ordered by their mean "
        "rank over the budgets at which they were scored. These are simulations on public data, and no private "
        "releases.",
        "Forms: *paper*, a method as its paper has it; *fair*, as it is best set up and accounted for today; *tuned*, "
        "with settings tuned on public data; *rival*, one that the papers reproduced here leave out; *control*, "
        "constants per budget meta-tuned like the learned ones; *learned*, a meta-trained protector; *oracle*, "
        "searched on the private rows themselves; *reference*, without privacy.",
    ]
    if by_loss := _won(comparisons, results.LOSS):
        by_score = _won(comparisons, None)
        parts += [
            "## Learned protectors in every cell",
            "A cell is a data set, a model and a budget; the protector is the comparison's first method and never saw "
            "the data set. Leads are paired by seed, in the unit of the metric, and positive where the protector is "
            "better: *better* and *worse* are beyond two standard errors, *same* is a protector that ran as its "
            "control (out of range, or networks that say nothing). The best hand-designed method is the one with the "
            "best mean in that very cell, which nobody could have known beforehand; methods that have something from "
            f"public rows (`{PROJECTED}`, `{PRETRAINED}`) count only where the protector has, too.",
            "By test loss, which every run minimises and which tells apart runs that have one accuracy (for "
            "`logistic`, `softmax` and `mlp` it is the log loss):",
            "\n".join(f"- {line}" for line in wins.totals(by_loss)),
            "The same cells by test accuracy, and by squared error where a number is predicted:",
            "\n".join(f"- {line}" for line in wins.totals(by_score)),
            "### By test loss",
            markdown(*wins.table(by_loss)),
            "### By test accuracy, or squared error",
            markdown(*wins.table(by_score)),
        ]
    for (data, model, delta, adjacency), members in groups.items():
        parts += [f"## {data}, {model}, δ = {delta:g}, {adjacency} neighbours", *_standings(members, adjacency, out)]
    parts.append("## Runs")
    parts += [_origin(comparison, out) for comparison in comparisons]
    return "\n\n".join(parts) + "\n"


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A method in one comparison; it may also have run under another accountant in another folder."""

    method: str
    kind: str
    accountant: str
    folder: Path


def _standings(members: Sequence[Comparison], adjacency: str, out: Path | None) -> list[str]:
    """Table, marks and verdicts of the comparisons of one group."""
    entries, rows = {}, []
    times = Counter(method for comparison in members for method in comparison.inputs["protectors"])
    for comparison in members:
        kinds = standings.kinds(comparison.rows, adjacency)
        for row in comparison.rows:
            method = row["method"]
            label = f"{method} ({comparison.folder.name})" if times[method] > 1 else method
            if label not in entries or not entries[label].accountant:
                entries[label] = _Entry(method, kinds[method], row["accountant"], comparison.folder)
            rows.append(row | {"method": label})
    metric = results.metric_of(rows)
    means, values = results.by_method(rows, metric.column), results.by_seed(rows, metric.column)
    private = {label: scores for label, scores in values.items() if entries[label].kind == "private"}
    ranks = standings.mean_ranks(private, metric)
    epsilons = sorted({row["epsilon"] for row in rows})
    body = []
    for label in sorted(entries, key=lambda label: ranks.get(label, math.inf)):
        entry = entries[label]
        name = standings.marked(entry.method, entry.kind)
        shown = [name, standings.form(entry.method), entry.accountant or "–"]
        shown += [str(means[label].get(epsilon) or "–") for epsilon in epsilons]
        shown.append(f"{ranks[label]:.2f}" if label in ranks else "–")
        body.append([*shown, f"[{entry.folder.name}]({_link(entry.folder, out)}/summary.md)"])
    header = ["method", "form", "accountant", *(f"ε = {epsilon:g}" for epsilon in epsilons), "mean rank", "run"]
    title = f"{metric.label.capitalize()}; {'higher' if metric.sign > 0 else 'lower'} is better."
    legend = standings.legend((entry.kind for entry in entries.values()), adjacency)
    verdicts = [f"- {verdict.sentence(metric)}" for verdict in standings.verdicts(private, metric)]
    return [title, markdown(header, body), *legend, "\n".join(verdicts)]


def _won(comparisons: Sequence[Comparison], metric: Metric | None) -> list[wins.Win]:
    """All cells by one metric; None for each comparison's own."""
    return [
        cell
        for comparison in comparisons
        for cell in wins.wins(comparison.rows, comparison.inputs["adjacency"], metric)
    ]


def _link(folder: Path, out: Path | None) -> str:
    return Path(os.path.relpath(folder, Path() if out is None else out.parent)).as_posix()


def _origin(comparison: Comparison, out: Path | None) -> str:
    """The provenance of a comparison: versions, digests, the folds that ran under their protectors' names, and the
    command that repeats it."""
    versions = ", ".join(f"{name} {version}" for name, version in comparison.inputs["versions"].items())
    paragraphs = [
        f"### {comparison.folder.name}",
        f"Files: [{comparison.folder.name}]({_link(comparison.folder, out)}). Versions: {versions or 'not recorded'}. "
        f"Table `{comparison.inputs['table_sha256'][:16]}`, splits `{comparison.inputs['splits_sha256'][:16]}`.",
        *([" ".join(held)] if (held := results.hold_outs(comparison.rows)) else []),
        f"```bash\n{command(comparison)}\n```",
    ]
    return "\n\n".join(paragraphs)


def command(comparison: Comparison) -> str:
    """The command line that repeats a comparison."""
    rows, inputs = comparison.rows, comparison.inputs
    options = {
        "data": [inputs["data"]],
        "model": [inputs["model"]],
        "methods": [",".join(dict.fromkeys(row["method"] for row in rows))],
        "epsilon": [f"{epsilon:g}" for epsilon in dict.fromkeys(row["epsilon"] for row in rows)],
        "delta": [f"{inputs['delta']:g}"],
        "seeds": [str(1 + max(row["seed"] for row in rows))],
        "adjacency": [inputs["adjacency"]],
        "accountant": [inputs["accountant"]] if inputs["accountant"] else [],
        "aux": [inputs["aux"]] if inputs["aux"] else [],
        **{name.replace("_", "-"): [f"{inputs[name]:g}"] for name in _PUBLIC if inputs.get(name)},
        "out": [f"runs/{comparison.folder.name}"],
    }
    words = (f"--{name} {shlex.join(values)}" for name, values in options.items() if values)
    return f"l2p compare {' '.join(words)}"
