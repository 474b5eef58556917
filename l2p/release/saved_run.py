"""The file from which a run, or a loop, goes on after its process was killed.

It holds what a release may show: answers that were paid for, and what follows from them. Noise is not in it: what a
killed process drew and had not saved is drawn anew.
"""

import dataclasses
import fcntl
import hashlib
import json
import os
import re
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from l2p.base.errors import InputError
from l2p.base.whole_folder import sync
from l2p.privacy.events import Answered
from l2p.privacy.ledger.ledger import Ledger, new_id

#: A number of a plan, of which another machine may compute other last digits; and where an object lies in memory.
_NUMBER, _ADDRESS = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?"), re.compile(r" at 0x[0-9a-f]+")
#: The array with all that the file has beside those of a run: the plan's digest, the reservation, the state, the trace.
_OWN = "file"
GOES_ON, ENDED, FAILED = "goes on", "ended", "failed"


class SavedRun:
    """A run's file, which no other process can open meanwhile.

    The lock is on a file of its own beside it, so that copying the run's file does not end it.

    Attributes:
      reservation: the id under which the run reserves its budget in a ledger.
      state: `GOES_ON`, `ENDED` where it has asked its last query, or `FAILED`.
      is_new: whether there was no file.
      arrays: what `save` was given last; none for a run that has saved nothing.
      trace: its granted queries.
    """

    def __init__(self, path: Path, digest: str):
        self._path, self._digest = path, digest
        self.reservation, self.state, self.trace = new_id(), GOES_ON, list[Answered]()
        self.arrays: dict[str, np.ndarray] = {}
        self._unlock = weakref.finalize(self, os.close, _locked(path))
        try:
            self.is_new = not path.exists()
            if self.is_new:
                self._write()
            else:
                self._read()
        except BaseException:
            self.close()
            raise

    @property
    def ended(self) -> bool:
        """Whether it has asked its last query."""
        return self.state == ENDED

    def save(self, arrays: Mapping[str, np.ndarray], trace: Sequence[Answered] = (), state: str = GOES_ON) -> None:
        """Put it on disk, whole or not at all, in place of what was there."""
        self.arrays, self.trace, self.state = dict(arrays), list(trace), state
        self._write()

    def fail(self) -> None:
        """Say that it ended in an error: whoever saw which answers led there could choose among several by going on."""
        self.save(self.arrays, self.trace, FAILED)

    def forget(self) -> None:
        """Remove the file of a run that has asked nothing, because it is refused."""
        if self.is_new:
            self._path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let other processes open it."""
        self._unlock()

    def _write(self) -> None:
        own = {
            "digest": self._digest,
            "reservation": self.reservation,
            "state": self.state,
            "trace": [_fields(row) for row in self.trace],
        }
        own_bytes = np.frombuffer(json.dumps(own).encode(), np.uint8)
        content = save({_OWN: own_bytes} | {name: np.asarray(array, order="C") for name, array in self.arrays.items()})
        part = self._path.with_name(f".{self._path.name}.part")
        part.write_bytes(hashlib.sha256(content).digest() + content)
        sync(part)
        part.replace(self._path)
        sync(self._path.parent)

    def _read(self) -> None:
        content = self._path.read_bytes()
        digest, content = content[:32], content[32:]
        if hashlib.sha256(content).digest() != digest:
            raise InputError(
                f"{self._path} is no file of a run, or was changed since a run wrote it, so it cannot say what was "
                "spent; name another one."
            )
        try:
            self.arrays = load(content)
            own = json.loads(self.arrays.pop(_OWN).tobytes())
            stored, self.reservation, self.state = own["digest"], own["reservation"], own["state"]
            self.trace = [_answered(fields) for fields in own["trace"]]
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{self._path} is no file of a run that this version wrote ({type(error).__name__}); name another one."
            ) from error
        if stored != self._digest:
            raise InputError(
                f"{self._path} is of a run that was planned otherwise: with another method, budget, sampler, model, "
                "number of rows or steps, start, public rows, key or ledger. Its answers had other noise than this "
                "card would say; call as that run was called, or name another file."
            )
        if self.state == FAILED:
            raise InputError(
                f"the run in {self._path} ended in an error, and going on would choose among answers by what they led "
                "to; what it spent stays spent, and another run needs another file."
            )


def open_run(path: str | Path, facts: Sequence[Any], ledger: Ledger | None) -> SavedRun:
    """The file of a run, made if there is none.

    Args:
      path: of the file.
      facts: what was planned, public; a run goes on under the same alone. Of their floats five digits count.
      ledger: that it reserves in, or None.

    Raises:
      InputError: the file is of another run or of none, another process has it open, the run ended in an error, or the
        ledger has settled or released one that goes on here.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "mine.run")
    >>> run = open_run(path, ["noisygd", 900], None)
    >>> run.save({"step": np.array(3)})
    >>> run.close()
    >>> open_run(path, ["noisygd", 900], None).arrays
    {'step': array(3)}
    """
    account = None if ledger is None else [ledger.name, ledger.created]
    text = _ADDRESS.sub("", repr([*facts, account]))
    text = _NUMBER.sub(lambda number: f"{float(number[0]):.4e}", text)
    run = SavedRun(Path(path).resolve(), hashlib.sha256(text.encode()).hexdigest())
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


def digest_of(tree: Any) -> str:
    """SHA-256 of the bytes of a pytree's arrays."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def _locked(path: Path) -> int:
    """The number of an open file whose lock ends when it is closed, at the latest with the process."""
    try:
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise InputError(
            f"{path.parent} cannot hold the file of a run ({error.strerror}); name one in a folder that exists."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise InputError(
            f"another run has {path} open ({error.strerror}), and two that went on from it would spend twice what it "
            "counts; wait for that one, or name another file."
        ) from error
    return lock


def _fields(row: Answered) -> dict[str, Any]:
    answer = None if row.answer is None else np.asarray(row.answer, np.float64).tolist()
    return dataclasses.asdict(row) | {"answer": answer}


def _answered(fields: dict[str, Any]) -> Answered:
    answer = fields["answer"]
    return Answered(**fields | {"answer": None if answer is None else np.array(answer, np.float32)})
