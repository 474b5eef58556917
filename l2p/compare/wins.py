"""The win table: numbers of cells in which a learned protector beats the best hand-designed method, and its control.

A cell is a data set, a model and a budget. A comparison is included if its first method is learned and a control is
among the others; the protector is compared with the first control.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from l2p.checkpoints.method_name import MethodName
from l2p.compare import results, standings
from l2p.compare.results import Estimate, Metric, Row

#: Forms of methods that a learned protector competes with; controls and oracles have columns of their own.
HAND_DESIGNED_FORMS = ("paper", "fair", "tuned", "rival")
#: The forms of adaptive gradient descent (Lee & Kifer 2018), which the pair of LSTMs was made to beat.
AGD = ("agd", "agd_gumbel")
#: The protector's opponents, in the order of the table's columns.
OPPONENTS = ("best hand-designed", "control", "oracle")
#: The verdict if no run differs.
SAME = "same"
#: Possible verdicts, in the order of the totals.
VERDICTS = ("better", "level", SAME, "worse")


@dataclasses.dataclass(frozen=True)
class Win:
    """One cell.

    Attributes:
      data: data set.
      model: model.
      epsilon: budget.
      protector: the learned one.
      opponents: methods by the names in `OPPONENTS`; some may be missing.
      leads: of the protector over each of them, paired by seed and positive where it is better.
    """

    data: str
    model: str
    epsilon: float
    protector: str
    opponents: Mapping[str, str]
    leads: Mapping[str, Estimate]


def verdict(lead: Estimate) -> str:
    """Verdict on a lead: "better" or "worse" beyond two standard errors, else "level", as for a single seed.

    "same" if no run differs: the protector's control ran instead of it, or its networks output zero.

    >>> [verdict(Estimate(mean, 0.01)) for mean in (0.03, 0.02, -0.03)], verdict(Estimate(0.0, 0.0))
    (['better', 'level', 'worse'], 'same')
    """
    if lead.mean == lead.error == 0.0:
        return SAME
    if math.isnan(lead.error) or abs(lead.mean) <= 2.0 * lead.error:
        return "level"
    return "better" if lead.mean > 0 else "worse"


def wins(rows: Sequence[Row], adjacency: str, metric: Metric | None = None) -> list[Win]:
    """The cells of one comparison, by epsilon; none if it is not one of a learned protector and its control.

    Args:
      rows: of the comparison's results.csv.
      adjacency: of its budgets.
      metric: to compare the cells by; None for the comparison's own.
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    forms = {method: standings.form(method) for method in methods}
    if forms[methods[0]] != "learned" or "control" not in forms.values():
        return []
    metric = metric or results.metric_of(rows)
    kinds, values = standings.kinds(rows, adjacency), results.by_seed(rows, metric.column)
    ours = values[methods[0]]
    cells = []
    for epsilon in sorted(ours):
        scored = {
            method: values[method][epsilon]
            for method in methods[1:]
            if values[method].get(epsilon) and kinds[method] in ("private", "oracle")
        }
        groups = {
            OPPONENTS[0]: best(rivals(scored, methods[0]), scored, metric),
            OPPONENTS[1]: next((m for m in scored if forms[m] == "control"), None),
            OPPONENTS[2]: best([m for m in scored if forms[m] == "oracle"], scored, metric),
        }
        opponents = {name: method for name, method in groups.items() if method is not None}
        leads = {name: lead_over(ours[epsilon], scored[method], metric) for name, method in opponents.items()}
        if ours[epsilon] and leads:
            cells.append(Win(rows[0]["data"], rows[0]["model"], epsilon, methods[0], opponents, leads))
    return cells


def rivals(methods: Iterable[str], protector: str) -> list[str]:
    """The hand-designed methods among these that a protector competes with. Those that have something from public rows
    count only if it has, too.

    >>> rivals(["noisygd", "noisygd:tuned:projected", "agd:oracle", "control-universal"], "universal")
    ['noisygd']
    """
    has_public = MethodName.parse(protector).given_public
    return [
        method
        for method in methods
        if standings.form(method) in HAND_DESIGNED_FORMS and (has_public or not MethodName.parse(method).given_public)
    ]


def best(methods: Iterable[str], values: Mapping[str, Mapping[int, float]], metric: Metric) -> str | None:
    """The method with the best mean over its seeds; None without methods."""
    means = {method: Estimate.of(values[method].values()).mean for method in methods}
    return min(means, key=lambda method: standings.badness(means[method], metric), default=None)


def lead_over(ours: Mapping[int, float], theirs: Mapping[int, float], metric: Metric) -> Estimate:
    """The lead of `ours`, paired by seed, positive where it is better."""
    return Estimate.of(metric.sign * value for value in results.difference(ours, theirs).values())


def table(cells: Sequence[Win]) -> tuple[list[str], list[list[str]]]:
    """Header and body of the table: leads in the metric's unit, each with its verdict."""
    header = ["data", "model", "ε", "protector", *(f"over {name}" for name in OPPONENTS)]
    body = []
    for cell in cells:
        shown = [
            f"{cell.opponents[name]}: {cell.leads[name]}, {verdict(cell.leads[name])}" if name in cell.leads else "–"
            for name in OPPONENTS
        ]
        body.append([cell.data, cell.model, f"{cell.epsilon:g}", cell.protector, *shown])
    return header, body


def totals(cells: Sequence[Win]) -> list[str]:
    """A sentence for each opponent: in how many cells the protector is better, level and worse."""
    sentences = []
    for name in OPPONENTS:
        counts = Counter(verdict(cell.leads[name]) for cell in cells if name in cell.leads)
        if num := sum(counts.values()):
            shown = [word for word in VERDICTS if word != SAME or counts[word]]
            shares = ", ".join(f"{word} in {counts[word]} ({counts[word] / num:.0%})" for word in shown)
            sentences.append(f"Against {name}, of {num} cells: {shares}.")
    return sentences


def headline(rows: Sequence[Row], adjacency: str) -> list[str]:
    """The methods that a figure names: the first, its control, the pair of LSTMs, and by mean rank of the test loss the
    best hand-designed one and the best AGD.

    >>> losses = {"universal": 0.2, "noisygd": 0.5, "auto_clip": 0.4, "agd:tuned": 0.5, "agd": 0.6, "paper-adult": 0.3}
    >>> row = {"epsilon": 1.0, "seed": 0, "accountant": "gdp", "adjacency": "zero_out"}
    >>> headline([row | {"method": name, "test_loss": loss} for name, loss in losses.items()], "zero_out")
    ['universal', 'paper-adult', 'auto_clip', 'agd:tuned']
    """
    ranks = standings.mean_ranks(standings.competing(rows, adjacency, results.LOSS), results.LOSS)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    controls = [method for method in methods if standings.form(method) == "control"]
    pairs = [method for method in methods if method.startswith(standings.PAIR)]
    designed = sorted(rivals(ranks, methods[0]), key=ranks.__getitem__)
    of_agd = [method for method in designed if MethodName.parse(method).base in AGD]
    return list(dict.fromkeys([*methods[:1], *controls[:1], *pairs[:1], *designed[:1], *of_agd[:1]]))
