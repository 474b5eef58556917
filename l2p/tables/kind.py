"""Kinds of targets."""

from typing import Literal

#: 0 and 1, 0 to K - 1, and values in [0, 1] by public bounds.
Kind = Literal["binary", "multiclass", "regression"]
