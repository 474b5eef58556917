"""Declaration of a public data set, known before it is read, and the parser of its files."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from l2p.tables.bounds import Interval, scale
from l2p.tables.public.download import Source


class Content(NamedTuple):
    """The rows of a set.

    Attributes:
      x: f32[n, d], features in [0, 1].
      y: [n], targets of any dtype.
      columns: d feature names.
    """

    x: np.ndarray
    y: np.ndarray
    columns: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Variant:
    """A version of a set with other targets or features, named by what follows the set's name and a colon.

    Attributes:
      pattern: regular expression of what follows the colon.
      meaning: how to write it and what it gives, for messages.
      num_classes: how many classes it has; None leaves them as they are.
      apply: the content of the set, and what follows the colon, to the content of the variant.
    """

    pattern: str
    meaning: str
    num_classes: int | None
    apply: Callable[[Content, str], Content]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PublicSet:
    """A public data set.

    Attributes:
      name: what users call it.
      source: who published it, where, and under which licence, in a sentence.
      files: the files that it is read from; none for a set that comes with a package or a formula.
      parse: the files' bytes, in order, to features [n, d] and targets [n] in their own units.
      bounds: [low, high] of every feature by name, in the order of the features. They are constants from the set's
        documentation, never computed from its rows, so that a comparison prepares its data as a release must.
      target: what is predicted.
      target_bounds: [low, high] of a number to predict, which is scaled by them; None leaves targets as they are.
      classes: what the labels 0, 1, 2 and so on mean; none for a number to predict.
      variants: the other versions that users may ask for.
    """

    name: str
    source: str
    parse: Callable[..., tuple[np.ndarray, np.ndarray]]
    bounds: Mapping[str, Interval]
    target: str
    target_bounds: Interval | None = None
    classes: tuple[str, ...] = ()
    files: tuple[Source, ...] = ()
    variants: tuple[Variant, ...] = ()

    def read(self, fetch: Callable[[Source], bytes]) -> Content:
        """The rows, with files from `fetch`; features, and targets with bounds, are scaled to [0, 1]."""
        values, targets = self.parse(*map(fetch, self.files))
        if self.target_bounds is not None:
            targets = scale(targets[:, None], [self.target_bounds])[:, 0]
        return Content(scale(values, list(self.bounds.values())), targets, tuple(self.bounds))


def numbered(word: str, count: int, bounds: Interval = (0, 1)) -> dict[str, Interval]:
    """Bounds of columns that have numbers for names.

    >>> numbered("pixel", 2, (0, 255))
    {'pixel_1': (0, 255), 'pixel_2': (0, 255)}
    """
    return {f"{word}_{j}": bounds for j in range(1, count + 1)}
