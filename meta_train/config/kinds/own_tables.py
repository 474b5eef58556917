"""A shipped protector, or its constants alone, on public tables of a user's own."""

import dataclasses
from typing import ClassVar

from meta_train.config.base import MetaConfig
from meta_train.config.learners import Descent, Evolution
from meta_train.config.many_sources import OwnSources
from meta_train.config.parts import WarmStart


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTables(MetaConfig):
    """By meta-gradients."""

    kind: ClassVar[str] = "own_tables"
    start: WarmStart
    tasks: OwnSources
    learner: Descent


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnConstants(MetaConfig):
    """By evolution, where time is short: of the constants of the warm start's control, judged beside the warm start."""

    kind: ClassVar[str] = "own_constants"
    start: WarmStart
    tasks: OwnSources
    learner: Evolution
