"""Common part of methods that solve linear systems: their rows are centred on a private mean first."""

from typing import Any

import jax

from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.stepwise.centering import Centering
from l2p.run.protector import Protector
from l2p.task.feature_map import FeatureMap


class OnCentredRows(Protector):
    """A protector that buys a private feature mean, and whose steps read rows centred on it and scaled to a length.

    Its state is the map that rows are read through, unless it has more to keep.

    Attributes:
      centering: the query for the mean.
    """

    centering: Centering

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, Any]:
        model = oracle.setup.model
        features = self.centering(model.num_features(params.shape[0]), oracle)
        return model.params_for_mapped_rows(params, features), features

    def view(self, state: Any) -> FeatureMap | None:
        return state

    def finish(self, params: jax.Array, state: Any, setup: Setup) -> jax.Array:
        return setup.model.params_for_raw_rows(params, state)
