"""California housing: median house values of block groups in 1990."""

import io

import numpy as np

from l2p.tables.public.download import Source
from l2p.tables.public.public_set import PublicSet


def _parse(table: bytes) -> tuple[np.ndarray, np.ndarray]:
    raw = np.loadtxt(io.BytesIO(table), delimiter=",")
    return raw[:, :-1], raw[:, -1]


SET = PublicSet(
    name="california",
    source="Pace & Barry (1997), from the US census of 1990, first on StatLib and kept by Luis Torgo; no licence is "
    "stated.",
    files=(
        Source(
            "cal_housing.data",
            ("https://www.dcc.fc.up.pt/~ltorgo/Regression/cal_housing.tgz",),
            "d3d8a1a722ae78f91134862727d27a70b1415e7d512a89140406248687f4b902",
        ),
    ),
    parse=_parse,
    # The state's extent; ages top-coded at 52 and incomes coded to 0.5-15 (10,000 dollars) by the census; counts per
    # block group rounded up.
    bounds={
        "longitude": (-125, -114),
        "latitude": (32, 42),
        "housing_median_age": (0, 52),
        "total_rooms": (0, 40_000),
        "total_bedrooms": (0, 6_500),
        "population": (0, 36_000),
        "households": (0, 6_100),
        "median_income": (0.5, 15),
    },
    target="median house value in dollars",
    target_bounds=(15_000, 500_000),  # the census's own coding
)
