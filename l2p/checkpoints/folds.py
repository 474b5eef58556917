"""Hold-outs: the checkpoints that stand for a protector in comparisons on data that it was made from.

A protector NAME may have folds NAME-fold-1 and so on, each made like it without some public sets. Their cards list the
data that each was made from.
"""

import dataclasses
import re
from collections.abc import Sequence

from l2p.checkpoints.checkpoint import find, names, read_checkpoint_card
from l2p.checkpoints.overlaps import overlaps

#: The most folds of a protector, since each is a training of its own.
MOST_FOLDS = 4
#: Number of left-out sets that a hold-out's description names.
SHOWN = 4


@dataclasses.dataclass(frozen=True)
class HoldOut:
    """A checkpoint that stands for a protector where that must not be scored.

    Attributes:
      name: of the checkpoint.
      without: the protector's sources that it never saw, those that share rows with the data first.
    """

    name: str
    without: tuple[str, ...]

    def __str__(self) -> str:
        more = len(self.without) - SHOWN
        return f"{self.name}, made without {', '.join(self.without[:SHOWN])}" + (
            f" and {more} more" if more > 0 else ""
        )


def fold_name(name: str, number: int) -> str:
    """The name of a protector's fold.

    >>> fold_name("universal", 2)
    'universal-fold-2'
    """
    return f"{name}-fold-{number}"


def is_fold(name: str) -> bool:
    """True if a name is that of a fold.

    >>> is_fold("universal-fold-2"), is_fold("universal")
    (True, False)
    """
    return re.search(r"-fold-[1-9]$", name) is not None


def hold_out(name: str, avoid: Sequence[str]) -> HoldOut | None:
    """The hold-out that is scored in place of a protector: its first fold that never saw the data.

    Args:
      name: of a protector. One that is named by its file has no hold-outs, since their names begin with the
        protector's.
      avoid: data sets that it will be scored on.

    Returns:
      None if it was not made from them, or there is no such hold-out.

    >>> hold_out("control-universal", ["digits:odd"]).name
    'control-universal-fold-2'
    >>> hold_out("minibatch", ["digits:odd"])
    """
    path = find(name) if avoid else None
    if path is None:
        return None
    sources = read_checkpoint_card(path)["sources"]
    if not any(overlaps(source, avoid) for source in sources):
        return None
    for candidate in _folds(name):
        training_sources = _sources(candidate)
        if not any(overlaps(source, avoid) for source in training_sources):
            unseen = [source for source in sources if not overlaps(source, training_sources)]
            return HoldOut(candidate, tuple(sorted(unseen, key=lambda source: not overlaps(source, avoid))))
    return None


def _folds(name: str) -> list[str]:
    """Names of a protector's folds, by number."""
    every, folds = names(), (fold_name(name, number) for number in range(1, MOST_FOLDS + 1))
    return [fold for fold in folds if fold in every]


def _sources(name: str) -> list[str]:
    path = find(name)
    assert path is not None
    return read_checkpoint_card(path)["sources"]
