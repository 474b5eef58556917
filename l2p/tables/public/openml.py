"""Public tables by their names on OpenML, such as `openml:segment`: their sizes, known unread, and their rows.

Their schemas are made from the tables themselves, as `l2p schema --from` makes them of a public sample. So bounds and
categories come from the rows, which no private table may do.
"""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.own import MIN_OF_CLASS
from l2p.tables.public.download import UNREADABLE
from l2p.tables.public.public_set import Content
from l2p.tables.reading import open_table

#: Begins the names of these tables.
OPENML = "openml:"
#: Environment variable that names a folder of tables as NAME.arff.gz or NAME.arff, the last column being the target.
FOLDER = "L2P_TABLES"


class TableInfo(NamedTuple):
    """Size and name of a table, known before it is read.

    Attributes:
      rows: number of rows as published.
      classes: number of classes to predict, without those of fewer than `MIN_OF_CLASS` rows, which are left out: too
        few to learn from and to hold some out. None for a number.
      published: its name on OpenML, where this is not its name here with hyphens for dots.
    """

    rows: int
    classes: int | None
    published: str | None = None


TABLES: Mapping[str, TableInfo] = {
    # Two classes.
    "credit.a": TableInfo(690, 2, "credit-approval"),
    "credit.g": TableInfo(1_000, 2),
    "diabetes": TableInfo(768, 2),  # of the Pima, another set than `diabetes` of this package
    "ionosphere": TableInfo(351, 2),
    "kr.vs.kp": TableInfo(3_196, 2),
    "mushroom": TableInfo(8_124, 2),
    "sick": TableInfo(3_772, 2),
    "tic-tac-toe": TableInfo(958, 2),
    "vote": TableInfo(435, 2),
    # Several classes.
    "anneal": TableInfo(898, 4),  # a fifth has 8 rows
    "car": TableInfo(1_728, 4),
    "cmc": TableInfo(1_473, 3),
    "hypothyroid": TableInfo(3_772, 3),  # a fourth has 2 rows
    "nursery": TableInfo(12_960, 4),  # a fifth has 2 rows
    "page.blocks": TableInfo(5_473, 5),
    "segment": TableInfo(2_310, 7),
    "splice": TableInfo(3_190, 3),
    "vehicle": TableInfo(846, 4),
    "vowel": TableInfo(990, 11),
    "waveform5000": TableInfo(5_000, 3, "waveform-5000"),
    # Numbers.
    "2dplanes": TableInfo(40_768, None),
    "abalone": TableInfo(4_177, None),
    "ailerons": TableInfo(13_750, None),
    "autompg": TableInfo(398, None, "autoMpg"),
    "bank32nh": TableInfo(8_192, None),
    "bank8FM": TableInfo(8_192, None),
    "elevators": TableInfo(16_599, None),
    "fried": TableInfo(40_768, None),
    "housing": TableInfo(506, None, "boston"),
    "kin8nm": TableInfo(8_192, None),
    "mv": TableInfo(40_768, None),
    "pol": TableInfo(15_000, None),
    "puma32H": TableInfo(8_192, None),
    "puma8NH": TableInfo(8_192, None),
    "quake": TableInfo(2_178, None),
    "stock": TableInfo(950, None),
}


def is_openml(name: str) -> bool:
    """True if a data set or source is one of OpenML's tables."""
    return name.startswith(OPENML)


def table_info(name: str) -> TableInfo:
    """Size and published name of the table `openml:NAME`.

    >>> table_info("openml:segment")
    TableInfo(rows=2310, classes=7, published=None)

    Raises:
      InputError: no such table is known.
    """
    info = TABLES.get(name.removeprefix(OPENML))
    if info is None:
        raise InputError(f"unknown table {name!r}: known ones are {', '.join(OPENML + table for table in TABLES)}.")
    return info


