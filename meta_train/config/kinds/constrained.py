"""Schedulers that could overspend, such as the paper's pair: the budget is a constraint."""

import dataclasses
from typing import ClassVar

from meta_train.config.base import MetaConfig
from meta_train.config.learners import ConstrainedDescent
from meta_train.config.one_source import OneSource


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constrained(MetaConfig):
    """By meta-gradients under a constraint on what runs spend, on tasks from one source."""

    kind: ClassVar[str] = "constrained"
    tasks: OneSource
    learner: ConstrainedDescent

    @property
    def selects(self) -> bool:
        return False
