"""Ranks of the competing methods: times that each is best, and whether the best one's lead is more than chance."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from l2p.checkpoints.control import CONTROL
from l2p.checkpoints.method_name import MethodName
from l2p.compare.results import BySeed, Estimate, Metric, Row, by_seed, difference
from l2p.protectors import HAND_DESIGNED

#: Names of the checkpoints that hold a pair of LSTMs, as Hong et al. (2021) made them, begin with this.
PAIR = "paper-"
#: Marks on the names of methods that do not compete, in tables.
MARKS = {"oracle": "†", "paper": "‡"}
LEGEND = {
    "oracle": "tuned on the private rows themselves and not charged for it: not honest, and not ranked",
    "paper": "its paper's own form, certified for other neighbours than {adjacency}: not ranked",
}


def kinds(rows: Iterable[Row], adjacency: str) -> dict[str, str]:
    """Each method's role: "reference" (no privacy), "oracle", "paper" (another adjacency), or "private", which
    competes.

    Args:
      rows: of results.csv.
      adjacency: of the comparison.
    """
    roles = {}
    for row in rows:
        if row["accountant"] == "none":
            kind = "reference"
        elif MethodName.parse(row["method"]).oracle:
            kind = "oracle"
        else:
            kind = "private" if row["adjacency"] == adjacency else "paper"
        roles[row["method"]] = kind
    return roles


def form(method: str) -> str:
    """The form of a method: who chose its settings, and how.

    >>> [form(name) for name in ("objpert_paper", "objpert", "objpert:tuned", "hyfree", "control-svm", "mine")]
    ['paper', 'fair', 'tuned', 'rival', 'control', 'learned']
    """
    name = MethodName.parse(method)
    if name.oracle:
        return "oracle"
    if name.tuned:
        return "tuned"
    if name.base in HAND_DESIGNED:
        return HAND_DESIGNED[name.base].form
    return "control" if name.base.startswith(CONTROL) else "learned"


def marked(method: str, kind: str) -> str:
    """A method's name as tables show it.

    >>> marked("noisygd:oracle", "oracle")
    'noisygd:oracle †'
    """
    return f"{method} {MARKS[kind]}" if kind in MARKS else method


def legend(roles: Iterable[str], adjacency: str) -> list[str]:
    """The meaning of the marks of these roles."""
    present = set(roles)
    return [f"{MARKS[kind]} {LEGEND[kind].format(adjacency=adjacency)}." for kind in MARKS if kind in present]


def sign_test(won: int, lost: int) -> float:
    """Two-sided p-value of `won` against `lost` fair coins; ties are left out.

    >>> sign_test(9, 1)
    0.021484375
    """
    num = won + lost
    return min(1.0, 2.0 * sum(math.comb(num, k) for k in range(min(won, lost) + 1)) / 2.0**num)


def share_won(rows: list[Row], metric: Metric) -> dict[str, dict[float, str | None]]:
    """Share of seeds on which a method beats the first one, and the sign test's p-value, by method and epsilon."""
    values = by_seed(rows, metric.column)
    first, *rest = values
    return {
        method: {epsilon: _share(seeds, values[first].get(epsilon, {}), metric) for epsilon, seeds in cells.items()}
        for method, cells in ((method, values[method]) for method in rest)
    }


def _share(values: Mapping[int, float], first: Mapping[int, float], metric: Metric) -> str | None:
    gains = [metric.sign * value for value in difference(values, first).values()]
    if not gains:
        return None
    won, lost = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    return f"{(won + 0.5 * (len(gains) - won - lost)) / len(gains):.2f} (p = {sign_test(won, lost):.2g})"