def read(name: str, cache: Path) -> Content:
    """The rows of the table `openml:NAME`, from the folder that `L2P_TABLES` names, else downloaded from OpenML.

    Args:
      name: of the table.
      cache: the folder in which downloads are kept.

    Raises:
      InputError: unknown name; a table that cannot be downloaded, or that lacks its file in the folder; or a file that
        is another version of the table.
    """
    # These import this package, which must be whole by then.
    from l2p.tables.schema import Encoding, read_rows
    from l2p.tables.schema.template import from_public

    info = table_info(name)
    data, target = _in_folder(name) if os.environ.get(FOLDER) else _downloaded(name, cache)
    source = open_table(data)
    target = source.names[-1] if target is None else target
    kind = "number" if info.classes is None else None
    encoding = Encoding(from_public(source, target, source.names, target_type=kind, curve=0))
    rows = read_rows(data, encoding)
    x, y = np.asarray(rows.x), np.asarray(rows.y)
    size, num_classes = len(y), None
    if info.classes is not None:
        x, y, num_classes = _without_rare(x, y)
    if size != info.rows or num_classes != info.classes:
        raise InputError(
            f"{source.title} is not {name} as published, which has {_size_in_words(info.rows, info.classes)}: it has "
            f"{_size_in_words(size, num_classes)}. Put the published file into the folder that {FOLDER} names."
        )
    return Content(x, y, encoding.names)


def _without_rare(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows and labels of the classes with at least `MIN_OF_CLASS` rows, numbered anew, and how many these are."""
    classes, counts = np.unique(y, return_counts=True)
    common = classes[counts >= MIN_OF_CLASS]
    among = np.isin(y, common)
    return x[among], np.searchsorted(common, y[among]).astype(np.float32), len(common)


def _size_in_words(rows: int, classes: int | None) -> str:
    target = "numbers to predict" if classes is None else f"{classes} classes of at least {MIN_OF_CLASS} rows"
    return f"{rows} rows and {target}"


def _in_folder(name: str) -> tuple[Path, None]:
    """The file of a table, whose last column is the target."""
    folder, stem = Path(os.environ[FOLDER]), name.removeprefix(OPENML)
    for path in (folder / f"{stem}.arff.gz", folder / f"{stem}.arff"):
        if path.exists():
            return path, None
    raise InputError(
        f"{name} is not in {folder}, the folder that {FOLDER} names: put it there as {stem}.arff.gz or {stem}.arff, "
        f"or unset {FOLDER} to download it from OpenML."
    )


def _downloaded(name: str, cache: Path) -> tuple[dict[str, np.ndarray], str]:
    """Columns of a table from OpenML, categories as texts, and the name of its target."""
    from sklearn.datasets import fetch_openml

    published = table_info(name).published or name.removeprefix(OPENML).replace(".", "-")
    try:
        with warnings.catch_warnings():
            # OpenML's remarks on other versions of a table; whether this is the one we know is checked on its rows.
            warnings.simplefilter("ignore")
            # Without a target, so that all columns come alike; and without pandas, which the other parser needs.
            bunch: Any = fetch_openml(
                published,
                version=1,
                target_column=None,
                as_frame=False,
                parser="liac-arff",
                data_home=str(cache),
            )
    except UNREADABLE as error:
        raise InputError(
            f"{name} could not be downloaded from OpenML ({error}): set the environment variable {FOLDER} to a folder "
            f"that has it as {name.removeprefix(OPENML)}.arff.gz or {name.removeprefix(OPENML)}.arff, or try again."
        ) from error
    columns = {
        column: _texts(values, bunch.categories[column]) if column in bunch.categories else values
        for column, values in zip(bunch.feature_names, bunch.data.T, strict=True)
    }
    return columns, bunch.details.get("default_target_attribute", bunch.feature_names[-1])


def _texts(codes: np.ndarray, values: list[str]) -> np.ndarray:
    """Categories as texts, from their places in the list of values; "?" where one is missing."""
    missing = np.isnan(codes)
    return np.where(missing, "?", np.array(values, dtype=str)[np.where(missing, 0, codes).astype(int)])
