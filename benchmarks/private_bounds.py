"""Cost of buying bounds: test scores with private bounds beside those with declared ones, on five real tables.

    python -m benchmarks.private_bounds FOLDER [--seeds 5] [--epsilon .1 1] [--out FILE.csv]

FOLDER holds the tables as OpenML publishes them, under the names in `TABLES`.

Declared bounds are those that `l2p schema --from` reads off the whole table, so they are as good as anybody could
declare them; the private ones are bought with the default share of the same budget, for every number at once. Runs are
simulations by `universal` of the same split and key.
"""

import argparse
import csv
import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import l2p
from l2p.run.simulate import mean_loss, score
from l2p.tables.reading import RawSource, open_table
from l2p.tables.schema import Encoding, Missing, Number, Schema, read_rows
from l2p.tables.schema.template import from_public

TABLES = {
    "adult": "adult.data.gz",
    "sick": "sick.arff.gz",
    "page.blocks": "page.blocks.arff.gz",
    "elevators": "elevators.arff.gz",
    "mv": "mv.arff.gz",
}
COLUMNS = (
    "table",
    "rows",
    "numbers",
    "epsilon",
    "metric",
    "declared",
    "private",
    "sd",
    "loss_declared",
    "loss_private",
)


def columns_of(source: RawSource) -> dict[str, np.ndarray]:
    """All cells of a public table."""
    blocks = list(source.blocks(source.names))
    return {name: np.concatenate([block[name] for block in blocks]) for name in source.names}


def undeclared(schema: Schema) -> Schema:
    """The schema with every number's bounds private; what stands in for missing cells stays."""
    private = {
        name: Number.private(None if column.missing is None else Missing(column.missing.fill, column.missing.indicator))
        for name, column in schema.columns.items()
        if isinstance(column, Number)
    }
    return dataclasses.replace(schema, columns={**schema.columns, **private})


def scores(data: dict, schema: Schema, epsilon: float, seed: int) -> tuple[float, float]:
    """Accuracy or squared error, and loss, on a fifth of the rows."""
    order = np.random.default_rng(seed).permutation(len(next(iter(data.values()))))
    cut = len(order) // 5
    test, train = ({name: cells[part] for name, cells in data.items()} for part in (order[:cut], order[cut:]))
    target = schema.target
    model = "square" if target.classes is None else "logistic" if len(target.classes) == 2 else "softmax"
    budget = l2p.Budget(epsilon, 1e-6)
    key = jax.random.key(seed)
    result = l2p.private_train(train, budget=budget, model=model, schema=schema, key=key, on_invalid="null")
    rows = jax.tree.map(jnp.asarray, read_rows(test, Encoding(result.schema), "null"))
    trained = result.model
    return float(score(result.params, trained, rows, target.kind)), float(mean_loss(result.params, trained, rows))


def main() -> None:
    """Print a line per table and budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = []
    print(" ".join(COLUMNS), flush=True)
    for table in options.tables:
        source = open_table(options.folder / TABLES[table])
        data, declared = columns_of(source), from_public(source, source.names[-1], curve=0)
        both = declared, undeclared(declared)
        numbers = len(both[1].private_bounds)
        for epsilon in options.epsilon:
            by_seed = np.array(
                [[scores(data, schema, epsilon, seed) for schema in both] for seed in range(options.seeds)]
            )
            means, metric = by_seed.mean(0), "mse" if declared.target.classes is None else "accuracy"
            spread = (by_seed[:, 1, 0] - by_seed[:, 0, 0]).std(ddof=1) if options.seeds > 1 else float("nan")
            values = (means[0, 0], means[1, 0], spread, means[0, 1], means[1, 1])
            rows = len(next(iter(data.values()))) * 4 // 5
            lines.append((table, rows, numbers, epsilon, metric, *(f"{value:.4f}" for value in values)))
            print(*lines[-1], flush=True)
    if options.out is not None:
        with options.out.open("w", newline="") as out:
            csv.writer(out).writerows([COLUMNS, *lines])


if __name__ == "__main__":
    sys.exit(main())
