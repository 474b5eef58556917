"""Tasks whose models are networks, each as a user would bring it."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

from l2p.models import Model
from l2p.privacy.card.custom import CUSTOM
from meta_train.config.drawn import Shape
from meta_train.config.many_sources import ManySources
from meta_train.tasks import networks
from meta_train.tasks.family import Family


@dataclasses.dataclass(frozen=True, kw_only=True)
class Networks(ManySources):
    """Tasks of networks, whose runs are scored on rows that they did not read.

    A run's log(mu N) is over the root of the number of params (`Model.dilution`).

    Attributes:
      models: networks, as `relu:64,64:4` (`meta_train.tasks.networks.find`).
    """

    fresh_shares: tuple[float, float] = (1.0, 1.0)
    reads_features: ClassVar[bool] = False

    @property
    def all_models(self) -> tuple[str, ...]:
        return (CUSTOM,)

    def find_model(self, shape: Shape) -> Model:
        return networks.find(shape.model, shape.num_features or 1)

    def open(self) -> Callable[[Shape], tuple[Family, Family]]:
        opened = super().open()

        def in_lines(shape: Shape) -> tuple[Family, Family]:
            train, held_out = opened(shape)
            return networks.InLines(train), networks.InLines(held_out)

        return in_lines
