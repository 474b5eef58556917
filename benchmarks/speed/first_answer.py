"""CPU seconds until the first answer of l2p, and until that of its next start, which finds compiled programs.

python -m benchmarks.speed.first_answer [--quick]    # --quick leaves out the demo

Processes of their own, as users start them: `l2p apply` on a small table with the default protector,
`PrivateClassifier.fit`, and `l2p demo`. The first start has an empty cache; the next ones read what it kept.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from l2p.tables.schema import Number, Schema, Target

NUM_ROWS, NUM_FEATURES = 1_500, 9
#: Starts on a filled cache, of which the fastest counts: others on the machine only make it slower.
NEXT_STARTS = 2
FIT = """
import sys
import numpy as np
from l2p.estimators import PrivateClassifier
table = np.loadtxt(sys.argv[1], delimiter=",", skiprows=1)
PrivateClassifier(epsilon=1.0, delta=1e-6, bounds=(0, 1), classes=(0, 1)).fit(table[:, :-1], table[:, -1].astype(int))
"""


def measure(quick: bool = False) -> list[dict[str, Any]]:
    """A row per command: CPU and wall seconds of the first start and of the next one."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for command, words in commands(folder, quick).items():
            seconds = [
                started([*words, *_out(words, folder, start)], folder / command) for start in range(1 + NEXT_STARTS)
            ]
            first, following = seconds[0], min(seconds[1:])
            rows.append(
                {"command": command, "first_cpu": first[0], "first_wall": first[1]}
                | {"next_cpu": following[0], "next_wall": following[1]}
            )
    return rows


def commands(folder: Path, quick: bool) -> dict[str, list[str]]:
    """Words for Python by name; the table that two of them read is written here."""
    generator = np.random.default_rng(0)
    x = generator.random((NUM_ROWS, NUM_FEATURES))
    y = x[:, 0] + 0.5 * x[:, 1] + 0.3 * generator.normal(size=NUM_ROWS) > 0.75
    columns = [f"c{index}" for index in range(NUM_FEATURES)]
    table, schema = folder / "table.csv", folder / "schema.json"
    header = ",".join([*columns, "y"])
    np.savetxt(table, np.column_stack([x.round(6), y]), delimiter=",", fmt="%g", header=header, comments="")
    Schema(dict.fromkeys(columns, Number(0, 1)), Target("y", classes=(0, 1))).write(schema)
    data = ["--data", str(table), "--schema", str(schema), "--epsilon", "1", "--delta", "1e-6"]
    words = {"l2p apply": ["-m", "l2p", "apply", *data, "--out"], "PrivateClassifier.fit": ["-c", FIT, str(table)]}
    return words if quick else words | {"l2p demo": ["-m", "l2p", "demo", "--out"]}


def _out(words: list[str], folder: Path, start: int) -> list[str]:
    """A new folder to write to, for commands that end in --out."""
    return [str(folder / f"{words[2]}-{start}")] if words[-1] == "--out" else []


def started(words: list[str], cache: Path) -> tuple[float, float]:
    """CPU and wall seconds of a process with this cache."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment | {"XDG_CACHE_HOME": str(cache)},
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words[:3])} ended with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - began


if __name__ == "__main__":
    print(f"{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}; seconds of CPU (and wall)")
    for row in measure("--quick" in sys.argv[1:]):
        print(
            f"{row['command']:22s} first {row['first_cpu']:5.1f} ({row['first_wall']:.0f})   "
            f"next {row['next_cpu']:5.1f} ({row['next_wall']:.0f})"
        )
