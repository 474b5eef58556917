"""Times l2p beside other programs that do the same work: one thread each, in turn, in one process on one core.

    python -m benchmarks --quick --only steps
    python -m benchmarks --json FILE    # everything; what was measured replaces these parts of FILE, JSON lines
    python -m benchmarks --page FILE    # writes benchmarks/pages/speed.md from it, and runs nothing

Other libraries are in the extra `bench`; those that are not installed are left out, with a line that says so.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

#: Parts of the benchmark, each a module below benchmarks/speed with a function `tables`.
PARTS = {
    "steps": "private steps of four models against plain ones, BLAS, jax-privacy and Opacus",
    "replicates": "64 runs on one table at once",
    "releases": "releases against simulations of the same run, and their noise",
    "training": "meta-gradients against the same unroll in PyTorch, and whole outer steps",
    "passes": "bolt-on SGD and its rivals over the same pass without noise",
    "accounting": "pricing and certifying a run against dp-accounting",
    "start": "imports, first runs and commands: time and memory",
}
#: Names of threads' numbers, which libraries read when they are imported.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(words: Sequence[str] | None = None) -> None:
    """Run the parts that were asked for."""
    epilog = "parts:\n" + "\n".join(f"  {name:12s} {about}" for name, about in PARTS.items())
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__, epilog=epilog, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="small tables and few rounds, to see that all works")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME", help="these parts")
    parser.add_argument("--rounds", type=int, help="how often each contender is timed; 9 are the default, 3 if quick")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the measurements in this file")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page from this file, and run nothing")
    options = parser.parse_args(words)
    if options.page is not None:
        from benchmarks.speed import report

        report.write_page(options.page)
        return
    core = bind()
    from benchmarks.speed import report

    rounds = options.rounds or (3 if options.quick else 9)
    about = report.about(core, options.quick, rounds)
    print(f"{about['machine']}; {about['versions']}", flush=True)
    for name in options.only:
        part = importlib.import_module(f"benchmarks.speed.{name}")
        tables = []
        for table in part.tables(options.quick, rounds):
            print(f"\n{report.markdown(table)}", flush=True)
            tables.append(table)
            if options.json is not None:
                report.keep(options.json, name, about, tables)


def bind() -> int:
    """Bind this process and what it starts to one core and one thread; the core's number."""
    for name in ONE_THREAD:
        os.environ[name] = "1"
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


if __name__ == "__main__":
    sys.exit(main())
