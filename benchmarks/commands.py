"""Wall time and peak memory of `l2p apply` on a table of 30,000 x 100, from CSV to card, and of `l2p demo`, as a user
runs them.

    python benchmarks/commands.py
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from l2p.tables.schema import Number, Schema, Target

NUM_ROWS, NUM_FEATURES = 30_000, 100


def write_table(folder: Path) -> None:
    """A random table with a linear teacher, and its bounds."""
    generator = np.random.default_rng(0)
    x = generator.random((NUM_ROWS, NUM_FEATURES))
    y = (x - 0.5) @ generator.normal(size=NUM_FEATURES) + 0.5 * generator.normal(size=NUM_ROWS) > 0
    columns = [f"c{index}" for index in range(NUM_FEATURES)]
    table = np.column_stack([x.round(6), y])
    np.savetxt(folder / "table.csv", table, delimiter=",", fmt="%g", header=",".join([*columns, "y"]), comments="")
    Schema(dict.fromkeys(columns, Number(0, 1)), Target("y", classes=(0, 1))).write(folder / "schema.json")


def measure(name: str, *arguments: str) -> None:
    """Run `l2p ARGUMENTS` in a separate process and print its time and memory."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "l2p", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{name} failed")
    print(f"{name}: {time.perf_counter() - began:.1f} s, {usage.ru_maxrss / 1024:.0f} MiB")


def main() -> None:
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_table(folder)
        table = ["--data", str(folder / "table.csv"), "--schema", str(folder / "schema.json")]
        budget = ["--epsilon", "0.1", "--delta", "1e-6"]
        for attempt in (1, 2, 3):
            out = str(folder / f"out{attempt}")
            measure(
                f"apply on {NUM_ROWS} x {NUM_FEATURES}",
                "apply",
                "--protector",
                "plain-adult",
                *table,
                *budget,
                "--out",
                out,
            )
        measure("demo", "demo", "--out", str(folder / "demo"))


if __name__ == "__main__":
    main()
