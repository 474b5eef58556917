"""Cost of privacy where PostgreSQL takes the passes: `l2p.estimators.database.train` beside the control without noise.

    python -m benchmarks.in_database --postgresql postgresql:///postgres?host=/tmp [--rows 100000] [--rounds 5]

Makes the table `l2p_sgd_rows` of 54 random numbers, and takes 10 passes in batches of 1, 50 and 500, in rounds of a
release by `train` and of the control, `l2p_train` of sgd.sql, which scales rows once, too, and takes the same passes in
an order that the server draws; every other round, the control goes first. What is compared is processor time of the
whole server and of this process: the server must run on this machine, and do nothing else. As what else the machine
does slows all of a round, each release is compared with the control of its own round; shown are medians over rounds,
and of the comparison the least and the largest, too. Last, `train` is compared with its own encoding and passes alone,
the barest control that there could be. Sessions take compiled functions where the database has them
(l2p/estimators/database/extension).
"""

import argparse
import itertools
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from adbc_driver_postgresql import dbapi

from l2p.compare.summary import markdown
from l2p.estimators.database import TableRows, train
from l2p.estimators.database.rows import commands
from l2p.privacy.budget import Budget
from l2p.protectors import BoltOn
from l2p.queries import PassDescent

TABLE, OUT, NUM_FEATURES, NUM_PASSES, BATCHES = "l2p_sgd_rows", "l2p_sgd_model", 54, 10, (1, 50, 500)
_FEW = 1000
COLUMNS, LOW, HIGH = [f"x{place}" for place in range(NUM_FEATURES)], -20, 100
_LANGUAGE = """
SELECT lanname::text FROM pg_catalog.pg_aggregate JOIN pg_catalog.pg_proc p ON p.oid = aggtransfn
JOIN pg_catalog.pg_language l ON l.oid = prolang WHERE aggfnoid = 'pg_temp.l2p_sgd'::regproc
"""


class Server:
    """A session with the control, and the processor time of its whole server."""

    def __init__(self, address: str):
        self._connection = dbapi.connect(address, autocommit=True)
        for command in commands():
            self.ask(command)
        self._main = _stat(self.ask("SELECT pg_backend_pid()")[0][0])[0]

    def ask(self, statement: str) -> list:
        """Rows that a statement returns; empty if it returns none."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def seconds(self) -> float:
        """Processor time so far, of processes that have ended, too."""
        total = sum(_stat(self._main)[1])
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                parent, (user, system, *_) = _stat(int(process))
            except OSError:
                continue  # it has just ended
            total += user + system if parent == self._main else 0
        return total


def _stat(process: int) -> tuple[int, list[float]]:
    """The parent of a process, and the seconds that it and its ended children spent."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), [int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in fields[11:15]]


class Spent(NamedTuple):
    """Seconds of the server's processor and of this process's."""

    there: float
    here: float


def spent(server: Server, call: Callable[[], Any]) -> Spent:
    """The processor time of a call, with all connections that it made closed."""
    there, here = server.seconds(), time.process_time()
    call()
    here = time.process_time() - here
    time.sleep(0.5)  # sessions end a little after their connections
    return Spent(server.seconds() - there, here)


def make(server: Server, num_rows: int) -> None:
    """The table, all of whose names are this script's own."""
    numbers = ", ".join(f"{LOW} + {HIGH - LOW} * random() AS {name}" for name in COLUMNS)
    server.ask(f"DROP TABLE IF EXISTS {TABLE}")
    server.ask(f"CREATE TABLE {TABLE} AS SELECT i AS id, {numbers}, (random() < 0.5)::int AS y "  # noqa: S608
               f"FROM generate_series(1, {num_rows}) AS i")  # fmt: skip
    server.ask(f"ALTER TABLE {TABLE} ADD PRIMARY KEY (id)")
    server.ask(f"ANALYZE {TABLE}")
    server.ask("CHECKPOINT")


class Timed:
    """Wraps a method, adding up what its calls spend."""

    def __init__(self, server: Server, kind: type, name: str):
        self._method, self.spent = getattr(kind, name), Spent(0.0, 0.0)

        # A function is bound to the object that it is called on, and an instance is not.
        def timed(*args: Any) -> Any:
            there, here = server.seconds(), time.process_time()
            answer = jax.block_until_ready(self._method(*args))
            self.spent = Spent(server.seconds() - there, time.process_time() - here)
            return answer

        setattr(kind, name, timed)
        self.restore = lambda: setattr(kind, name, self._method)