def times_best(values: BySeed, metric: Metric) -> dict[str, dict[float, str | None]]:
    """Number of common seeds on which a method is best, by method and epsilon; k tied methods get 1/k each."""
    epsilons = sorted({epsilon for cells in values.values() for epsilon in cells})
    counts: dict[str, dict[float, str | None]] = {method: dict.fromkeys(cells) for method, cells in values.items()}
    for epsilon in epsilons:
        scored = {method: cells[epsilon] for method, cells in values.items() if cells.get(epsilon)}
        seeds = set.intersection(*(set(cell) for cell in scored.values())) if scored else set()
        total = dict.fromkeys(scored, 0.0)
        for seed in seeds:
            scores = {method: metric.sign * cell[seed] for method, cell in scored.items()}
            level = [method for method, score in scores.items() if score == max(scores.values())]
            for method in level:
                total[method] += 1.0 / len(level)
        for method, count in total.items():
            counts[method][epsilon] = f"{count:.3g} of {len(seeds)}"
    return counts


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The best method at one epsilon.

    Attributes:
      epsilon: the budget.
      best: the method.
      score: its mean.
      second: the next best; None if there is none.
      lead: of the best over the second, paired by seed and positive where better.
      level: methods over which the best one's lead does not exceed two standard errors.
    """

    epsilon: float
    best: str
    score: Estimate
    second: str | None
    lead: Estimate | None
    level: tuple[str, ...]

    def sentence(self, metric: Metric) -> str:
        """The verdict as a sentence."""
        text = f"At ε = {self.epsilon:g}, {self.best} has the best {metric.label} of the private methods, {self.score}"
        if self.lead is None:
            return f"{text}; no other was scored."
        text += f"; its lead over {self.second}, the next, is {self.lead} by seed"
        if math.isnan(self.lead.error):
            return f"{text}, from one seed, which says nothing of chance."
        if not self.level:
            return f"{text}, more than two standard errors."
        if self.level == (self.second,):
            return f"{text}, not more than two standard errors: the two are level."
        return f"{text}; not more than two standard errors behind are {', '.join(self.level)}."


def verdicts(values: BySeed, metric: Metric) -> list[Verdict]:
    """The best of these methods at every epsilon at which any was scored."""
    epsilons = sorted({epsilon for cells in values.values() for epsilon in cells})
    by_epsilon = {
        epsilon: {method: cells[epsilon] for method, cells in values.items() if cells.get(epsilon)}
        for epsilon in epsilons
    }
    return [_verdict(epsilon, scores, metric) for epsilon, scores in by_epsilon.items() if scores]


def _verdict(epsilon: float, scores: Mapping[str, Mapping[int, float]], metric: Metric) -> Verdict:
    means = {method: Estimate.of(seeds.values()) for method, seeds in scores.items()}
    best, *rest = sorted(means, key=lambda method: badness(means[method].mean, metric))
    leads = {}
    for method in rest:
        gains = [metric.sign * gain for gain in difference(scores[best], scores[method]).values()]
        if gains and not math.isnan(sum(gains)):  # a method that diverged does not compete
            leads[method] = Estimate.of(gains)
    level = tuple(method for method, lead in leads.items() if not lead.mean > 2.0 * lead.error)
    second = next(iter(leads), None)
    return Verdict(epsilon, best, means[best], second, leads[second] if second else None, level)


def badness(mean: float, metric: Metric) -> float:
    """A key that sorts the best first, and a method that diverged last."""
    return math.inf if math.isnan(mean) else -metric.sign * mean


def mean_ranks(values: BySeed, metric: Metric) -> dict[str, float]:
    """Each method's mean rank over the epsilons at which it has a score, 1 for the best."""
    ranks: dict[str, list[float]] = {}
    for epsilon in sorted({epsilon for cells in values.values() for epsilon in cells}):
        scores = {
            method: badness(Estimate.of(cells[epsilon].values()).mean, metric)
            for method, cells in values.items()
            if cells.get(epsilon)
        }
        for method, score in scores.items():
            better = sum(rival < score for rival in scores.values())
            level = sum(rival == score for rival in scores.values())
            ranks.setdefault(method, []).append(better + (level + 1) / 2)
    return {method: sum(of_method) / len(of_method) for method, of_method in ranks.items()}


def competing(rows: Sequence[Row], adjacency: str, metric: Metric) -> BySeed:
    """The metric of the methods that compete, by method, epsilon and seed."""
    roles = kinds(rows, adjacency)
    return by_seed([row for row in rows if roles[row["method"]] == "private"], metric.column)
