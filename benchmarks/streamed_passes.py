"""Bolt-on SGD past memory (Fig. 2 of Wu et al. 2017): passes in random orders over Parquet and DuckDB, and in memory.

    python -m benchmarks.streamed_passes [--rows 100000 1000000 10000000] [--kinds Parquet DuckDB memory] [--passes 3]

A release of `bolt_on` (logistic regression, 10 numbers scaled by the schema, batches of 50, a fresh order in each pass)
from the table to its card. Each line is a process of its own, so that its peak memory is its own. Rows are counted and
checked in a first pass over the source, copied, encoded, in a second, and then shuffled and trained on in each of the
passes, of which the first compiles and is not timed. "memory" holds all rows, up to a million, and is run twice; of
the second run, which compiles nothing, a pass is all of it over the number of passes. All times are seconds of CPU.
"Noise" is how long the passes and their noise took over how long the passes took alone, by the parts of one run. Tables
and copies take 250 MB for each million rows, in $TMPDIR.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.row_sources import memory

COLUMNS = [f"x{place}" for place in range(10)]
BATCH = 50
#: The most rows that are also trained on in memory, where a million take half a GB.
MOST_IN_MEMORY = 1_000_000


def make(folder: Path, num_rows: int) -> dict[str, str]:
    """The same table in both forms: addresses by kind."""
    import duckdb

    parquet, database = folder / f"{num_rows}.parquet", folder / f"{num_rows}.db"
    numbers = ", ".join(f"random()::FLOAT AS {name}" for name in COLUMNS)
    with duckdb.connect(database, config={"memory_limit": "1GB", "threads": "1"}) as connection:
        connection.execute("SELECT setseed(0.5)")
        rows = f"SELECT {numbers} FROM range({num_rows})"  # noqa: S608 - all of it is this script's own
        connection.execute(f"CREATE TABLE ward AS SELECT *, (x0 > x1)::INT AS y FROM ({rows})")  # noqa: S608
        connection.execute(f"COPY ward TO '{parquet}' (FORMAT parquet)")
    return {"Parquet": str(parquet), "DuckDB": f"duckdb://{database}?table=ward", "memory": str(parquet)}


class Clock:
    """In place of a run's progress: the CPU time at which each row was read."""

    def __init__(self) -> None:
        self.moments, self._rows = [(0, time.process_time())], 0

    def read(self, rows: int) -> None:
        """Note the time after so many more rows."""
        self._rows += rows
        self.moments.append((self._rows, time.process_time()))

    def stepped(self, steps: int, max_steps: int) -> None:
        """All passes are one step."""

    def at(self, rows: int) -> float:
        """The time at which so many rows had been read."""
        return next(moment for count, moment in self.moments if count >= rows)


def seconds_in(owner: Any, name: str) -> Iterator[float]:
    """The seconds of CPU that calls of a method have taken so far, at each turn."""
    method, spent = getattr(owner, name), [0.0]

    def timed(*args: Any) -> Any:
        import jax

        began = time.process_time()
        result = method(*args)
        jax.block_until_ready(result)
        spent[0] += time.process_time() - began
        return result

    setattr(owner, name, timed)
    while True:
        yield spent[0]


def measure(kind: str, address: str, num_passes: int) -> None:
    """One line of the table."""
    import numpy as np

    import l2p
    from l2p.protectors import BoltOn
    from l2p.queries import PassDescent
    from l2p.tables.schema import Number, Schema, Target
    from l2p.tables.schema.stream import streamed
    from l2p.task.sources import ArraySource

    schema = Schema(dict.fromkeys(COLUMNS, Number(0, 1)), Target("y", classes=(0, 1)))
    budget, before, clock = l2p.Budget(1.0, 1e-9), memory("VmHWM"), Clock()

    def train(rows: Any, num_rows: int, **options: Any) -> None:
        l2p.private_train(rows, BoltOn(num_rows, num_passes, BATCH), budget, **options)

    if kind == "memory":
        import pyarrow.parquet

        num_rows = pyarrow.parquet.read_metadata(address).num_rows
        train(address, num_rows, schema=schema)
        began = time.process_time()
        train(address, num_rows, schema=schema)
        pass_over, noise = (time.process_time() - began) / num_passes, ""
        steps = ["", ""]
    else:
        few = l2p.Rows(np.zeros((500, len(COLUMNS)), np.float32), np.zeros(500), np.ones(500))
        train(ArraySource(few, 500), 500)  # compiles what does not depend on the number of rows
        in_noise = seconds_in(PassDescent, "release")
        next(in_noise)
        began = time.process_time()
        with streamed(address, schema) as table:
            num_rows, counted = table.num_rows, time.process_time()
            table.progress = clock  # type: ignore[assignment]
            train(table, num_rows)
        first, last = clock.at(2 * num_rows), clock.at((num_passes + 1) * num_rows)
        pass_over = (last - first) / (num_passes - 1)
        of_run = last - clock.at(num_rows)
        noise = f"{1 + next(in_noise) / of_run:.4f}"
        steps = [f"{counted - began:.1f}", f"{clock.at(num_rows) - clock.moments[1][1]:.1f}"]
    cells = [kind, f"{num_rows:,}", *steps, f"{pass_over:.2f}", f"{num_rows / pass_over / 1e3:,.0f}", noise]
    cells += [f"{memory(field):.0f}" for field in ("VmHWM", "RssFile")]
    print("| " + " | ".join([*cells[:-2], f"{before:.0f}", *cells[-2:]]) + " |", flush=True)


def main(sizes: list[int], kinds: list[str], num_passes: int) -> None:
    import duckdb
    import jax

    print(
        f"{len(COLUMNS)} features, batches of {BATCH}; jax {jax.__version__}, duckdb {duckdb.__version__}, "
        f"{platform.python_version()}, {os.cpu_count()} cores"
    )
    print(
        "| rows in | rows | count | copy | a pass | thousand rows per CPU second | noise | MB before | MB at most | "
        "of files |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for num_rows in sizes:
            for kind, address in make(Path(folder), num_rows).items():
                if kind in kinds and (kind != "memory" or num_rows <= MOST_IN_MEMORY):
                    words = ["--measure", kind, address, "--passes", str(num_passes)]
                    subprocess.run([sys.executable, __file__, *words], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--kinds", nargs="+", default=["Parquet", "DuckDB", "memory"])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--measure", nargs=2, metavar=("KIND", "ADDRESS"), help="one line, in this process")
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure, options.passes)
    else:
        main(options.rows, options.kinds, options.passes)
