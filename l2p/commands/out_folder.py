"""The folder of `--out`: claimed before anything is spent, and filled with a result that is paid for."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from l2p.base.errors import InputError, NoResult

if TYPE_CHECKING:
    from l2p.release.result import Result


@contextlib.contextmanager
def claimed(folder: Path, only_look: bool) -> Iterator[None]:
    """The output folder, made and claimed before anything is spent; if it is new, a run that fails removes it while it
    is empty."""
    new = not folder.exists()
    if not (new and only_look):
        _claim(folder)
    try:
        yield
    except BaseException:
        if new:
            with contextlib.suppress(OSError):  # not made, or no longer empty
                folder.rmdir()
        raise


def _claim(folder: Path) -> None:
    """Make sure that the output folder is empty and can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be written ({error.strerror}); name another in --out.") from error
    if occupied:
        raise InputError(
            f"the folder {folder} is not empty, and a result is never overwritten; name a new one in --out."
        )


def saved(result: "Result", folder: Path) -> Path:
    """Write the result, all of its files or none. It is paid for, so if the folder can no longer be written, it goes to
    a temporary one."""
    try:
        result.save(folder)
        return folder
    except OSError as error:
        why = error.strerror
    try:
        rescue = Path(tempfile.mkdtemp(prefix="l2p-"))
        result.save(rescue)
    except OSError:
        raise NoResult(
            f"{folder} cannot be written ({why}), nor can {tempfile.gettempdir()}, so the result is lost, and what its "
            "queries were charged stays charged; before another run free disk space, or name another folder in TMPDIR."
        ) from None
    print(f"{folder} cannot be written ({why}), so the result goes to {rescue}", file=sys.stderr)
    return rescue
