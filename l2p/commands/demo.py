"""`l2p demo`: the learned protector's gain on packaged data, one real release with its card, and commands to try next.

Offline, and from an installed wheel: that carries one fold of `universal` that was made without these data.
"""

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from l2p.base import drawing
from l2p.compare import results
from l2p.compare.config import CompareConfig
from l2p.compare.figures import against_epsilon
from l2p.compare.inputs import load_rows, title_of
from l2p.compare.results import ACCURACY, LOSS, Estimate, Metric
from l2p.compare.runner import compare
from l2p.privacy.budget import Budget
from l2p.release.api import private_train
from l2p.run.simulate import split
from l2p.task.checks import shape_of

DATA = "digits:odd"
#: `universal` as it would be had it never seen scikit-learn's digits.
LEARNED = "universal-fold-2"
#: Three common hand-designed methods, with the settings they ship with, none tuned; run on this very table.
HAND_DESIGNED = ("noisygd", "auto_clip", "objpert")
REFERENCE = "nonprivate"
EPSILONS, DELTA = (0.1, 0.3, 1.0, 3.0), 1e-5
RELEASED = 1.0
SEEDS = 5
_LABELS = ("l2p, learned", "best hand-designed", "without privacy")
_NEXT = """Now on your table:
  l2p plan --rows 30000 --features 20 --epsilon 1 --delta 1e-6
  l2p schema table.csv --target column --out table.json
  l2p apply --data table.csv --schema table.json \\
            --epsilon 1 --delta 1e-6 --out run1 --dry-run
  l2p predict --model run1 --data new.csv --out predictions.csv
The first says what a budget buys. The second writes a template, in which you
declare types and bounds from public knowledge. The third checks all that is
public; without --dry-run, it trains a model, which the last one applies."""


def main(out: Path | None = None) -> None:
    """Compare on scikit-learn's digits, odd against even, and release one model.

    Args:
      out: folder for results.csv, figure.svg and the release with its card; default ./l2p-demo.

    Raises:
      InputError: a shipped protector is missing from this installation.
    """
    out = Path("l2p-demo") if out is None else out
    for name in ("results.csv", "inputs.json"):  # a demo shows this installation, not an earlier run
        (out / name).unlink(missing_ok=True)
    for name in ("cells", "release"):
        shutil.rmtree(out / name, ignore_errors=True)
    methods = (LEARNED, *HAND_DESIGNED, REFERENCE)
    config = CompareConfig(DATA, out, methods=methods, epsilon=EPSILONS, delta=DELTA, seeds=SEEDS)
    rows = _compare(config)
    num_rows, num_features = shape_of(split(load_rows(config), 0).private)
    print(f"Handwritten digits, odd or even: {num_rows:,} rows of {num_features} pixels, delta {DELTA:g}")
    print(f"\n{'':<34}{'epsilon':<8}{'':<4}" + "".join(f"{epsilon:>8g}" for epsilon in EPSILONS))
    tables = {metric.label: _three(rows, metric) for metric in (ACCURACY, LOSS)}
    for label, scale in ((ACCURACY.label, 100.0), (LOSS.label, 1.0)):
        for place, (name, estimates) in enumerate(tables[label].items()):
            about = f"{label}{', %' if scale > 1 else ''}" if place == 0 else ""
            values = "".join(f"{scale * estimates[epsilon].mean:>8.{1 if scale > 1 else 3}f}" for epsilon in EPSILONS)
            print(f"{about:<20}{name:<26}{values}")
    print(
        f"\nMeans of {SEEDS} splits. Learned: {LEARNED}, which is `universal` made\n"
        f"without these digits. Hand-designed: {', '.join(HAND_DESIGNED)},\n"
        f"three common methods, untuned, run on this very table; of each column the best\n"
        f"is shown, picked afterwards. Without privacy is the least train loss, which\n"
        f"overfits, so that noise may come out ahead of it at large budgets."
    )
    figure = against_epsilon(tables, dashed=_LABELS[-1:], title=title_of(config, config.model))
    drawing.save(figure, out / "figure.svg")
    _release(out, config)
    print(f"\n{_NEXT}")


def _compare(config: CompareConfig) -> list[results.Row]:
    """All methods, one after the other, with a line on each as it begins."""
    total = len(config.methods) + 1
    _say(f"Comparing {len(config.methods)} methods at {len(EPSILONS)} budgets; less than a minute on two cores.")
    for place, method in enumerate(config.methods, 1):
        begun = time.perf_counter()
        compare(CompareConfig(DATA, config.out, methods=(method,), epsilon=EPSILONS, delta=DELTA, seeds=SEEDS))
        _say(f"[{place}/{total}] {method}: {time.perf_counter() - begun:.0f} s")
    return compare(config)


def _three(rows: list[results.Row], metric: Metric) -> dict[str, dict[float, Estimate]]:
    """The learned protector, the best hand-designed method of each budget, and no privacy."""
    cells = results.by_method(rows, metric.column)
    best = {epsilon: _best([cells[name] for name in HAND_DESIGNED], epsilon, metric) for epsilon in EPSILONS}
    learned, reference = ({e: _or_nan(cells[name], e) for e in EPSILONS} for name in (LEARNED, REFERENCE))
    return dict(zip(_LABELS, (learned, best, reference), strict=True))


def _best(cells: Sequence[Mapping[float, Estimate | None]], epsilon: float, metric: Metric) -> Estimate:
    return max((_or_nan(cell, epsilon) for cell in cells), key=lambda estimate: metric.sign * estimate.mean)


def _or_nan(cells: Mapping[float, Estimate | None], epsilon: float) -> Estimate:
    return cells[epsilon] or Estimate(np.nan, np.nan)


def _release(out: Path, config: CompareConfig) -> None:
    """One model whose noise comes from the operating system, with its card."""
    private = split(load_rows(config), 0).private
    begun = time.perf_counter()
    result = private_train(private, LEARNED, Budget(RELEASED, DELTA)).of_table(DATA, "odd")
    total = len(config.methods) + 1
    _say(f"[{total}/{total}] one real release: {time.perf_counter() - begun:.0f} s")
    pixels = [f"pixel_{index}" for index in range(shape_of(private)[1])]
    result.save(out / "release", pixels, dict.fromkeys(pixels, (0.0, 16.0)), None, "odd")
    card = result.card
    print(
        f"\nOne real release at epsilon {RELEASED:g} (certified: {card.epsilon_certified:.6g}), its noise from the\n"
        f"operating system. Its privacy card, to open: {out / 'release' / 'card.html'}"
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
