"""What a process costs before it computes: imports, compilation and memory, each in processes of their own; and the
first answer of l2p on a small table, with an empty folder of kept programs and with one that an earlier start filled.

python -m benchmarks.speed.start NAME ROWS    # 50 steps of logistic regression by one library, as this module times it
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks.speed.timing import Absent, Table

IMPORTS = ("jax", "l2p", "l2p.release.api", "sklearn.linear_model", "torch", "opacus", "jax_privacy")
LIBRARIES = {"l2p": "l2p", "jax-privacy": "jax_privacy"}
NUM_ROWS, QUICK_ROWS, NUM_FEATURES = 30_000, 500, 100
SMALL_ROWS, SMALL_FEATURES = 1_500, 9
STARTS = "first start", "next start"
FIT = """
import sys
import numpy as np
from l2p.estimators import PrivateClassifier
table = np.loadtxt(sys.argv[1], delimiter=",", skiprows=1)
PrivateClassifier(epsilon=1.0, delta=1e-6, bounds=(0, 1), classes=(0, 1)).fit(table[:, :-1], table[:, -1].astype(int))
"""
Commands = dict[str, list[str]]
#: Starts Python from a small process, and prints processor seconds and KiB: Linux counts a parent's as its child's.
LAUNCHER = """
import os, sys
nothing = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
pid = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[1:]], os.environ, file_actions=nothing)
_, status, usage = os.wait4(pid, 0)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def tables(quick: bool, rounds: int) -> Iterator[Table]:
    """Seconds and peak memory of imports, of first runs, and of l2p's commands."""
    rounds, num_rows = (1, QUICK_ROWS) if quick else (min(rounds, 3), NUM_ROWS)
    imports = {f"import {name}": ["-c", f"import {name}"] for name in IMPORTS}
    yield from processes("a process that imports", "import jax", imports, rounds)
    first = f"a process that imports l2p and takes 50 private steps on {num_rows:,} x 53, nothing compiled before"
    firsts = {name: ["-m", "benchmarks.speed.start", name, str(num_rows)] for name in LIBRARIES}
    yield from processes(first, "l2p", firsts, rounds)
    with tempfile.TemporaryDirectory() as name:
        typed = f"l2p on the command line, {num_rows:,} x {NUM_FEATURES} from CSV, nothing compiled before"
        yield from processes(typed, "l2p --help", commands(Path(name), num_rows), rounds)
        folder = Path(name) / "small"
        answers = first_answers(folder, quick)
        title = f"the first answer, {SMALL_ROWS:,} x {SMALL_FEATURES}, and that of the next start, which finds programs"
        yield from processes(title, "l2p apply, next start", answers, rounds, folder / "kept")


def processes(
    title: str, base: str, commands: Mapping[str, list[str]], rounds: int, kept: Path | None = None
) -> Iterator[Table]:
    """Two tables: seconds and MiB at most of commands for Python, which are run in turn; `{turn}` in a word stands for
    the number of the turn, for no run goes into the folder of another.

    With `kept`, compiled programs are kept in folders below it, one for each turn and name up to its comma.
    """
    absent = dict(reasons(commands))
    seconds: dict[str, list[float]] = {name: [] for name in commands if name not in absent}
    memory: dict[str, list[float]] = {name: [] for name in seconds}
    for turn in range(rounds):
        for name in seconds:
            words = (word.replace("{turn}", str(turn)) for word in commands[name])
            command = [sys.executable, "-S", "-c", LAUNCHER, *words]
            keeps = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
            if kept is not None:
                keeps = {"XDG_CACHE_HOME": str(kept / str(turn) / name.partition(",")[0])}
            launched = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, **keeps},
            )
            if launched.returncode:
                raise SystemExit(f"{title}: {name} ended with status {launched.returncode}")
            took, kibibytes = map(float, launched.stdout.split())
            seconds[name].append(took)
            memory[name].append(kibibytes / 1024)
    yield Table(title, "s", base, seconds, absent)
    yield Table(f"{title}: memory", "MiB", base, memory, absent)


def reasons(commands: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """The commands that need a library which is not installed, each with the reason."""
    for name in commands:
        module = LIBRARIES.get(name, name.removeprefix("import ") if name.startswith("import ") else None)
        if module is not None and importlib.util.find_spec(module.partition(".")[0]) is None:
            yield name, str(Absent.of(module))


def first_answers(folder: Path, quick: bool) -> Commands:
    """Commands that a newcomer types first, each twice; the quick ones leave the demo out."""
    data = write_table(folder, SMALL_ROWS, SMALL_FEATURES)
    words = {
        "l2p apply": ["-m", "l2p", "apply", *data, "--epsilon", "1", "--delta", "1e-6", "--out", str(folder / "apply")],
        "PrivateClassifier.fit": ["-c", FIT, data[1]],
        "l2p demo": ["-m", "l2p", "demo", "--out", str(folder / "demo")],
    }
    if quick:
        del words["l2p demo"]
    return {
        f"{name}, {start}": [*each[:-1], each[-1] + f"-{start.split()[0]}-{{turn}}"] if each[-2] == "--out" else each
        for name, each in words.items()
        for start in STARTS
    }


def write_table(folder: Path, num_rows: int, num_features: int) -> list[str]:
    """A random table with a linear teacher, written with its bounds; the options that name both files."""
    from l2p.tables.schema import Number, Schema, Target

    folder.mkdir(exist_ok=True)
    generator = np.random.default_rng(0)
    x = generator.random((num_rows, num_features))
    y = (x - 0.5) @ generator.normal(size=num_features) + 0.5 * generator.normal(size=num_rows) > 0
    columns = [f"c{index}" for index in range(num_features)]
    table, schema = folder / "table.csv", folder / "schema.json"
    header = ",".join([*columns, "y"])
    np.savetxt(table, np.column_stack([x.round(6), y]), delimiter=",", fmt="%g", header=header, comments="")
    Schema(dict.fromkeys(columns, Number(0, 1)), Target("y", classes=(0, 1))).write(schema)
    return ["--data", str(table), "--schema", str(schema)]


def commands(folder: Path, num_rows: int) -> Commands:
    """Commands on a random table, which is written here."""
    apply = ["apply", *write_table(folder, num_rows, NUM_FEATURES), "--epsilon", "0.1", "--delta", "1e-6"]
    words = {
        "l2p --help": ["--help"],
        "l2p apply --dry-run": [*apply, "--dry-run", "--out", str(folder / "plan{turn}")],
        "l2p apply": [*apply, "--out", str(folder / "run{turn}")],
        "l2p demo": ["demo", "--out", str(folder / "demo{turn}")],
    }
    return {name: ["-m", "l2p", *each] for name, each in words.items()}


def take_steps(name: str, num_rows: int) -> None:
    """The first 50 steps of a library in this process."""
    from benchmarks.speed import peers, steps
    from benchmarks.speed.work import Work

    prepare = steps.l2p_steps if name == "l2p" else peers.STEPS[name][0]
    prepare(Work("logistic", num_rows))()


if __name__ == "__main__":
    take_steps(sys.argv[1], int(sys.argv[2]))
