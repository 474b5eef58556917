"""The file from which a run, or a loop, goes on after its process was killed.

It holds what a release may show: answers that were paid for, and what follows from them. Noise is not in it. What a
killed process drew and had not saved is drawn anew: nobody has seen those answers, and they are counted once.
"""

import contextlib
import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from l2p.base.errors import InputError
from l2p.privacy.events import Answered
from l2p.privacy.ledger.ledger import Ledger, new_id

#: What SQLite knows such a file by: "l2pR".
_APPLICATION = 0x6C327052
_SCHEMA = (
    f"PRAGMA application_id = {_APPLICATION}",
    "CREATE TABLE plan (digest TEXT, reservation TEXT)",
    "CREATE TABLE state (content BLOB, ended INTEGER)",
    "CREATE TABLE trace (content TEXT)",
)


class SavedRun:
    """An open file of a run, which no other process can open meanwhile.

    Attributes:
      reservation: the id under which the run reserves its budget in a ledger.
      ended: whether it has asked its last query.
    """

    def __init__(self, connection: sqlite3.Connection, reservation: str):
        self._connection, self.reservation = connection, reservation
        states = connection.execute("SELECT content, ended FROM state").fetchall()
        self._content, self.ended = (states[0][0], bool(states[0][1])) if states else (None, False)

    def restore(self) -> tuple[dict[str, np.ndarray], list[Answered]] | None:
        """What `save` was given last, and all rows of the trace; None for a run that has saved nothing."""
        if self._content is None:
            return None
        rows = self._connection.execute("SELECT content FROM trace ORDER BY rowid").fetchall()
        return load(self._content), [_answered(json.loads(content)) for (content,) in rows]

    def save(self, arrays: Mapping[str, np.ndarray], rows: Sequence[Answered] = (), ended: bool = False) -> None:
        """Put the state on disk, whole or not at all.

        Args:
          arrays: in place of those before.
          rows: of the trace, after those before.
          ended: whether the run has asked its last query.
        """
        content = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
        with _transaction(self._connection):
            self._connection.execute("DELETE FROM state")
            self._connection.execute("INSERT INTO state VALUES (?, ?)", (content, int(ended)))
            self._connection.executemany("INSERT INTO trace VALUES (?)", [(_text(row),) for row in rows])
        self.ended = ended

    def close(self) -> None:
        """Let other processes open it."""
        self._connection.close()


def open_run(path: str | Path, facts: Sequence[Any], ledger: Ledger | None) -> SavedRun:
    """The file of a run, made if there is none.

    Args:
      path: of the file.
      facts: what was planned, public; a run goes on under the same alone.
      ledger: that it reserves in, or None.

    Raises:
      InputError: the file is of another run or of none, another process has it open, or the ledger has settled its
        run, which has not ended here.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "mine.run")
    >>> run = open_run(path, ["noisygd", 900], None)
    >>> run.save({"step": np.array(3)})
    >>> run.close()
    >>> open_run(path, ["noisygd", 900], None).restore()
    ({'step': array(3)}, [])
    """
    path = Path(path)
    account = None if ledger is None else [ledger.name, ledger.created]
    digest = hashlib.sha256(repr([*facts, account]).encode()).hexdigest()
    try:
        run = _opened(path, digest)
    except sqlite3.OperationalError as error:
        raise InputError(
            f"{path} cannot be opened ({error}), and two processes that went on with one run would spend twice what "
            "it counts; wait for the one that has it, or name a file in a folder that exists."
        ) from error
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"{path} is no file of a run ({error}), so it cannot say what was spent; name another one."
        ) from error
    if ledger is not None and not run.ended:
        states = {entry.id: entry.state for entry in ledger.entries()}
        if states.get(run.reservation, "reserved") != "reserved":
            run.close()
            raise InputError(
                f"the ledger of {ledger.name} has the run in {path} as {states[run.reservation]}, so what it still "
                "asks for would not be counted: another copy of the file may have been finished; begin a run of its "
                "own, with another file."
            )
    return run


def _opened(path: Path, digest: str) -> SavedRun:
    # Callbacks of a loop come from threads of JAX's, one at a time.
    connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # the lock lasts until the process ends
        with _transaction(connection):
            is_new = not connection.execute("SELECT 1 FROM sqlite_master").fetchall()
            if is_new:
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO plan VALUES (?, ?)", (digest, new_id()))
        if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            raise InputError(f"{path} is no file of a run, so it cannot say what was spent; name another one.")
        ((stored, reservation),) = connection.execute("SELECT digest, reservation FROM plan").fetchall()
        if stored != digest:
            raise InputError(
                f"{path} is of a run that was planned otherwise: with another method, budget, model, number of rows, "
                "key or ledger. Its answers had other noise than this card would say; call as that run was called, or "
                "name another file."
            )
        return SavedRun(connection, reservation)
    except BaseException:
        connection.close()
        raise


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _text(row: Answered) -> str:
    answer = None if row.answer is None else np.asarray(row.answer, np.float64).tolist()
    return json.dumps(dataclasses.asdict(row) | {"answer": answer})


def _answered(fields: dict[str, Any]) -> Answered:
    answer = fields["answer"]
    return Answered(**fields | {"answer": None if answer is None else np.array(answer, np.float32)})
