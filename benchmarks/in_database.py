"""Cost of noise where PostgreSQL takes the passes: bolt-on SGD over the same aggregate without noise.

    python benchmarks/in_database.py --postgresql postgresql:///postgres?host=/tmp [--rows 100000] [--rounds 3]

Makes the table `l2p_sgd_rows` of 54 random numbers and takes one pass in batches of 1, 10 and 500. Time is the server's
own, by clock_timestamp() before and after three parts of one run of `l2p.estimators.database.train`, a release: the
pass, all that the aggregate does; the noised answer, which adds the noise besides; and all of it, which also connects,
counts rows and keys, plans, draws the order and the noise, and writes the model with its card. So the ratios are of one
run each, whatever else the machine does. A shuffled scan of the same rows without the aggregate is timed beside them.
"""

import argparse
import platform
import statistics
from collections.abc import Callable
from typing import Any

import jax
from adbc_driver_postgresql import dbapi

from l2p.compare.summary import markdown
from l2p.estimators.database import SGD, TableRows, train
from l2p.privacy.budget import Budget
from l2p.protectors import BoltOn
from l2p.queries import PassDescent

TABLE, OUT, NUM_FEATURES, BATCHES = "l2p_sgd_rows", "l2p_sgd_model", 54, (1, 10, 500)
COLUMNS = [f"x{place}" for place in range(NUM_FEATURES)]


class Server:
    """A session that makes tables and tells the time."""

    def __init__(self, address: str):
        self._connection = dbapi.connect(address, autocommit=True)

    def ask(self, statement: str) -> list:
        """Rows that a statement returns; empty if it returns none."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def seconds(self, call: Callable[[], object]) -> float:
        """Seconds of a call by the server's clock."""
        began, _, ended = self._clock(), jax.block_until_ready(call()), self._clock()
        return ended - began

    def _clock(self) -> float:
        return float(self.ask("SELECT extract(epoch FROM clock_timestamp())::float8")[0][0])


def make(server: Server, num_rows: int) -> None:
    """The table, all of whose names are this script's own."""
    numbers = ", ".join(f"random() AS {name}" for name in COLUMNS)
    server.ask(f"DROP TABLE IF EXISTS {TABLE}")
    server.ask(f"CREATE TABLE {TABLE} AS SELECT i AS id, {numbers}, (random() < 0.5)::int AS y "  # noqa: S608
               f"FROM generate_series(1, {num_rows}) AS i")  # fmt: skip
    server.ask(f"ALTER TABLE {TABLE} ADD PRIMARY KEY (id)")
    server.ask(f"ANALYZE {TABLE}")


class Timed:
    """Wraps a method so that the server's clock is read before and after it."""

    def __init__(self, server: Server, method: Callable[..., Any]):
        self.server, self.method, self.spent = server, method, 0.0

    def __call__(self, *args: Any) -> Any:
        answers: list[Any] = []
        self.spent = self.server.seconds(lambda: answers.append(self.method(*args)) or answers)
        return answers[0]


def trained(server: Server, address: str, num_rows: int, batch: int) -> tuple[float, float, float]:
    """Seconds of the aggregate, of the noised answer that holds them, and of all of `train`, in one run."""
    protector = BoltOn(num_rows, num_passes=1, batch_size=batch)
    kinds = (TableRows, "passes"), (PassDescent, "answer")
    timers = [Timed(server, getattr(kind, name)) for kind, name in kinds]
    server.ask(f"DROP TABLE IF EXISTS {OUT}")
    at = {"at": address, "row_key": "id", "bounds": (0, 1), "classes": (0, 1), "budget": Budget(1.0, 1e-6)}
    try:
        for (kind, name), timer in zip(kinds, timers, strict=True):
            # A function is bound to the object that it is called on, and an instance is not.
            setattr(kind, name, lambda *args, timer=timer: timer(*args))
        seconds = server.seconds(lambda: train(TABLE, OUT, "y", COLUMNS, protector=protector, **at).params)  # pyrefly: ignore
    finally:
        for (kind, name), timer in zip(kinds, timers, strict=True):
            setattr(kind, name, timer.method)
    return timers[0].spent, timers[1].spent, seconds


def line(server: Server, address: str, num_rows: int, batch: int, rounds: int) -> list[str]:
    """Medians over rounds."""
    spans = [trained(server, address, num_rows, batch) for _ in range(rounds)]
    aggregate = statistics.median(plain for plain, _, _ in spans)
    added = statistics.median(answer - plain for plain, answer, _ in spans)
    over = statistics.median(answer / plain for plain, answer, _ in spans)
    seconds = statistics.median(all_of_it / plain for plain, _, all_of_it in spans)
    return [f"{batch}", f"{aggregate:.2f} s", f"{1000 * added:.0f} ms", f"{over:.4f}", f"{seconds:.2f}"]


def scanned(server: Server) -> float:
    """Seconds of a shuffled scan without the aggregate."""
    rows = f"SELECT ARRAY[{', '.join(COLUMNS)}] AS x FROM {TABLE} ORDER BY random()"  # noqa: S608
    return server.seconds(lambda: server.ask(f"SELECT count(x) FROM ({rows} OFFSET 0) AS rows"))  # noqa: S608


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Cost of noise where PostgreSQL takes the passes.")
    parser.add_argument("--postgresql", required=True, help="a database in which tables may be made")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    server = Server(options.postgresql)
    make(server, options.rows)
    (version,) = server.ask("SELECT current_setting('server_version')")[0]
    print(f"{platform.machine()}, PostgreSQL {version}, jax {jax.__version__}, {SGD.name}")
    print(f"{options.rows:,} rows x {NUM_FEATURES}; a shuffled scan alone {scanned(server):.2f} s\n")
    header = ["b", "one pass", "noise", "noised over one pass", "train over one pass"]
    line(server, options.postgresql, options.rows, options.rows, 1)  # compiles
    lines = [line(server, options.postgresql, options.rows, batch, options.rounds) for batch in BATCHES]
    print(markdown(header, lines), flush=True)
    server.ask(f"DROP TABLE IF EXISTS {OUT}")
    server.ask(f"DROP TABLE IF EXISTS {TABLE}")


if __name__ == "__main__":
    main()
