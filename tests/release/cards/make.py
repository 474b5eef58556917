"""Write the cards that tests verify; write them anew where cards say something else.

PYTHONPATH=. python tests/release/cards/make.py tests/release/cards/current.json
"""

import json
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

import l2p
from l2p import Budget, Rows
from l2p.commands.cli import main
from l2p.protectors.by_hand.bolt_on import BoltOn
from l2p.protectors.by_hand.noisy_sgd import NoisySGD
from l2p.release.tuning.private_tuning import private_tuning
from l2p.release.tuning.split_tuning import split_tuning
from l2p.task.task import Task


def table(num_features, number=False):
    """2,000 rows, whose label or number is a linear function of the features."""
    x = np.random.default_rng(0).uniform(size=(2000, num_features)).astype(np.float32)
    score = x @ np.linspace(1, -1, num_features)
    y = (score - score.min()) / np.ptp(score) if number else score > 0
    return Rows(x, y.astype(np.float32), np.ones(2000, np.float32))


BUDGET, WIDE = Budget(1.0, 1e-6), table(12)
REPLACED, NUMBERS = Budget(1.0, 1e-6, "replace_one"), table(12, number=True)
FEW = jax.tree.map(lambda leaf: leaf[:200], table(12))
BESIDE_PUBLIC = Task(jax.tree.map(lambda leaf: leaf[200:], table(12)), public=FEW)
FOLDER = Path(tempfile.mkdtemp())
RUNS = {
    "noisygd": (WIDE, "noisygd", BUDGET, {}),
    "noisygd, simulation": (WIDE, "noisygd", BUDGET, {"key": jax.random.key(0)}),
    "ledger": (WIDE, "noisygd", BUDGET, {"ledger": FOLDER / "gdp"}),
    "ledger of whole runs": (WIDE, "noisygd", BUDGET, {"ledger": FOLDER / "basic"}),
    "ledger at one order": (WIDE, "agd", BUDGET, {"ledger": FOLDER / "rdp"}),
    "dpsgd": (WIDE, "dpsgd", BUDGET, {}),
    "dpsgd, pld": (WIDE, "dpsgd", BUDGET, {"accountant": "pld"}),
    "sgd_adv": (WIDE, "sgd_adv", REPLACED, {}),
    "sgd_ma": (WIDE, "sgd_ma", Budget(4.0, 1e-6, "add_remove"), {"num_rows": 2000}),
    "agd": (WIDE, "agd", BUDGET, {}),
    "agd, zcdp": (WIDE, "agd", BUDGET, {"accountant": "zcdp"}),
    "noisygd, ctcdp": (WIDE, "noisygd", BUDGET, {"accountant": "ctcdp"}),
    "hyfree": (WIDE, "hyfree", BUDGET, {}),
    "objpert": (WIDE, "objpert", BUDGET, {}),
    "outpert": (WIDE, "outpert", BUDGET, {}),
    "bolt_on": (WIDE, "bolt_on", BUDGET, {}),
    "bolt_on, pure": (WIDE, "bolt_on", Budget(1.0, 0.0), {}),
    "bolt_on, gamma as a divergence": (WIDE, BoltOn(2000, noise="gamma"), BUDGET, {"accountant": "rdp"}),
    "ppsgd": (BESIDE_PUBLIC, "ppsgd", REPLACED, {}),
    "ppgd": (BESIDE_PUBLIC, "ppgd", BUDGET, {}),
    "adassp": (NUMBERS, "adassp", BUDGET, {"model": "square"}),
    "private_meta": (WIDE, "private_meta", BUDGET, {}),
    "universal": (WIDE, "universal", BUDGET, {}),
    "large epsilon": (WIDE, "noisygd", Budget(20.0, 1e-6), {}),
    "paper": (WIDE, "paper-adult", BUDGET, {}),
    "agd, tuned": (WIDE, "agd:tuned", BUDGET, {}),
    "minibatch, at a rate": (WIDE, "minibatch@0.1", BUDGET, {}),
    "a control stands in": (table(3), "minibatch@0.1", BUDGET, {}),
    "of one's own": (WIDE, NoisySGD(2000), BUDGET, {}),
}
CHOICES = {
    "the best of several": lambda: private_tuning(WIDE, ["noisygd", "auto_clip"], BUDGET).result,
    "chosen on parts": lambda: split_tuning(WIDE, ["noisygd", "auto_clip"], BUDGET).result,
}

if __name__ == "__main__":
    for unit in ("gdp", "basic", "rdp"):
        options = ["--name", "ward", "--epsilon", "2", "--delta", "1e-6", "--unit", unit]
        main(["ledger", "create", str(FOLDER / unit), *options])
    cards = {}
    for name, (rows, protector, budget, options) in RUNS.items():
        cards[name] = l2p.private_train(rows, protector, budget, **options).card
    for name, choose in CHOICES.items():
        cards[name] = choose().card
    cards = {name: json.dumps(json.loads(card.to_json()), separators=(",", ":")) for name, card in cards.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {card}" for name, card in cards.items())
    Path(sys.argv[1]).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
