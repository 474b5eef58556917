"""The private norm query of Algorithm 2 (Hong et al. 2021): a gradient's norm, bought before the gradient."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle import Oracle
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial, Scalar
from l2p.protectors.register import stored
from l2p.protectors.stepwise.schedulers import noise_for_share
from l2p.queries import ClippedGradient, GradientNorm
from l2p.task.feature_map import FeatureMap


@stored
@struct.dataclass
class NormQuery:
    """Buys, before each gradient, the norm of the clipped gradient sum.

    The paper asks for the squared norm with noise that grows with the batch, which leaks the size of a Poisson batch;
    asked directly, a norm moves by one row's bound, whatever the batch. With randomly drawn batches it reads a batch of
    its own: given the norm of a batch, membership in it is no longer an independent coin flip, and the price of a
    gradient over the same batch would be wrong. The price of a permutation epoch does not rest on coin flips, so there
    both read one batch.

    Attributes:
      logit_share: f32[k], logit of its share of a step's equal part of the remaining budget, a polynomial in log(mu N).
      log_clip_norm: f32[], log of the clipping norm of a row's gradient.
    """

    logit_share: Polynomial
    log_clip_norm: Scalar

    def __call__(self, params: jax.Array, features: FeatureMap, oracle: Oracle, num_steps: int) -> jax.Array:
        """The noised norm f32[] of the mean clipped gradient at params f32[p]; at least 0."""
        setup = oracle.setup
        steps_left = jnp.maximum(setup.num_charges(num_steps) - oracle.charge, 1)
        share = jax.nn.sigmoid(value(self.logit_share, setup.log_signal)) / steps_left
        multiplier = noise_for_share(oracle, share)
        gradient = ClippedGradient(setup.model, params, features, jnp.exp(self.log_clip_norm), multiplier)
        # A norm is not negative, though a noised one may be.
        return jnp.maximum(oracle.ask(GradientNorm(gradient, multiplier))[0], 0.0) / setup.batch_rows
