"""Scales rows to the length that a protector's constants were learned for, whatever the scale and spread of the
features."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle import Oracle
from l2p.protectors.conditioning import at, covariates_for
from l2p.protectors.fields import Positive, Share
from l2p.protectors.register import stored
from l2p.protectors.stepwise.purchase import Purchase, Stage, Start
from l2p.protectors.stepwise.schedulers import noise_for_share
from l2p.queries import LengthSum
from l2p.task.feature_map import FeatureMap

#: Rows are assumed to be no shorter than this share of the target.
SHORTEST = 0.02


@stored
@struct.dataclass
class RowLength(Purchase):
    """Buys the mean length of mapped rows, and scales all rows so that it becomes `target_norm`.

    A mean in [0, 1] bounds a feature's variance by m (1 - m), which holds for indicators and is several times too much
    for most continuous features: rows would be short, and clipping norms far too generous for them. One number costs
    little, and is trusted according to its signal-to-noise ratio.

    Attributes:
      logit_share: f32[k], logit of the query's share of the remaining budget, a polynomial in log(mu N); or
        f32[k, 6], knots of a curve.
      target_norm: f32[], mean length that mapped rows are scaled to, and the most that one row counts.
    """

    logit_share: Share
    target_norm: Positive
    #: A public choice of scale, never tuned.
    fixed: ClassVar[tuple[str, ...]] = ("target_norm",)
    kind: ClassVar[str] = "row_length"
    stage: ClassVar[Stage] = Stage.LENGTH

    def buy(self, start: Start, oracle: Oracle) -> Start:
        return start.but(features=self(start.features, oracle))

    def __call__(self, features: FeatureMap, oracle: Oracle) -> FeatureMap:
        setup = oracle.setup
        covariates = covariates_for(setup, features.num_mapped)
        multiplier = noise_for_share(oracle, jax.nn.sigmoid(at(self.logit_share, covariates)))
        length = oracle.ask(LengthSum(features, self.target_norm, multiplier))[0] / setup.num_rows
        noise_std = multiplier * self.target_norm * setup.adjacency.sensitivity_factor / setup.num_rows
        signal = jnp.square(jnp.maximum(length, 0.0))
        trust = signal / (signal + 2.0 * jnp.square(noise_std) + 1e-12)
        length = jnp.clip(length / self.target_norm, SHORTEST, 1.0)
        # A refused query answers zero, and then its trust is zero, too.
        return features.replace(scale=features.scale * jnp.exp(-trust * jnp.log(length)))
