"""Raw tables of a ward, and the commands that declare and train on them."""

import numpy as np

import l2p
from l2p.commands.cli import main
from l2p.tables.schema import Category, Ignore, Missing, Number, Schema, Target
from tests.canaries import observed

HEADER = "age;ward;name;back"
BUDGET = l2p.Budget(2.0, 1e-6)


def lines(count, seed, dotted=False):
    """Ages, wards of which one is rare and some are missing, names that are all different, and words for labels."""
    rng = np.random.default_rng(seed)
    for place, (age, ward) in enumerate(
        zip(rng.integers(0, 100, count), rng.choice(["a", "b", "?"], count), strict=True)
    ):
        back = "yes" if age + 40 * (ward == "a") > 70 else "no"
        yield f"{age if age % 9 else '?'}; {ward}; person {seed} {place}; {back}{'.' if dotted else ''}"


def make_schema(folder, *options, out="schema.json", data="private.csv"):
    return observed(
        lambda: main(["schema", str(folder / data), "--target", "back", "--out", str(folder / out), *options])
    )


def words(folder, declared, data="private.csv", **changes):
    options = {
        "--protector": "noisygd",
        "--data": str(folder / data),
        "--schema": str(folder / declared),
        "--epsilon": "2",
        "--delta": "1e-6",
    } | {"--" + name: value for name, value in changes.items()}
    return ["apply", *(word for pair in options.items() for word in pair if pair[1] is not None)]


WARD = Schema(
    {"age": Number(0, 100, Missing(50)), "ward": Category(("a", "b")), "name": Ignore()}, Target("back", ("no", "yes"))
)


def changed(**changes):
    fields = {"columns": WARD.columns, "target": WARD.target} | changes
    return Schema(**fields)


def declared(*classes):
    target = Target("back", classes=classes) if classes else Target("back", bounds=(0.0, 9.0))
    return Schema({"age": Number(0, 99), "ward": Category(("a", "b"))}, target)
