"""Training in a private eigenbasis: second moments are bought once, and coordinates hardly interact afterwards."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle import Oracle
from l2p.protectors.conditioning import WIDE, at, covariates_for, value
from l2p.protectors.fields import Polynomial, Positive, Scalar, Share
from l2p.protectors.register import stored
from l2p.protectors.stepwise.purchase import Purchase, Stage, Start
from l2p.protectors.stepwise.schedulers import noise_for_share
from l2p.queries import Covariance
from l2p.queries.moments import noise_radius, unfolded
from l2p.task.feature_map import Basis, FeatureMap

#: Share of the budget for the query if its answer is not used, because compiled code cannot skip it.
MIN_SHARE = 1e-6
#: The time for eigenvectors grows with d^3: of 1,024 features they take a second.
MAX_FEATURES = 1024


@stored
@struct.dataclass
class Eigenbasis(Purchase):
    """Buys the covariance of mapped rows, and rotates and scales rows by it: z = U' x (lambda + ridge)^(-power / 2).

    Noise on the covariance raises some small eigenvalues and makes others negative; the ridge is a multiple of the
    largest eigenvalue of the noise alone, and levels eigenvalues below it. Rows keep their typical length, so that
    clipping norms and step sizes mean the same as in a run without it.

    Eigenvectors and eigenvalues are not differentiated, because the derivative of an eigenvector explodes where
    eigenvalues meet. The derivative of the share would only see what the query costs, so that it and the smallest ratio
    are tuned by differences between runs. What shaped the rows before (the private mean, their length) is tuned by its
    effect on rows, noise and budget, and not by how it changes the basis.

    A covariance has d times as many entries as a mean. Below some budget per dimension noise dominates it, and its cost
    is missing elsewhere; there the query gets only `MIN_SHARE`, and rows are not changed. Above `MAX_FEATURES` the
    query is not asked.

    Attributes:
      logit_share: f32[k], logit of the query's share of the remaining budget, a polynomial in log(mu N); or
        f32[k, 6], knots of a curve.
      log_power: f32[k], log of the power: power 0 only rotates rows, 1 whitens them.
      log_ridge: f32[k], log of the ridge over the spectral radius of the noise.
      row_norm: f32[], clipping norm of mapped rows for their second moments.
      log_least_ratio: f32[], log of the smallest mu N / d at which a basis is bought; above `WIDE` features at most 0
        counts, because large steps without one diverge where rows have long directions. None always buys one.
    """

    logit_share: Share
    log_power: Polynomial
    log_ridge: Polynomial
    row_norm: Positive
    log_least_ratio: Scalar | None = None
    #: A public choice.
    fixed: ClassVar[tuple[str, ...]] = ("row_norm",)
    by_difference: ClassVar[tuple[str, ...]] = ("logit_share", "log_least_ratio")
    kind: ClassVar[str] = "eigenbasis"
    stage: ClassVar[Stage] = Stage.BASIS

    def buy(self, start: Start, oracle: Oracle) -> Start:
        features, strength, moment = self(start.features, oracle)
        return start.but(features=features, strength=strength, moment=moment)

    def __call__(self, features: FeatureMap, oracle: Oracle) -> tuple[FeatureMap, jax.Array, jax.Array]:
        """The map followed by the basis; f32[d], log of each direction's eigenvalue relative to the noise's; and
        f32[d], second moments along them, hardly less than the true ones, or equal shares of a row's if none were
        bought.
        """
        setup, size = oracle.setup, features.center.shape[0]
        assumed = jnp.full(size, jnp.square(self.row_norm) / size)
        if size > MAX_FEATURES:
            return features, jnp.zeros(size), assumed
        share, bought = jax.nn.sigmoid(at(self.logit_share, covariates_for(setup, size))), jnp.array(True)
        if self.log_least_ratio is not None:
            least = self.log_least_ratio if size <= WIDE else jnp.minimum(self.log_least_ratio, 0.0)
            bought = setup.log_signal >= least + jnp.log(size)
            share = jnp.where(bought, share, MIN_SHARE)
        multiplier = noise_for_share(oracle, share)
        answer = oracle.ask(Covariance(features, self.row_norm, multiplier)) / setup.num_rows
        noise = noise_radius(multiplier, jnp.square(self.row_norm), size, setup.adjacency) / setup.num_rows
        eigenvalues, directions = jax.lax.stop_gradient(jnp.linalg.eigh(unfolded(answer, size)))
        variance = self._variance(eigenvalues)
        stretch = (variance + jnp.exp(value(self.log_ridge, setup.log_signal)) * noise + 1e-9) ** (
            -0.5 * jnp.exp(value(self.log_power, setup.log_signal))
        )
        # This keeps a row's expected squared length.
        stretch = stretch * jnp.sqrt((variance.sum() + 1e-9) / (variance @ jnp.square(stretch) + 1e-9))
        basis = Basis(directions * stretch[None, :], directions.T / stretch[:, None])
        # A refused query answers zeros; rows are then not changed.
        answered = bought & ~oracle.refused
        basis = jax.tree.map(lambda learned, plain: jnp.where(answered, learned, plain), basis, Basis.identity(size))
        strength = jnp.log(variance + noise) - jnp.log(noise)
        moment = jnp.where(answered, (variance + noise) * jnp.square(stretch), assumed)
        return FeatureMap(features.center, features.scale, basis), jnp.where(answered, strength, 0.0), moment

    def _variance(self, eigenvalues: jax.Array) -> jax.Array:
        """Eigenvalues f32[d] clipped at 0, with a sum of at most what clipped rows can have."""
        positive = jnp.maximum(eigenvalues, 0.0)
        return positive * jnp.minimum(1.0, jnp.square(self.row_norm) / (positive.sum() + 1e-9))
