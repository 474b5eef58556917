"""`l2p demo`: methods side by side on packaged data, one real release with its privacy card, and figures. Offline."""

import shutil
from pathlib import Path

from rich.console import Console

from l2p.api import private_train
from l2p.compare.config import CompareConfig
from l2p.compare.figures import against_step
from l2p.compare.runner import compare, curves, load_rows
from l2p.compare.summary import report
from l2p.privacy.budget import Budget
from l2p.simulate import split

DATA = "digits:odd"
METHODS = ("plain-adult", "paper-adult", "agd", "noisygd")
EPSILON, DELTA = 1.0, 1e-5
SEEDS = 10


def main(out: Path | None = None) -> None:
    """Compare `METHODS` on scikit-learn's digits, odd against even, and release one model by the first of them.

    Args:
      out: folder for results.csv, summary.md, figure.png, steps.png, card.txt and card.json; default ./l2p-demo.

    Raises:
      InputError: a shipped protector is missing from this installation.
    """
    out = Path("l2p-demo") if out is None else out
    for name in ("results.csv", "inputs.json"):  # a demo shows this installation, not an earlier run
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / "cells", ignore_errors=True)
    config = CompareConfig(DATA, out, methods=METHODS, epsilon=(EPSILON,), delta=DELTA, seeds=SEEDS)
    report(compare(config), config)
    against_step(*curves(config, EPSILON)).savefig(out / "steps.png", dpi=150)

    console = Console()
    console.print(f"\nOne real release by {METHODS[0]}, its noise drawn from the operating system:\n")
    card = private_train(split(load_rows(config), 0).private, METHODS[0], Budget(EPSILON, DELTA)).card
    print(card.to_text())  # already wrapped
    (out / "card.json").write_text(card.to_json(), encoding="utf-8")
    (out / "card.txt").write_text(card.to_text(), encoding="utf-8")
    console.print(f"Written to {out}: summary.md, results.csv, figure.png, steps.png, card.txt and card.json.")
