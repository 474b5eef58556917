"""The run in a private eigenbasis: second moments bought once, after which coordinates hardly interact."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p import struct
from l2p.features import Basis, FeatureMap
from l2p.oracle import Oracle
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial, Positive, Scalar
from l2p.protectors.register import stored
from l2p.protectors.schedulers import noise_for_share
from l2p.queries import Covariance
from l2p.queries.moments import unfolded

#: Share of the budget that the question costs where its answer is not used: what is compiled cannot leave it out.
MIN_SHARE = 1e-6
#: Eigenvectors take time with the cube of d, and a budget that buys as many as these in a useful quality is rare.
MAX_FEATURES = 512


@stored
@struct.dataclass
class Eigenbasis:
    """Buys the covariance of mapped rows, and turns and stretches rows by it: z = U' x (lambda + ridge)^(-power / 2).

    Noise on the covariance lifts small eigenvalues and sinks others below zero; the ridge is a multiple of the largest
    eigenvalue that noise alone would have, and flattens what lies below it. Rows keep their typical length, so that the
    clipping norms and step sizes of a run without it mean the same.

    Eigenvectors and eigenvalues are not differentiated: the derivative of an eigenvector explodes where eigenvalues
    meet. A meta-gradient of the share would only see what the query costs, so the share is left alone; choose it by
    search. What shaped the rows before (the private mean, their length) is tuned by what it does to rows, to noise and
    to the budget, and not by how it turns the basis.

    A covariance has d times as many entries as a mean. Below some budget per dimension its noise drowns it, and what it
    cost is missing elsewhere: there the share asked for is `MIN_SHARE`, and rows stay as they are. Above
    `MAX_FEATURES` nothing is asked at all.

    Attributes:
      logit_share: f32[k], logit of the share of what is left of the budget, a polynomial in log(mu N).
      log_power: f32[k], log of the power: 0 turns rows only, 1 makes them white.
      log_ridge: f32[k], log of the ridge over the spectral radius of the noise.
      row_norm: f32[], what mapped rows are clipped to before their second moments are taken.
      log_least_ratio: f32[], log of the least mu N / d at which a basis is bought; None buys one always.
    """

    logit_share: Polynomial
    log_power: Polynomial
    log_ridge: Polynomial
    row_norm: Positive
    log_least_ratio: Scalar | None = None
    #: Not tuned by gradients: see above; and public choices.
    fixed: ClassVar[tuple[str, ...]] = ("logit_share", "row_norm", "log_least_ratio")

    def __call__(self, features: FeatureMap, oracle: Oracle) -> tuple[FeatureMap, jax.Array]:
        """The map followed by the basis; and f32[d], log of each direction's eigenvalue over the noise's."""
        setup, size = oracle.setup, features.center.shape[0]
        if size > MAX_FEATURES:
            return features, jnp.zeros(size)
        share, bought = jax.nn.sigmoid(value(self.logit_share, setup.log_signal)), jnp.array(True)
        if self.log_least_ratio is not None:
            bought = setup.log_signal >= self.log_least_ratio + jnp.log(size)
            share = jnp.where(bought, share, MIN_SHARE)
        multiplier = noise_for_share(oracle, share)
        answer = oracle.ask(Covariance(features, self.row_norm, multiplier)) / setup.num_rows
        std = multiplier * jnp.square(self.row_norm) * setup.adjacency.sensitivity_factor / setup.num_rows
        # Off the diagonal the deviation is std / sqrt(2): a Gaussian ensemble, whose spectrum ends at this.
        noise = std * (2.0 * size) ** 0.5
        eigenvalues, directions = jax.lax.stop_gradient(jnp.linalg.eigh(unfolded(answer, size)))
        variance = self._variance(eigenvalues)
        stretch = (variance + jnp.exp(value(self.log_ridge, setup.log_signal)) * noise + 1e-9) ** (
            -0.5 * jnp.exp(value(self.log_power, setup.log_signal))
        )
        # A row's expected squared length stays as it is.
        stretch = stretch * jnp.sqrt((variance.sum() + 1e-9) / (variance @ jnp.square(stretch) + 1e-9))
        basis = Basis(directions * stretch[None, :], directions.T / stretch[:, None])
        # Refused, the answer is zeros, and rows stay as they are.
        known = bought & ~oracle.refused
        basis = jax.tree.map(lambda learned, plain: jnp.where(known, learned, plain), basis, Basis.identity(size))
        strength = jnp.log(variance + noise) - jnp.log(noise)
        return FeatureMap(features.center, features.scale, basis), jnp.where(known, strength, 0.0)

    def _variance(self, eigenvalues: jax.Array) -> jax.Array:
        """Eigenvalues f32[d] without negative ones, and with no more in all than clipped rows can have."""
        positive = jnp.maximum(eigenvalues, 0.0)
        return positive * jnp.minimum(1.0, jnp.square(self.row_norm) / (positive.sum() + 1e-9))
