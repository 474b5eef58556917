"""The tables of docs/public_rows.md, and how far `universal` with a warm start is ahead, from the committed rows.

    python benchmarks/public_rows.py [digits_odd|breast_cancer]

The rows were made by the `l2p compare` commands of that page, with --public-shift 0, and 2 for a set's second file.
"""

import collections
import sys
from pathlib import Path

import numpy as np

from l2p.compare import results

FOLDER = Path(__file__).resolve().parent.parent / "docs/results/public_rows"
FILES = {"": "{}.csv", ", shifted": "{}_shifted.csv"}
REFERENCE = "nonprivate"


def main(data: str) -> None:
    found = collections.defaultdict(dict)
    for shift, file in FILES.items():
        path = FOLDER / file.format(data)
        for row in results.read(path) if path.exists() else ():
            column, seed = (row["epsilon"], shift), row["seed"]
            found[row["method"], column][seed] = (row["test_loss"], row["test_accuracy"])
    columns = sorted({column for _, column in found}, key=lambda column: (column[1], column[0]))
    methods = list(dict.fromkeys(method for method, _ in found))
    alone = next(method for method in methods if method.startswith("universal") and ":" not in method)
    ours = f"{alone}:pretrained"
    values = {key: np.array([by_seed[seed] for seed in sorted(by_seed)]) for key, by_seed in found.items()}

    print("| method | " + " | ".join(f"{epsilon:g}{shift}" for epsilon, shift in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for method in methods:
        means = [values[method, column].mean(0) for column in columns]
        print(f"| `{method}` | " + " | ".join(f"{loss:.3f} ({100 * right:.1f})" for loss, right in means) + " |")
    for column in columns:
        rivals = [method for method in methods if "universal" not in method and method != REFERENCE]
        best = min(rivals, key=lambda method: values[method, column][:, 0].mean())
        for method in (best, alone):
            gains = values[method, column][:, 0] - values[ours, column][:, 0]
            error = gains.std(ddof=1) / len(gains) ** 0.5
            print(f"epsilon {column[0]:g}{column[1]}: {gains.mean():+.4f} ({error:.4f}) over {method}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["digits_odd"])
