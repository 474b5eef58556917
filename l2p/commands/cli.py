"""The command line: `l2p COMMAND`. Commands import JAX only when they run, so that help comes at once.

Exit codes: 0 done; 2 bad input, explained in one sentence on standard error, with nothing spent; 130 and 143
interrupted by Ctrl-C or SIGTERM, with a line on standard error that says what stays reserved; 1 anything else.
"""

import contextlib
import dataclasses
import gc
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import tyro

from l2p import __version__
from l2p.base.errors import InputError, NoResult, RowsError, TableWarning, redacted
from l2p.base.garbage import SELDOM
from l2p.base.plain_text import plain_output, printable
from l2p.commands.account import Account
from l2p.commands.apply import Apply
from l2p.commands.bolt_on import BoltOnCommand
from l2p.commands.compare import Compare, with_config
from l2p.commands.leaderboard import Leaderboard
from l2p.commands.ledger import LedgerCommand
from l2p.commands.meta_train import MetaTrain
from l2p.commands.plan import PlanCommand
from l2p.commands.predict import Predict
from l2p.commands.protectors import Protectors
from l2p.commands.report import Report
from l2p.commands.schema import MakeSchema
from l2p.commands.usage import sentence
from l2p.commands.warn import warn


@dataclasses.dataclass(frozen=True)
class Demo:
    """See what the learned protector gains on packaged data, in less than a minute."""

    out: Path | None = None
    """Folder for figure, results and a released model with its card; default l2p-demo."""

    def leftovers(self) -> str:
        """A sentence on what an interrupted demo leaves behind."""
        return "A demo keeps nothing to go on from; l2p demo begins anew."

    def run(self) -> int:
        """Run it."""
        from l2p.commands.demo import main

        main(self.out)
        return 0


@dataclasses.dataclass(frozen=True)
class Completion:
    """Print a script that completes l2p's commands and options in your shell."""

    shell: tyro.conf.Positional[Literal["bash", "zsh"]]
    """Your shell; for bash, save the output as ~/.local/share/bash-completion/completions/l2p."""

    def run(self) -> int:
        """Print it."""
        with contextlib.suppress(SystemExit):  # which tyro raises when it has printed it
            tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="l2p", args=["--tyro-print-completion", self.shell])
        return 0


DESCRIPTION = """Learned private optimizers: meta-trained on public tasks, run on private
data within a budget.

Exit codes: 0 done; 2 bad input, said in one sentence, with nothing spent;
130 and 143 interrupted by Ctrl-C or SIGTERM; 1 anything else.
`l2p --version` prints the version."""
_INTERRUPTED = {128 + signal.SIGINT, 128 + signal.SIGTERM}
COMMANDS: dict[str, Callable[..., Any]] = {
    "schema": MakeSchema,
    "apply": Apply,
    "bolt-on": BoltOnCommand,
    "predict": Predict,
    "report": Report,
    "protectors": Protectors,
    "plan": PlanCommand,
    "account": Account,
    "ledger": LedgerCommand,
    "compare": Compare,
    "leaderboard": Leaderboard,
    "demo": Demo,
    "meta-train": MetaTrain,
    "completion": Completion,
}


def run_process() -> NoReturn:
    """The process `l2p`: `main`, and its exit code."""
    gc.set_threshold(*SELDOM)
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    if code in _INTERRUPTED:
        # JAX threads may still be computing, and Python's normal shutdown would crash in them.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    gc.freeze()  # or all objects would be walked once more
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
    command = None
    try:
        with _terminated_like_interrupted(), _table_warnings():
            command = _parsed(args)
            if isinstance(command, int):
                return command
            with plain_output():
                return command.run()
    except InputError as error:
        return _refused(error)
    except KeyboardInterrupt as interrupt:
        leftovers = command.leftovers() if hasattr(command, "leftovers") else "Nothing was changed."
        _say("Interrupted.", *(_notes(interrupt) or [leftovers]))
        return 128 + (signal.SIGTERM if isinstance(interrupt, _Terminated) else signal.SIGINT)
    except (NoResult, RowsError) as error:
        _say(error, *_notes(error))
        return 1


def _parsed(args: Sequence[str]) -> Any:
    """The command of a command line, or the exit code where there is nothing more to do."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.extras.subcommand_cli_from_dict(
                COMMANDS, prog="l2p", description=DESCRIPTION, args=with_config(args)
            )
    except SystemExit as stop:
        if stop.code:
            _say(sentence(errors.getvalue(), args, COMMANDS))
        return int(stop.code or 0)


def _refused(error: InputError) -> int:
    notes = _notes(error)
    _say(error, *notes)
    return 1 if notes else 2  # of a run that had begun: something may be spent


def _say(*parts: object) -> None:
    """Print to standard error, but no password: addresses of databases may hold one."""
    print(printable(redacted(" ".join(map(str, parts)))), file=sys.stderr)


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


class _Terminated(KeyboardInterrupt):
    """SIGTERM."""


@contextlib.contextmanager
def _table_warnings() -> Iterator[None]:
    """Print each warning on a table once: a command opens a table several times."""
    printed: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, TableWarning):
            usual(message, category, *where, **more)
        elif str(message) not in printed:
            printed.add(str(message))
            warn([str(message)])

    with warnings.catch_warnings():
        usual = warnings.showwarning
        warnings.simplefilter("always", TableWarning)
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM unwinds a command as Ctrl-C does, so that it can say what it leaves behind."""

    def stop(*_: object) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():  # only the main thread may set signal handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
