"""IPUMS-BR: a census extract of Brazil."""

import io

import numpy as np

from l2p.tables.public.download import Source
from l2p.tables.public.public_set import PublicSet, numbered


def _parse(table: bytes) -> tuple[np.ndarray, np.ndarray]:
    raw = np.loadtxt(io.BytesIO(table))
    return raw[:, :-1], raw[:, -1]


# The preparation has no codebook and no column names. All columns are 0/1 indicators but those listed here; where the
# coding is plainly one of IPUMS International's (people in the household to 30, children of one's own to 9+, children
# under five, age from 10, the youngest asked about work, to 100+, hours to 140, years at the place), the bounds are
# that code's range.
_CODES = {
    "column_6": (1, 2),
    "column_7": (0, 6),
    "column_8": (1, 2),
    "column_9": (1, 30),
    "column_10": (1, 30),
    "column_11": (0, 9),
    "column_12": (0, 5),
    "column_13": (10, 100),
    "column_14": (1, 2),
    "column_19": (1, 2),
    "column_50": (0, 140),
    "column_51": (1, 2),
    "column_52": (0, 90),
}

SET = PublicSet(
    name="ipums_br",
    source="Census extract of Brazil prepared by Lee & Kifer (2018) from IPUMS International (Ruggles et al. 2018), "
    "whose terms ask users to cite it and not to redistribute it.",
    files=(
        Source(
            "ipums_br.dat",
            ("https://raw.githubusercontent.com/ppmlguy/DP-AGD/master/dataset/IPUMS-BR.dat",),
            "9bcc80cf279457d62e9025d31a05c3e494e9d6edbb2097ba935eb4926a39884a",
        ),
    ),
    parse=_parse,
    bounds=numbered("column", 52) | _CODES,
    target="monthly income",
    classes=("up to 300 dollars", "above"),
)
