"""Public data sets by name, features scaled to [0, 1] by bounds known from their documentation.

The bounds below are constants, never computed when a set is loaded, so that a comparison prepares its data exactly
as a release on private rows must.
"""

import dataclasses
import functools
import hashlib
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from l2p.data.download import Source, data_folder, fetch
from l2p.data.random_features import FEATURES, random_features
from l2p.data.table import Kind, scale
from l2p.errors import InputError

NAMES = ("ipums_br", "adult", "mnist", "california", "digits", "breast_cancer", "diabetes", "quadratic")
_DIGITS = ("mnist", "digits")
_KNOWN = (
    f"known names are {', '.join(NAMES)}; mnist and digits also come as a pair of digits, as in mnist:3,5 "
    "(the first is class 0), as odd against even, as in digits:odd, or all ten as frozen random features, as in "
    f"digits:features, or digits:features:{4 * FEATURES} for more than {FEATURES}"
)

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
FILES = {
    source.file: source
    for source in (
        Source(
            "ipums_br.dat",
            ("https://raw.githubusercontent.com/ppmlguy/DP-AGD/master/dataset/IPUMS-BR.dat",),
            "9bcc80cf279457d62e9025d31a05c3e494e9d6edbb2097ba935eb4926a39884a",
        ),
        Source("a9a", (_LIBSVM + "a9a",), "7ba53cccb27e2e525f0fb173e1f446d49856e3fb007eb43be4ec6d0f5b3335ca"),
        Source("a9a.t", (_LIBSVM + "a9a.t",), "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),
        Source(
            "t10k-images-idx3-ubyte",
            tuple(mirror + "t10k-images-idx3-ubyte.gz" for mirror in _MNIST),
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        Source(
            "t10k-labels-idx1-ubyte",
            tuple(mirror + "t10k-labels-idx1-ubyte.gz" for mirror in _MNIST),
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        Source(
            "cal_housing.data",
            ("https://www.dcc.fc.up.pt/~ltorgo/Regression/cal_housing.tgz",),
            "d3d8a1a722ae78f91134862727d27a70b1415e7d512a89140406248687f4b902",
        ),
    )
}

# The preparation has no codebook, and its columns no names. All are 0/1 indicators but these, by position; where
# the coding is plainly one of IPUMS International's (people in the household to 30, children of one's own to 9+,
# children under five, age from 10, the youngest asked about work, to 100+, hours to 140, years at the place), the
# bounds are that code's range.
_IPUMS_BOUNDS = {
    5: (1, 2),
    6: (0, 6),
    7: (1, 2),
    8: (1, 30),
    9: (1, 30),
    10: (0, 9),
    11: (0, 5),
    12: (10, 100),
    13: (1, 2),
    18: (1, 2),
    49: (0, 140),
    50: (1, 2),
    51: (0, 90),
}

# The state's extent; ages top-coded at 52 and incomes coded to 0.5-15 (10,000 dollars) and values to
# 15,000-500,000 dollars by the 1990 census; counts per block group rounded up.
_CALIFORNIA_BOUNDS = {
    "longitude": (-125, -114),
    "latitude": (32, 42),
    "housing_median_age": (0, 52),
    "total_rooms": (0, 40_000),
    "total_bedrooms": (0, 6_500),
    "population": (0, 36_000),
    "households": (0, 6_100),
    "median_income": (0.5, 15),
}
_CALIFORNIA_VALUE = (15_000, 500_000)

# Ranges in the set's description, rounded outwards: mean, standard error and worst of ten measurements.
_BREAST_CANCER_BOUNDS = (
    *((5, 30), (5, 40), (40, 190), (100, 2600), (0.05, 0.17)),
    *((0, 0.35), (0, 0.45), (0, 0.21), (0.1, 0.31), (0.04, 0.1)),
    *((0, 3), (0, 5), (0, 22), (0, 550), (0, 0.032)),
    *((0, 0.14), (0, 0.4), (0, 0.055), (0, 0.08), (0, 0.03)),
    *((5, 37), (10, 50), (50, 255), (150, 4300), (0.07, 0.23)),
    *((0, 1.1), (0, 1.3), (0, 0.3), (0.15, 0.67), (0.05, 0.21)),
)

# What such measurements are in adults at large, rounded outwards; the target's range is in the set's description.
_DIABETES_BOUNDS = (
    *((0, 100), (1, 2), (10, 60), (40, 180)),
    *((50, 400), (0, 350), (10, 120), (1, 12), (2, 8), (40, 300)),
)
_DIABETES_TARGET = (25, 346)

# Of the synthetic set: rows, features, and standard deviation of the noise on the target.
_QUADRATIC = (10_000, 10, 0.1)


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """A public data set.

    Attributes:
      name: the name it was asked for by.
      x: f32[n, d], features in [0, 1].
      y: f32[n], labels: 0 or 1 (binary), 0..k-1 (multiclass), or in [0, 1] by public bounds (regression); around 0 for
        `quadratic`, whose model has no intercept.
      columns: d feature names.
      kind: "binary", "multiclass" or "regression".
      sha256: hexadecimal SHA-256 of the bytes of x, then y: two sets with the same one hold the same rows.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    columns: tuple[str, ...]
    kind: Kind
    sha256: str


def load(name: str, data_dir: Path | None = None, urls: Mapping[str, Sequence[str]] | None = None) -> Dataset:
    """A public data set by name, its files downloaded on first use.

    Args:
      name: one of `NAMES`, or `mnist` or `digits` with `:3,5` (a pair of digits, the first is class 0), `:odd`,
        `:features` or `:features:1152` (`l2p.data.random_features`).
      data_dir: the folder of the files; else `L2P_DATA_DIR`, else `$XDG_CACHE_HOME/l2p`, else `~/.cache/l2p`.
      urls: file name to mirrors, instead of the built-in addresses; the checksums stay.

    Raises:
      InputError: unknown name, or a file that cannot be had or has the wrong checksum.

    >>> data = load("digits:3,5")
    >>> data.x.shape, data.kind, int(data.y.sum())
    ((365, 64), 'binary', 182)
    """
    base, variant = _parts(name)
    digits = variant.split(",") if variant and variant[0].isdigit() else []
    if len(digits) != len(set(digits)):
        raise InputError(f"data set {name!r} names one digit twice: {_KNOWN}")

    folder = data_folder(data_dir)

    def read(file: str) -> bytes:
        source = FILES[file]
        return fetch(source if urls is None else dataclasses.replace(source, urls=tuple(urls.get(file, ()))), folder)

    x, y, columns, kind = _LOADERS[base](read)
    if variant == "odd":
        y, kind = y % 2, "binary"
    elif variant and variant.startswith("features"):
        side = math.isqrt(x.shape[1])
        _, _, num_features = variant.partition(":")
        x = random_features(x.reshape(-1, side, side), int(num_features or FEATURES))
        columns = _numbered("feature", x.shape[1])
    elif digits:
        rows = np.isin(y, [int(digit) for digit in digits])
        x, y, kind = x[rows], y[rows] == int(digits[1]), "binary"
    y = y.astype(np.float32)
    return Dataset(name, x, y, columns, kind, hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest())


def num_classes(name: str) -> int | None:
    """How many classes a set has, known without reading it; None for a regression.

    >>> num_classes("digits"), num_classes("digits:odd"), num_classes("california")
    (10, 2, None)
    """
    base, variant = _parts(name)
    if base in ("california", "diabetes", "quadratic"):
        return None
    return 10 if base in _DIGITS and (variant is None or variant.startswith("features")) else 2


def _parts(name: str) -> tuple[str, str | None]:
    parts = re.fullmatch(r"(\w+)(?::(odd|features(?::\d+)?|\d,\d))?", name)
    if parts is None or parts[1] not in NAMES or (parts[2] and parts[1] not in _DIGITS):
        raise InputError(f"unknown data set {name!r}: {_KNOWN}")
    return parts[1], parts[2]


_Read = Callable[[str], bytes]
_Content = tuple[np.ndarray, np.ndarray, tuple[str, ...], Kind]  # x, y, columns, kind


def _ipums_br(read: _Read) -> _Content:
    raw = np.loadtxt(io.BytesIO(read("ipums_br.dat")))
    x, y = raw[:, :-1], raw[:, -1]
    bounds = [_IPUMS_BOUNDS.get(j, (0, 1)) for j in range(x.shape[1])]
    return scale(x, bounds), y, _numbered("column", x.shape[1]), "binary"


def _adult(read: _Read) -> _Content:
    # LIBSVM: a label of -1 or +1, then index:1 for every indicator that is set, counted from 1.
    lines = (read("a9a") + read("a9a.t")).replace(b":1", b"").splitlines()
    x, y = np.zeros((len(lines), 123), np.float32), np.empty(len(lines))
    for i, line in enumerate(lines):
        label, *indices = map(int, line.split())
        x[i, np.array(indices) - 1], y[i] = 1, label == 1
    return x, y, _numbered("indicator", 123), "binary"


def _mnist(read: _Read) -> _Content:
    # IDX: a header of 16 bytes before the pixels, of 8 before the labels.
    x = np.frombuffer(read("t10k-images-idx3-ubyte"), np.uint8, offset=16).reshape(-1, 28 * 28)
    y = np.frombuffer(read("t10k-labels-idx1-ubyte"), np.uint8, offset=8)
    return scale(x, [(0, 255)] * x.shape[1]), y, _numbered("pixel", x.shape[1]), "multiclass"


def _california(read: _Read) -> _Content:
    raw = np.loadtxt(io.BytesIO(read("cal_housing.data")), delimiter=",")
    y = scale(raw[:, -1:], [_CALIFORNIA_VALUE])[:, 0]
    return scale(raw[:, :-1], list(_CALIFORNIA_BOUNDS.values())), y, tuple(_CALIFORNIA_BOUNDS), "regression"


def _digits(read: _Read) -> _Content:
    from sklearn.datasets import load_digits

    return _packaged(load_digits, [(0, 16)] * 64, "multiclass")


def _breast_cancer(read: _Read) -> _Content:
    from sklearn.datasets import load_breast_cancer

    return _packaged(load_breast_cancer, _BREAST_CANCER_BOUNDS, "binary")


def _diabetes(read: _Read) -> _Content:
    from sklearn.datasets import load_diabetes

    x, y, columns, kind = _packaged(functools.partial(load_diabetes, scaled=False), _DIABETES_BOUNDS, "regression")
    return x, scale(y[:, None], [_DIABETES_TARGET])[:, 0], columns, kind


def _quadratic(read: _Read) -> _Content:
    """A quadratic problem with a known optimum, the same on every machine: no file is read.

    Features are uniform in [0, 1], lines are 2 x - 1, and the target is lines @ w + 0.1 z with z standard normal and
    w_j = (-1)^j j / sqrt(385) for j = 1 to 10, of length 1. So w minimises the expected loss of the model `quadratic`,
    0.1^2 / 2 = 0.005; at zero it is 1/6 more.
    """
    del read
    num_rows, num_features, noise = _QUADRATIC
    generator = np.random.default_rng(0)
    x = generator.random((num_rows, num_features), np.float32)
    index = np.arange(1, num_features + 1)
    weights = (-1.0) ** index * index / np.sqrt(np.square(index).sum())
    y = (2.0 * x.astype(np.float64) - 1.0) @ weights + noise * generator.standard_normal(num_rows)
    return x, y, _numbered("feature", num_features), "regression"


def _packaged(load_packaged: Callable[[], Any], bounds: Sequence[tuple[float, float]], kind: Kind) -> _Content:
    packaged = load_packaged()
    return scale(packaged.data, bounds), packaged.target, tuple(map(str, packaged.feature_names)), kind


def _numbered(word: str, count: int) -> tuple[str, ...]:
    return tuple(f"{word}_{j}" for j in range(1, count + 1))


_LOADERS: dict[str, Callable[[_Read], _Content]] = {
    "ipums_br": _ipums_br,
    "adult": _adult,
    "mnist": _mnist,
    "california": _california,
    "digits": _digits,
    "breast_cancer": _breast_cancer,
    "diabetes": _diabetes,
    "quadratic": _quadratic,
}
