"""The table of docs/public_rows.md, and how far `universal` with a warm start is ahead, from the committed rows.

    python benchmarks/public_rows.py

The rows were made by the `l2p compare` command of that page, with --public-shift 0 and 2.
"""

import collections
from pathlib import Path

import numpy as np

from l2p.compare import results

FOLDER = Path(__file__).resolve().parent.parent / "docs/results/public_rows"
FILES = {"": "digits_odd.csv", ", shifted": "digits_odd_shifted.csv"}
OURS, ALONE, REFERENCE = "universal-no-digits:pretrained", "universal-no-digits", "nonprivate"


def main() -> None:
    found = collections.defaultdict(dict)
    for shift, file in FILES.items():
        for row in results.read(FOLDER / file):
            column, seed = (row["epsilon"], shift), row["seed"]
            found[row["method"], column][seed] = (row["test_loss"], row["test_accuracy"])
    columns = sorted({column for _, column in found}, key=lambda column: (column[1], column[0]))
    methods = list(dict.fromkeys(method for method, _ in found))
    values = {key: np.array([by_seed[seed] for seed in sorted(by_seed)]) for key, by_seed in found.items()}

    print("| method | " + " | ".join(f"{epsilon:g}{shift}" for epsilon, shift in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for method in methods:
        means = [values[method, column].mean(0) for column in columns]
        print(f"| `{method}` | " + " | ".join(f"{loss:.3f} ({100 * right:.1f})" for loss, right in means) + " |")
    for column in columns:
        rivals = [method for method in methods if "universal" not in method and method != REFERENCE]
        best = min(rivals, key=lambda method: values[method, column][:, 0].mean())
        for method in (best, ALONE):
            gains = values[method, column][:, 0] - values[OURS, column][:, 0]
            error = gains.std(ddof=1) / len(gains) ** 0.5
            print(f"epsilon {column[0]:g}{column[1]}: {gains.mean():+.4f} ({error:.4f}) over {method}")


if __name__ == "__main__":
    main()
