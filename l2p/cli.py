"""The command line: `l2p COMMAND`. Commands import JAX only when they run, so that help comes at once.

Exit codes: 0 done; 2 bad input, said in one sentence on standard error, with nothing spent; 130 and 143 interrupted by
Ctrl-C or SIGTERM, with a line on standard error that says what stays reserved; 1 anything else.
"""

import contextlib
import dataclasses
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import tyro

from l2p import __version__
from l2p.commands.account import Account
from l2p.commands.apply import Apply
from l2p.commands.compare import Compare, with_config
from l2p.commands.leaderboard import Leaderboard
from l2p.commands.ledger import Ledger
from l2p.commands.meta_train import MetaTrain
from l2p.commands.plan import Plan
from l2p.commands.predict import Predict
from l2p.commands.protectors import Protectors
from l2p.commands.schema import MakeSchema
from l2p.errors import InputError, NoResult, RowsError


@dataclasses.dataclass(frozen=True)
class Demo:
    """Train on packaged data, offline and in seconds, and write a report."""

    out: Path | None = None
    """Folder for the report."""

    def run(self) -> int:
        """Run it."""
        from l2p.commands.demo import main

        main(self.out)
        return 0


DESCRIPTION = """Learned private optimizers: meta-trained on public tasks, run on private data within a budget.

Exit codes: 0 done; 2 bad input, said in one sentence, with nothing spent; 130 and 143 interrupted by Ctrl-C or SIGTERM;
1 anything else. `l2p --version` prints the version."""
_INTERRUPTED = {128 + signal.SIGINT, 128 + signal.SIGTERM}
COMMANDS: dict[str, Callable[..., Any]] = {
    "schema": MakeSchema,
    "apply": Apply,
    "predict": Predict,
    "protectors": Protectors,
    "plan": Plan,
    "account": Account,
    "ledger": Ledger,
    "compare": Compare,
    "leaderboard": Leaderboard,
    "demo": Demo,
    "meta-train": MetaTrain,
}


def run_process() -> NoReturn:
    """The process `l2p`: `main`, and its exit code."""
    code = main()
    if code in _INTERRUPTED:
        # JAX may still compute in threads of its own, which Python's usual end of a process crashes.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line, `sys.argv[1:]` by default, and return the exit code.

    >>> main(["--help"])  # doctest: +ELLIPSIS
    usage: l2p ...
    0
    """
    args = sys.argv[1:] if args is None else args
    if list(args) == ["--version"]:
        print(f"l2p {__version__}")
        return 0
    errors = io.StringIO()
    try:
        args = with_config(args)
        with contextlib.redirect_stderr(errors):
            command = tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="l2p", description=DESCRIPTION, args=args)
    except SystemExit as stop:
        if stop.code:
            print(_sentence(errors.getvalue()), file=sys.stderr)
        return int(stop.code or 0)
    except InputError as error:
        return _refused(error)
    try:
        with _terminated_like_interrupted():
            return command.run()
    except InputError as error:
        return _refused(error)
    except KeyboardInterrupt as interrupt:
        print("Interrupted.", *_notes(interrupt), file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(interrupt, _Terminated) else signal.SIGINT)
    except (NoResult, RowsError) as error:
        print(error, *_notes(error), file=sys.stderr)
        return 1


def _refused(error: InputError) -> int:
    notes = _notes(error)
    print(error, *notes, file=sys.stderr)
    return 1 if notes else 2  # of a run that had begun: something may be spent


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


class _Terminated(KeyboardInterrupt):
    """SIGTERM."""


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM unwinds a command as Ctrl-C does, so that it can say what it leaves behind."""

    def stop(*_: object) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():  # where Python handles no signals
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _sentence(box: str) -> str:
    """What tyro says in a framed box, as one sentence: its title and first paragraph, without help texts, what it did
    not know, and where there is help."""
    title, *body = (line[1:-1] for line in box.splitlines() if line)
    title = title.strip("─- ")  # a terminal without box characters gets ASCII
    paragraphs = [[]]
    for line in body:
        if not line.strip("─- "):
            paragraphs.append([])
        elif not line.startswith(" " * 8):
            paragraphs[-1].append(line.strip())
    first, *others = (" ".join(paragraph) for paragraph in paragraphs if paragraph)
    said = first if first.startswith(title) else f"{title}: {first}"
    unknown = [other for other in others if other.startswith("Unrecognized options")]
    help = re.search(r"l2p( [a-z-]+)? --help", " ".join(others))
    return "; ".join([said, *unknown, f"see {help[0] if help else 'l2p --help'}."])
