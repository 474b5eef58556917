"""Raw Adult, 6 numbers and 8 categories, for learned and hand-designed methods at each budget.

    python -m benchmarks.raw_adult --folder FOLDER --out runs/raw_adult

FOLDER holds adult.data.gz, with a header line. Its schema is made from the table itself, as `l2p schema --from` does,
and the encoded table is compared on like any file of one's own: `universal` by the fold that never saw Adult, settings
of hand-designed methods tuned on IPUMS-BR, 20 seeds. Prints mean test losses and the verdicts of `win_table.py`.
"""

from pathlib import Path

import numpy as np
import tyro

from benchmarks import win_table
from l2p.compare import results
from l2p.compare.config import CompareConfig
from l2p.compare.runner import compare
from l2p.tables.reading import open_table
from l2p.tables.schema import Encoding, Number, Schema, Target, read_rows
from l2p.tables.schema.template import from_public

TARGET = "label"
#: Settings on IPUMS-BR ship for these.
TUNED = (
    *("noisygd", "dpsgd", "agd", "auto_clip", "adadp", "hyfree", "objpert"),
    *("noisygd_mean", "dp_fc", "dp_newton", "pass_glm"),
)
METHODS = (
    "universal",
    "control-universal",
    *(f"{name}:tuned" for name in TUNED),
    "noisygd_mean",
    "dp_fc",
    "dp_newton",
    "pass_glm",
    "noisygd:oracle",
    "nonprivate",
    "no_features",
)


def encoded(path: Path, out: Path) -> tuple[Path, Path]:
    """Write the table as numbers in [0, 1] with their schema, and return both files. The name says what it holds, so
    that nothing made from Adult is scored on it."""
    source = open_table(path)
    rows = read_rows(path, Encoding(from_public(source, source.names[-1], source.names, curve=0)))
    columns = [f"x{number}" for number in range(rows.x.shape[1])]
    table, schema = out / "adult.csv", out / "schema.json"
    out.mkdir(parents=True, exist_ok=True)
    lines = np.column_stack([rows.x, rows.y])
    np.savetxt(table, lines, fmt="%.9g", delimiter=",", header=",".join([*columns, TARGET]), comments="")
    Schema(dict.fromkeys(columns, Number(0, 1)), Target(TARGET, classes=(0, 1))).write(schema)
    return table, schema


def main(folder: Path, out: Path, seeds: int = 20, epsilon: tuple[float, ...] = (0.0125, 0.05, 0.2, 0.8)) -> None:
    """Encode, compare and print.

    Args:
      folder: of the raw table.
      out: for the encoded table and the comparison, which is resumed if it is found there.
      seeds: number of splits, each with its own noise.
      epsilon: budgets.
    """
    table, schema = encoded(folder / "adult.data.gz", out)
    config = CompareConfig(
        str(table),
        out / "comparison",
        schema=schema,
        methods=METHODS,
        epsilon=epsilon,
        delta=1e-6,
        seeds=seeds,
        aux="ipums_br",
    )
    rows = compare(config)
    print(f"| method |{''.join(f' {value:g} |' for value in epsilon)}\n|---|{'---|' * len(epsilon)}")
    for name, estimates in results.by_method(rows, "test_loss").items():
        cells = (f" {estimates[value].mean:.4f} ({estimates[value].error:.4f}) |" for value in epsilon)
        print(f"| {name} |{''.join(cells)}")
    for opponent, words in win_table.verdicts(rows).items():
        print(f"{opponent}: {', '.join(words)}")


if __name__ == "__main__":
    tyro.cli(main)
