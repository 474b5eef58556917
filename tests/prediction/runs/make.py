"""Run folders as one version of l2p leaves them, for tests that later versions still predict with them.

    PYTHONPATH=. python tests/prediction/runs/make.py tests/prediction/runs/VERSION

0.1.0 is by commit 23abaf5, where `l2p.load_model` was `l2p.saved.load`. `expected.json` holds what that version itself
predicted for `TABLE`.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np

import l2p

BOUNDS = {"age": (0.0, 120.0), "dose": (-1.0, 1.0), "price": (100.0, 300.0)}
#: By folder: the model, the declared classes, and the target's name.
RUNS = {
    "logistic": ("logistic", (7.0, 3.0), "readmit"),
    "unnamed": ("svm", None, ""),
    "square": ("square", None, "price"),
    "softmax": ("softmax:3", (3.0, 5.0, 9.0), "grade"),
}
TABLE = {"dose": [-1.0, 0.0, 0.5, 1.0, 0.25], "age": [10.0, 90.0, 200.0, 61.5, float("nan")]}


def rows(model):
    x = np.random.default_rng(0).uniform(size=(2000, 2)).astype(np.float32)
    score = (x[:, 0] + x[:, 1]) / 2
    y = score if model == "square" else np.digitize(score, [0.4, 0.6] if model == "softmax:3" else [0.5])
    return l2p.Rows(x, y.astype(np.float32), np.ones(2000, np.float32))


if __name__ == "__main__":
    out, expected = Path(sys.argv[1]), {}
    for name, (model, classes, target) in RUNS.items():
        result = l2p.private_train(rows(model), "noisygd", l2p.Budget(8.0, 1e-5), model=model, key=jax.random.key(0))
        result.save(out / name, ["age", "dose"], BOUNDS, classes, target)
        predicted = l2p.load_model(out / name).predict({name: np.array(cells) for name, cells in TABLE.items()})
        expected[name] = [None if np.isnan(value) else value for value in predicted.tolist()]
    (out / "expected.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")
