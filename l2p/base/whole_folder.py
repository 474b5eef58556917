"""A folder's files written so that none is found without the others, whenever the process is killed."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: The file of a result that moves last.
MODEL_FILE = "model.safetensors"


@contextlib.contextmanager
def written_whole(folder: Path, last: str) -> Iterator[Path]:
    """A place to write files, which move into the folder, made if need be, once all of them are on the disk.

    The file called `last` moves last, and goes first where there is an older one: whoever finds it finds the others, of
    the same writing. The place is inside the folder, which may be a disk of its own. An error leaves nothing of what
    was written there.

    >>> folder = Path(tempfile.mkdtemp())
    >>> with written_whole(folder, "model") as place:
    ...     _ = (place / "model").write_text("weights"), (place / "card").write_text("epsilon")
    ...     sorted(path.name for path in folder.iterdir()) == [place.name]
    True
    >>> sorted(path.name for path in folder.iterdir())
    ['card', 'model']
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder))
    try:
        yield place
        written = list(place.iterdir())
        for path in written:
            _sync(path)
        (folder / last).unlink(missing_ok=True)
        for path in written:
            if path.name != last:
                path.replace(folder / path.name)
        _sync(folder)
        (place / last).replace(folder / last)
        _sync(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
