"""Pairs of classes of images, such as two digits, for other pairs."""

import dataclasses
from typing import ClassVar

from meta_train.config.base import MetaConfig
from meta_train.config.learners import Descent
from meta_train.config.one_source import Pairs


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassPairs(MetaConfig):
    """By meta-gradients, on tasks with a table's own columns that are scored on fresh rows."""

    kind: ClassVar[str] = "class_pairs"
    tasks: Pairs
    learner: Descent

    @property
    def selects(self) -> bool:
        """Unseen classes must not be used for selection."""
        return self.tasks.unseen is None
