"""Wall time and peak memory of one `l2p apply` on a table of 30,000 x 100, from CSV to card, as a user runs it.

python benchmarks/apply.py
"""

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

NUM_ROWS, NUM_FEATURES = 30_000, 100


def write_table(folder: Path) -> None:
    """A random table with a linear teacher, and its bounds."""
    generator = np.random.default_rng(0)
    x = generator.random((NUM_ROWS, NUM_FEATURES))
    y = (x - 0.5) @ generator.normal(size=NUM_FEATURES) + 0.5 * generator.normal(size=NUM_ROWS) > 0
    columns = [f"c{index}" for index in range(NUM_FEATURES)]
    table = np.column_stack([x.round(6), y])
    np.savetxt(folder / "table.csv", table, delimiter=",", fmt="%g", header=",".join([*columns, "y"]), comments="")
    (folder / "bounds.json").write_text(json.dumps({column: [0, 1] for column in columns}))


def main() -> None:
    print(f"{NUM_ROWS} x {NUM_FEATURES}; {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_table(folder)
        command = [sys.executable, "-m", "l2p", "apply", "--protector", "census", "--data", str(folder / "table.csv")]
        command += ["--target", "y", "--bounds", str(folder / "bounds.json"), "--test", str(folder / "table.csv")]
        command += ["--epsilon", "0.1", "--delta", "1e-6"]
        for attempt in (1, 2, 3):
            out = folder / f"out{attempt}"
            began = time.perf_counter()
            subprocess.run([*command, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
            metrics = json.loads((out / "metrics.json").read_text())
            print(f"run {attempt}: {time.perf_counter() - began:.1f} s, accuracy {metrics['test_accuracy']:.3f}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"peak memory of the largest run: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
