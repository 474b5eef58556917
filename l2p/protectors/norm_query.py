"""The private norm query of Algorithm 2 (Hong et al. 2021): what a scheduler may know of a gradient before it pays."""

import jax
import jax.numpy as jnp

from l2p import struct
from l2p.features import FeatureMap
from l2p.oracle import Oracle
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial, Scalar
from l2p.protectors.register import stored
from l2p.protectors.schedulers import noise_for_share
from l2p.queries import ClippedGradient, GradientNorm


@stored
@struct.dataclass
class NormQuery:
    """Buys, before each gradient, the norm of the clipped sum that it would be a noised version of.

    The paper asks for the squared norm with noise that grows with the batch, which leaks the size of a Poisson batch;
    asked directly, a norm moves by one row's bound, whatever the batch. On randomly drawn batches the norm is that of a
    batch of its own: given the norm of one batch, membership in it is no longer a coin flip, and the price of a
    gradient over the same batch would be wrong. A permutation epoch's price rests on no coin flip, and both read one
    batch.

    Attributes:
      logit_share: f32[k], logit of the share of a step's even part of what is left, a polynomial in log(mu N).
      log_clip_norm: f32[], log of the clipping norm of a row's gradient.
    """

    logit_share: Polynomial
    log_clip_norm: Scalar

    def __call__(self, params: jax.Array, features: FeatureMap, oracle: Oracle, num_steps: int) -> jax.Array:
        """The noised norm f32[] of the mean clipped gradient at params f32[p]; no less than zero."""
        setup = oracle.setup
        steps_left = jnp.maximum(setup.num_charges(num_steps) - oracle.charge, 1)
        share = jax.nn.sigmoid(value(self.logit_share, setup.log_signal)) / steps_left
        multiplier = noise_for_share(oracle, share)
        gradient = ClippedGradient(setup.model, params, features, jnp.exp(self.log_clip_norm), multiplier)
        # A norm is not negative, though a noised one may be.
        return jnp.maximum(oracle.ask(GradientNorm(gradient, multiplier))[0], 0.0) / setup.batch_rows
