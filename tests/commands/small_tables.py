"""A small table with a schema, and a run on it."""

import numpy as np

from l2p.commands.cli import main
from l2p.privacy.accountants import covering, of_fixed_noise
from l2p.privacy.cost.sampling import FullBatch
from l2p.tables.schema import Number, Schema, Target

NUM_ROWS = 1500
SECRET = 61.0625  # a cell of every table below that no message may quote
SCHEMA = Schema({"age": Number(0, 120), "dose": Number(-1, 1)}, Target("readmit", classes=(0, 1)))


def write_table(path, label=(0, 1), columns=("age", "dose", "readmit"), spoil=(), seed=0):
    """A table whose label depends on its features; `spoil` is a list of (row, column, text) to insert."""
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 120, NUM_ROWS), rng.uniform(-1, 1, NUM_ROWS)
    age[0] = SECRET
    labels = np.where(age / 60 + dose > 1, label[1], label[0])
    cells = [[f"{a:.4f}", f"{d:.4f}", f"{y:g}"] for a, d, y in zip(age, dose, labels, strict=True)]
    for row, column, text in spoil:
        cells[row][column] = text
    path.write_text("\n".join(",".join(line) for line in [columns, *cells]) + "\n")
    return path


def apply(options):
    return main(["apply", *(word for option, value in options.items() for word in (option, *value.split(" ")))])


FILTERS = [name for name in covering(FullBatch()) if name not in ("basic", *of_fixed_noise())]
RUNS = [("noisygd", name) for name in FILTERS] + [("agd", "rdp"), ("agd", "zcdp"), ("agd", "ctcdp")]
