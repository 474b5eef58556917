"""Declared bounds of a table's columns: read them, check them, and scale columns to [0, 1] by them."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from l2p.errors import InputError, alone

Interval = tuple[float, float]  # low < high
Bounds = Mapping[str, Interval]  # by column, in its own units


@alone()  # JSON's own error holds the whole text, which may be a table by mistake
def read_bounds(path: str | Path) -> dict[str, Interval]:
    """Declared bounds from a JSON file {column: [low, high]}, in the columns' own units.

    Raises:
      InputError: the file is missing or is not such JSON, or bounds are not finite numbers with low < high.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "bounds.json"
    >>> _ = path.write_text('{"age": [0, 120]}')
    >>> read_bounds(path)
    {'age': (0.0, 120.0)}
    """
    if not Path(path).is_file():
        raise InputError(
            f"there is no file {path} to read bounds from: write JSON {{column: [low, high]}}, or check the path"
        )
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"the bounds {path} cannot be read ({error.strerror}); check the path") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"the bounds {path} cannot be read as JSON: {error.msg} in {where}") from None
    except (ValueError, RecursionError):  # bytes that are not text, which the error would quote
        raise InputError(f"the bounds {path} cannot be read as JSON: write {{column: [low, high]}}") from None
    if not isinstance(content, dict):
        raise InputError(f"the bounds {path} must be a JSON object {{column: [low, high]}}")
    return {column: interval(column, pair) for column, pair in content.items()}


def interval(column: str, pair: Any) -> Interval:
    """A declared pair as floats, or an `InputError` that names its column.

    >>> interval("age", [0, 120])
    (0.0, 120.0)
    """
    is_pair = isinstance(pair, (list, tuple)) and len(pair) == 2 and all(map(is_finite, pair))
    if not (is_pair and pair[0] < pair[1] and is_finite(float(pair[1]) - float(pair[0]))):
        raise InputError(f"bounds of column {column!r} must be two finite numbers [low, high] with low < high")
    return float(pair[0]), float(pair[1])


def is_finite(value: Any) -> bool:
    """Whether this is a number that a float can hold; booleans are not numbers here.

    >>> is_finite(3), is_finite(True), is_finite(10**400)
    (True, False, False)
    """
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return bool(is_number and abs(value) <= sys.float_info.max)


def scale(values: np.ndarray, bounds: Sequence[Interval]) -> np.ndarray:
    """f32[n, d] in [0, 1] from values [n, d] and d pairs low < high: (value - low) / (high - low), clipped silently.

    >>> scale(np.array([[0.0], [30.0], [200.0]]), [(0, 120)]).tolist()
    [[0.0], [0.25], [1.0]]
    """
    low, high = np.array(bounds, dtype=np.float64).T
    return ((np.clip(values, low, high) - low) / (high - low)).astype(np.float32)
