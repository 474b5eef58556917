"""Private passes over rows where they live: rows per second and peak memory, from Parquet, DuckDB and PostgreSQL.

    python -m benchmarks.row_sources [--rows 100000 1000000] [--kinds Parquet DuckDB] [--passes 3]
        [--no-batches] [--stages] [--postgresql postgresql:///postgres?host=/tmp]

A pass is one step of noisy gradient descent (logistic regression, 54 numbers scaled by the schema, exact sums, noise),
read from the source anew; the first one compiles and is not timed. "Permuted" passes read DuckDB's rows in the order of
a column of hashes, by which it sorts them on disk. Each line is a process of its own, so that its peak memory is its
own. Beside it is what it had taken before it opened the table, and how much of the peak is no memory of its own but
pages of libraries' files. --postgresql names a database in which tables `l2p_rows_N` may be made; without it there are
no such lines. The last lines are batches: 200 Poisson steps of 1,000 rows each, read ahead, with the passes that they
took. Tables take 220 MB twice for each million rows, in $TMPDIR.
"""

import argparse
import dataclasses
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NUM_FEATURES, STEPS, BATCH = 54, 200, 1000
COLUMNS = [f"x{place}" for place in range(NUM_FEATURES)]


def make(folder: Path, num_rows: int, postgresql: str | None) -> dict[str, str]:
    """The same table everywhere: addresses by kind."""
    import duckdb

    parquet, database = folder / f"{num_rows}.parquet", folder / f"{num_rows}.db"
    numbers = ", ".join(f"random()::FLOAT AS {name}" for name in COLUMNS)
    with duckdb.connect(database, config={"memory_limit": "1GB", "threads": "1"}) as connection:
        connection.execute("SELECT setseed(0.5)")
        # All that is pasted together here is this script's own.
        rows = f"SELECT i AS id, hash(i) AS shuffled, {numbers} FROM range({num_rows}) r(i)"  # noqa: S608
        connection.execute(f"CREATE TABLE ward AS SELECT *, (x0 > x1)::INT AS y FROM ({rows})")  # noqa: S608
        connection.execute(f"COPY ward TO '{parquet}' (FORMAT parquet)")
        there = f"duckdb://{database}?table=ward"
        addresses = {"Parquet": str(parquet), "DuckDB": there, "DuckDB, permuted": f"{there}&key=shuffled"}
        if postgresql is not None:
            from adbc_driver_postgresql import dbapi

            with dbapi.connect(postgresql) as server, server.cursor() as cursor:
                reader = connection.sql("FROM ward").to_arrow_reader(2**14)
                cursor.adbc_ingest(f"l2p_rows_{num_rows}", reader, mode="replace")
                server.commit()
            addresses["PostgreSQL"] = f"{postgresql}&table=l2p_rows_{num_rows}"
    return addresses


def memory(field: str) -> float:
    """MB that this process has taken, as Linux calls them; rusage would count what its parent took before it."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def measure(kind: str, address: str, num_passes: int, batches: bool, stages: bool) -> None:
    """One line of the table, and what is held at each stage of the run if that is wanted."""

    def reached(stage: str) -> None:
        if stages:
            print(f"{stage}: {memory('RssAnon'):.0f} MB, {memory('RssFile'):.0f} of files", file=sys.stderr, flush=True)

    import jax

    from l2p.models import Logistic
    from l2p.oracle.setup import Setup
    from l2p.privacy.budget import Budget
    from l2p.privacy.cap.filter import Filter
    from l2p.privacy.cost.sampling import FullBatch, Poisson
    from l2p.protectors import HAND_DESIGNED
    from l2p.run.run import Release, advance_streaming, plan_noise, start
    from l2p.tables.schema import Ignore, Number, Schema, Target
    from l2p.tables.schema.stream import streamed
    from l2p.task.entropy import Entropy

    budget, model, columns = Budget(1.0, 1e-8), Logistic(), dict.fromkeys(COLUMNS, Number(0, 1))
    schema = Schema({"id": Ignore(), "shuffled": Ignore(), **columns}, Target("y", classes=(0, 1)))
    before = memory("VmHWM")
    reached("imports")
    with streamed(address, schema) as table:
        reached("first pass, which counts rows")
        sampler = Poisson(BATCH / table.num_rows) if batches else FullBatch()
        accountant = "rdp" if batches else "gdp"
        protector = dataclasses.replace(HAND_DESIGNED["dpsgd" if batches else "noisygd"](budget), sampler=sampler)
        prices = Filter(accountant, budget, sampler, STEPS).price_list()
        setup = dataclasses.replace(Setup.create(model, budget.adjacency, prices, table.num_rows), cap=float("inf"))
        params = model.init(NUM_FEATURES)
        at_start, per_step = plan_noise(protector, params, table.num_rows, NUM_FEATURES, setup)
        entropy = Entropy()
        with jax.enable_x64(True):
            begun = Release(entropy.draw(at_start, 1), [], at_start, ())
            run, _ = start(protector, params, table, setup, begun)

            reached("start")

            def go(run, num_steps):
                noise = Release([], entropy.draw(per_step, num_steps), (), per_step)
                return advance_streaming(protector, run, table, setup, noise, num_steps)[0]

            run = go(run, 1)
            reached("first step")
            passes = [0]
            blocks = table.blocks
            table.blocks = lambda: (passes.__setitem__(0, passes[0] + 1), blocks())[1]  # type: ignore[method-assign]
            began, cpu = time.perf_counter(), time.process_time()
            run = go(run, STEPS if batches else num_passes)
            jax.block_until_ready(run.params)
            reached("end")
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    read = passes[0] * table.num_rows
    print(
        f"| {kind} | {table.num_rows:,} | {passes[0]} | {seconds:.1f} | {read / seconds / 1e3:,.0f} | "
        f"{read / cpu / 1e3:,.0f} | {before:.0f} | {memory('VmHWM'):.0f} | {memory('RssFile'):.0f} |",
        flush=True,
    )


def main(
    sizes: list[int],
    postgresql: str | None,
    kinds: list[str] | None,
    num_passes: int,
    has_batches: bool,
    stages: bool,
) -> None:
    import duckdb
    import jax

    print(
        f"{NUM_FEATURES} features; jax {jax.__version__}, duckdb {duckdb.__version__}, {platform.python_version()}, "
        f"{os.cpu_count()} cores"
    )
    print("| source | rows | passes | seconds | thousand rows/s | per CPU second | MB before | MB at most | of files |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        tables = {num_rows: make(Path(folder), num_rows, postgresql) for num_rows in sizes}
        for batches in (False, True) if has_batches else (False,):
            for num_rows, addresses in tables.items():
                for kind, address in addresses.items():
                    if kinds is not None and kind not in kinds:
                        continue
                    if not batches or (num_rows == sizes[-1] and kind == "DuckDB"):
                        words = ["--measure", f"{kind}{', batches' if batches else ''}", address]
                        words += ["--passes", str(num_passes), *(["--stages"] if stages else [])]
                        subprocess.run([sys.executable, __file__, *words], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--postgresql")
    parser.add_argument("--kinds", nargs="+", help="of sources; all are the default")
    parser.add_argument("--passes", type=int, default=3, help="that are timed")
    parser.add_argument("--no-batches", action="store_true")
    parser.add_argument("--stages", action="store_true", help="print what is held at each stage of a run, too")
    parser.add_argument("--measure", nargs=2, metavar=("KIND", "ADDRESS"), help="one line, in this process")
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure, options.passes, "batches" in options.measure[0], options.stages)
    else:
        main(options.rows, options.postgresql, options.kinds, options.passes, not options.no_batches, options.stages)
