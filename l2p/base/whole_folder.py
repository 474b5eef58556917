"""A result's files written so that none is found without the others, whenever the process is killed."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from l2p.base.errors import InputError

#: The file of a result that moves last.
MODEL_FILE = "model.safetensors"


@contextlib.contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A place to write files, which move into the folder, made if need be, once all of them are on the disk.

    `MODEL_FILE` moves last: whoever finds it finds the others, of the same writing. The place is inside the folder,
    which may be a disk of its own. An error leaves nothing of what was written there.

    Raises:
      InputError: if the folder holds a result.

    >>> folder = Path(tempfile.mkdtemp())
    >>> with written_whole(folder) as place:
    ...     _ = (place / MODEL_FILE).write_text("weights"), (place / "card.json").write_text("epsilon")
    ...     sorted(path.name for path in folder.iterdir()) == [place.name]
    True
    >>> sorted(path.name for path in folder.iterdir())
    ['card.json', 'model.safetensors']
    """
    if (folder / MODEL_FILE).exists():
        raise InputError(
            f"{folder} holds a result, which may have cost a budget that nobody gets back, so it is not "
            "overwritten; name another folder, or delete that result first."
        )
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder))
    try:
        yield place
        written = list(place.iterdir())
        for path in written:
            sync(path)
        for path in written:
            if path.name != MODEL_FILE:
                path.replace(folder / path.name)
        sync(folder)
        (place / MODEL_FILE).replace(folder / MODEL_FILE)
        sync(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
