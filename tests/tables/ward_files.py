"""The ward's table, and where its copies are."""

import numpy as np

from l2p.privacy.budget import Budget
from l2p.tables.schema import Category, Ignore, Missing, Number, Schema, Target

N, STEPS = 3000, 3
BUDGET = Budget(2.0, 1e-6)
WARD = Schema(
    {
        "id": Ignore(),
        "age": Number(0, 120, Missing(50, indicator=True)),
        "dose": Number(-1, 1, curve=4),
        "smokes": Category((False, True)),
        "ward": Category(("a", "b é"), missing=Missing(indicator=True)),
    },
    Target("back", classes=("no", "yes")),
)
FILES = {"csv": "ward.csv", "parquet": "part-*.parquet", "duckdb": "ward.db"}
KINDS = ("csv", "parquet", "duckdb", "postgresql")
SECRET = "sesame"


def columns():
    rng = np.random.default_rng(0)
    age, dose = rng.integers(0, 130, N), rng.uniform(-1, 1, N)
    ward = rng.choice(["a", "b é", "c", ""], N)
    return {
        "id": np.arange(N) * 7 + 1,
        "age": [None if place % 11 == 0 else int(years) for place, years in enumerate(age)],
        "dose": dose,
        "smokes": rng.random(N) < 0.5,
        "ward": [name or None for name in ward],
        "back": np.where(age / 130 + dose > 0.5, "yes", "no").tolist(),
    }


def address_of(kind, request, folder, user="reader"):
    if kind == "postgresql":
        return request.getfixturevalue("server").address("ward", user, key="id")
    return f"duckdb://{folder}/ward.db?table=ward" if kind == "duckdb" else str(folder / FILES[kind])


def apply(folder, data, out, *words):
    WARD.write(folder / "schema.json")
    args = ["apply", "--data", *([data] if isinstance(data, str) else data), "--schema", str(folder / "schema.json")]
    return [*args, "--protector", "noisygd", "--epsilon", "2", "--delta", "1e-6", "--out", str(out), *words]
