"""Constants, or networks on top of them, from one public set or a mixture."""

import dataclasses
from typing import ClassVar

from meta_train.config.base import MetaConfig
from meta_train.config.learners import Perturbation, ShareDescent
from meta_train.config.one_source import OneSource
from meta_train.config.parts import AnyStart, Choosing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plain(MetaConfig):
    """By meta-gradients, on tasks from one source."""

    kind: ClassVar[str] = "plain"
    start: AnyStart
    tasks: OneSource
    learner: ShareDescent
    judging: Choosing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Perturbed(MetaConfig):
    """By pairs of perturbed runs in place of derivatives, on tasks from one source."""

    kind: ClassVar[str] = "perturbed"
    start: AnyStart
    tasks: OneSource
    learner: Perturbation
    judging: Choosing
