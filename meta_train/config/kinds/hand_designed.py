"""Tuning of hand-designed methods on one public set; by meta-gradients alone it is a `Plain` training."""

import dataclasses
from typing import ClassVar

from meta_train.config.base import MetaConfig
from meta_train.config.learners import RandomSearch, ShareDescent
from meta_train.config.one_source import OneSource
from meta_train.config.parts import AnyStart


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search(MetaConfig):
    """By random search."""

    kind: ClassVar[str] = "search"
    start: AnyStart
    tasks: OneSource
    learner: RandomSearch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison(MetaConfig):
    """By meta-gradients and by random search, the better of which on held-out tasks ships; each is given the same
    number of simulated runs."""

    kind: ClassVar[str] = "comparison"
    start: AnyStart
    tasks: OneSource
    learner: ShareDescent
