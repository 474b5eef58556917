"""Write the cards of one version of l2p, for tests that later versions still read and verify them.

    PYTHONPATH=. python tests/cards/make.py tests/cards/VERSION.json

0.1.0.json was written by commit 23abaf5.
"""

import json
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

import l2p
from l2p import Budget, Rows
from l2p.cli import main


def table(num_features, number=False):
    """2,000 rows, whose label or number is a linear function of the features."""
    x = np.random.default_rng(0).uniform(size=(2000, num_features)).astype(np.float32)
    score = x @ np.linspace(1, -1, num_features)
    y = (score - score.min()) / np.ptp(score) if number else score > 0
    return Rows(x, y.astype(np.float32), np.ones(2000, np.float32))


BUDGET, WIDE = Budget(1.0, 1e-6), table(12)
LEDGER = str(Path(tempfile.mkdtemp(), "ward.ledger"))
RUNS = {
    "noisygd": (WIDE, "noisygd", BUDGET, {}),
    "noisygd, simulation": (WIDE, "noisygd", BUDGET, {"key": jax.random.key(0)}),
    "ledger": (WIDE, "noisygd", BUDGET, {"ledger": LEDGER}),
    "dpsgd": (WIDE, "dpsgd", BUDGET, {}),
    "dpsgd, pld": (WIDE, "dpsgd", BUDGET, {"accountant": "pld"}),
    "sgd_adv": (WIDE, "sgd_adv", Budget(1.0, 1e-6, "replace_one"), {}),
    "agd": (WIDE, "agd", BUDGET, {}),
    "hyfree": (WIDE, "hyfree", BUDGET, {}),
    "objpert": (WIDE, "objpert", BUDGET, {}),
    "outpert": (WIDE, "outpert", BUDGET, {}),
    "adassp": (table(12, number=True), "adassp", BUDGET, {"model": "square"}),
    "private_meta": (WIDE, "private_meta", BUDGET, {}),
    "universal": (WIDE, "universal", BUDGET, {}),
    "paper": (WIDE, "paper", BUDGET, {}),
    "agd, tuned": (WIDE, "agd:tuned", BUDGET, {}),
    "minibatch, at a rate": (WIDE, "minibatch@0.1", BUDGET, {}),
    "a control stands in": (table(3), "minibatch@0.1", BUDGET, {}),
}

if __name__ == "__main__":
    main(["ledger", "create", LEDGER, "--name", "ward", "--epsilon", "2", "--delta", "1e-6"])
    cards = {}
    for name, (rows, protector, budget, options) in RUNS.items():
        card = l2p.private_train(rows, protector, budget, **options).card
        cards[name] = json.dumps(json.loads(card.to_json()), separators=(",", ":"))
    lines = ",\n".join(f"{json.dumps(name)}: {card}" for name, card in cards.items())
    Path(sys.argv[1]).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
