"""Tables of a user's own and their schemas, as files."""

import numpy as np

from l2p.tables.schema import Category, Number, Schema, Target

COLUMNS = {"age": Number(0, 100), "dose": Number(0, 1), "ward": Category(("a", "b"))}
TARGETS = {
    "binary": Target("back", classes=("no", "yes")),
    "multiclass": Target("back", classes=("no", "yes", "maybe")),
    "regression": Target("back", bounds=(0, 10)),
}


def write(folder, name, rows=200, kind="binary", seed=0):
    """A table and its schema as files."""
    draw = np.random.default_rng(seed)
    labels = TARGETS[kind].classes or tuple(range(10))
    lines = [
        f"{draw.integers(0, 100)},{draw.random():.3f},{draw.choice(['a', 'b'])},{labels[i % len(labels)]}"
        for i in range(rows)
    ]
    data, schema = folder / f"{name}.csv", folder / f"{name}.json"
    data.write_text("\n".join(["age,dose,ward,back", *lines, ""]))
    Schema(COLUMNS, TARGETS[kind]).write(schema)
    return data, schema