class Round(NamedTuple):
    """What one release spent on its encoding, passes, noised answer and all of it; what one control spent."""

    encoding: Spent
    passes: Spent
    answer: Spent
    release: Spent
    control: Spent


def taken(server: Server, address: str, num_rows: int, batch: int, control_first: bool = False) -> Round:
    """One release and one control."""
    control = _control(server, num_rows, batch) if control_first else None
    protector = BoltOn(num_rows, num_passes=NUM_PASSES, batch_size=batch)
    at = {"at": address, "row_key": "id", "bounds": (LOW, HIGH), "classes": (0, 1), "budget": Budget(1.0, 1e-9)}
    methods = (TableRows, "__init__"), (TableRows, "passes"), (PassDescent, "answer")
    timers = [Timed(server, *method) for method in methods]
    server.ask(f"DROP TABLE IF EXISTS {OUT}")
    try:
        release = spent(server, lambda: train(TABLE, OUT, "y", COLUMNS, protector=protector, **at))  # pyrefly: ignore
    finally:
        for timer in timers:
            timer.restore()
    return Round(*(timer.spent for timer in timers), release, control or _control(server, num_rows, batch))


def _control(server: Server, num_rows: int, batch: int) -> Spent:
    server.ask(f"DROP TABLE IF EXISTS {OUT}")
    independent = f"ARRAY[{', '.join(f'({name} - ({LOW})) / {HIGH - LOW}' for name in COLUMNS)}]"
    call = f"CALL pg_temp.l2p_train('{TABLE}', '{OUT}', 'y', '{independent}', 'id', {NUM_PASSES}, {batch}"
    return spent(server, lambda: server.ask(f"{call}, noiseless => true)"))


def line(num_rows: int, batch: int, rounds: list[Round]) -> list[str]:
    """Medians over the rounds of a batch size."""
    there, here, control, passes, noise = np.median(
        [
            (*each.release, each.control.there, each.passes.there, each.answer.here - each.passes.here)
            for each in rounds
        ],
        axis=0,
    )
    ratios = [sum(each.release) / each.control.there for each in rounds]
    barest = [sum(each.release) / (sum(each.encoding) + sum(each.passes)) for each in rounds]
    return [
        f"{batch}",
        f"{NUM_PASSES * num_rows / passes:,.0f}",
        f"{1000 * noise:.0f} ms",
        f"{there:.2f} + {here:.2f} s",
        f"{control:.2f} s",
        f"{np.median([each.release.there / each.control.there for each in rounds]):.3f}",
        f"{np.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})",
        f"{np.median(barest):.3f} ({min(barest):.3f} to {max(barest):.3f})",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Cost of privacy where PostgreSQL takes the passes.")
    parser.add_argument("--postgresql", required=True, help="a database on this machine in which tables may be made")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    server = Server(options.postgresql)
    make(server, _FEW)
    taken(server, options.postgresql, _FEW, 1)  # compiles
    make(server, options.rows)
    ((version,),), ((language,),) = server.ask("SELECT current_setting('server_version')"), server.ask(_LANGUAGE)
    print(f"{platform.machine()}, PostgreSQL {version}, jax {jax.__version__}, the step in {language}")
    print(f"{options.rows:,} rows x {NUM_FEATURES}, {NUM_PASSES} passes\n")
    header = [
        "b",
        "rows / s in a pass",
        "noise",
        "train: server + client",
        "control",
        "server's",
        "all",
        "over its encoding and passes",
    ]
    rounds: dict[int, list[Round]] = {batch: [] for batch in BATCHES}
    for turn, batch in itertools.product(range(options.rounds), BATCHES):
        rounds[batch].append(taken(server, options.postgresql, options.rows, batch, turn % 2 == 1))
    lines = [line(options.rows, *of_batch) for of_batch in rounds.items()]
    print(markdown(header, lines), flush=True)
    server.ask(f"DROP TABLE IF EXISTS {OUT}")
    server.ask(f"DROP TABLE IF EXISTS {TABLE}")


if __name__ == "__main__":
    main()
