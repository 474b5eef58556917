"""Settings of a hand-designed method for losses that users bring along, from tasks of networks."""

import dataclasses
from typing import ClassVar

from meta_train.config.base import MetaConfig
from meta_train.config.learners import Descent, Perturbation
from meta_train.config.networks import Networks
from meta_train.config.parts import AnyStart


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfNetworks(MetaConfig):
    """By pairs of perturbed runs: derivatives of so many steps of a network explode."""

    kind: ClassVar[str] = "networks"
    start: AnyStart
    tasks: Networks
    learner: Perturbation


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThroughNetworks(MetaConfig):
    """By backpropagation through runs, clipped between their steps (`damping`)."""

    kind: ClassVar[str] = "through_networks"
    start: AnyStart
    tasks: Networks
    learner: Descent
