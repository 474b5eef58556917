"""One protector for every model, from many public sets."""

import dataclasses
from typing import ClassVar

from meta_train.config.base import MetaConfig
from meta_train.config.learners import AddedDescent, PartialDescent
from meta_train.config.many_sources import ManySources
from meta_train.config.parts import Choosing, WarmStart


@dataclasses.dataclass(frozen=True, kw_only=True)
class EveryModel(MetaConfig):
    """By meta-gradients, on tasks with different kinds of targets."""

    kind: ClassVar[str] = "every_model"
    tasks: ManySources
    learner: PartialDescent
    judging: Choosing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Addition(MetaConfig):
    """The same, of numbers that are added to a checkpoint, which stays as it is; the sum trains every model that the
    checkpoint trains."""

    kind: ClassVar[str] = "addition"
    start: WarmStart
    tasks: ManySources
    learner: AddedDescent
