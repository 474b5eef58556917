"""Public tables by their names on OpenML, such as `openml:segment`: what is known before they are read, and their rows.

Their schemas are made from the tables themselves, as `l2p schema --from` makes them of a public sample. So bounds and
categories come from the rows, which no private table may do.
"""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from l2p.data.download import UNREADABLE
from l2p.data.own import MIN_OF_CLASS
from l2p.data.public_set import Content
from l2p.data.reading import open_table
from l2p.errors import InputError

#: Begins the names of these tables.
OPENML = "openml:"
#: Environment variable that names a folder of tables as NAME.arff.gz or NAME.arff, the last column being the target.
FOLDER = "L2P_TABLES"


class Facts(NamedTuple):
    """What is known of a table before it is read.

    Attributes:
      rows: that it is published with.
      classes: to predict, without those of fewer than `MIN_OF_CLASS` rows, whose rows are left out: these would be too
        few to learn from and to hold some out. None for a number.
      published: its name on OpenML, where this is not its name here with hyphens for dots.
    """

    rows: int
    classes: int | None
    published: str | None = None


TABLES: Mapping[str, Facts] = {
    # Two classes.
    "credit.a": Facts(690, 2, "credit-approval"),
    "credit.g": Facts(1_000, 2),
    "diabetes": Facts(768, 2),  # of the Pima, another set than `diabetes` of this package
    "ionosphere": Facts(351, 2),
    "kr.vs.kp": Facts(3_196, 2),
    "mushroom": Facts(8_124, 2),
    "sick": Facts(3_772, 2),
    "tic-tac-toe": Facts(958, 2),
    "vote": Facts(435, 2),
    # Several classes.
    "anneal": Facts(898, 4),  # a fifth has 8 rows
    "car": Facts(1_728, 4),
    "cmc": Facts(1_473, 3),
    "hypothyroid": Facts(3_772, 3),  # a fourth has 2 rows
    "nursery": Facts(12_960, 4),  # a fifth has 2 rows
    "page.blocks": Facts(5_473, 5),
    "segment": Facts(2_310, 7),
    "splice": Facts(3_190, 3),
    "vehicle": Facts(846, 4),
    "vowel": Facts(990, 11),
    "waveform5000": Facts(5_000, 3, "waveform-5000"),
    # Numbers.
    "2dplanes": Facts(40_768, None),
    "abalone": Facts(4_177, None),
    "ailerons": Facts(13_750, None),
    "autompg": Facts(398, None, "autoMpg"),
    "bank32nh": Facts(8_192, None),
    "bank8FM": Facts(8_192, None),
    "elevators": Facts(16_599, None),
    "fried": Facts(40_768, None),
    "housing": Facts(506, None, "boston"),
    "kin8nm": Facts(8_192, None),
    "mv": Facts(40_768, None),
    "pol": Facts(15_000, None),
    "puma32H": Facts(8_192, None),
    "puma8NH": Facts(8_192, None),
    "quake": Facts(2_178, None),
    "stock": Facts(950, None),
}


def is_openml(name: str) -> bool:
    """Whether a data set or source is one of OpenML's tables."""
    return name.startswith(OPENML)


def facts(name: str) -> Facts:
    """What is known of the table `openml:NAME`.

    >>> facts("openml:segment")
    Facts(rows=2310, classes=7, published=None)

    Raises:
      InputError: no such table is known.
    """
    known = TABLES.get(name.removeprefix(OPENML))
    if known is None:
        raise InputError(f"unknown table {name!r}: known ones are {', '.join(OPENML + one for one in TABLES)}.")
    return known


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
    from l2p.schema import Encoding, read_rows
    from l2p.schema.template import from_public

    known = facts(name)
    data, target = _in_folder(name) if os.environ.get(FOLDER) else _downloaded(name, cache)
    source = open_table(data)
    target = source.names[-1] if target is None else target
    kind = "number" if known.classes is None else None
    encoding = Encoding(from_public(source, target, source.names, target_type=kind))
    rows = read_rows(data, encoding)
    x, y = np.asarray(rows.x), np.asarray(rows.y)
    size, found = len(y), None
    if known.classes is not None:
        x, y, found = _without_rare(x, y)
    if size != known.rows or found != known.classes:
        raise InputError(
            f"{source.title} is not {name} as published, which has {_said(known.rows, known.classes)}: it has "
            f"{_said(size, found)}. Put the published file into the folder that {FOLDER} names."
        )
    return Content(x, y, encoding.names)


def _without_rare(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows and labels of the classes with at least `MIN_OF_CLASS` rows, numbered anew, and how many these are."""
    classes, counts = np.unique(y, return_counts=True)
    kept = classes[counts >= MIN_OF_CLASS]
    among = np.isin(y, kept)
    return x[among], np.searchsorted(kept, y[among]).astype(np.float32), len(kept)


def _said(rows: int, classes: int | None) -> str:
    what = "numbers to predict" if classes is None else f"{classes} classes of at least {MIN_OF_CLASS} rows"
    return f"{rows} rows and {what}"


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

    published = facts(name).published or name.removeprefix(OPENML).replace(".", "-")
    try:
        with warnings.catch_warnings():
            # OpenML's remarks on other versions of a table; whether this is the one we know is checked on its rows.
            warnings.simplefilter("ignore")
            # Without a target, so that all columns come alike; and without pandas, which the other parser needs.
            found: Any = fetch_openml(
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
        column: _texts(values, found.categories[column]) if column in found.categories else values
        for column, values in zip(found.feature_names, found.data.T, strict=True)
    }
    return columns, found.details.get("default_target_attribute", found.feature_names[-1])


def _texts(codes: np.ndarray, values: list[str]) -> np.ndarray:
    """Categories as texts, from their places in the list of values; "?" where one is missing."""
    missing = np.isnan(codes)
    return np.where(missing, "?", np.array(values, dtype=str)[np.where(missing, 0, codes).astype(int)])
