"""Training in the principal directions of similar public rows, which cost no budget."""

from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Numbers, Polynomial
from l2p.protectors.register import stored
from l2p.protectors.stepwise.purchase import Purchase, Stage, Start
from l2p.task.feature_map import Basis, FeatureMap

#: Mean length that rows are scaled to, as in `Centering` and `RowLength`.
TARGET_NORM = 2.5


@stored
@struct.dataclass
class PublicGeometry(Purchase):
    """Reads rows along the directions in which public rows vary most: z = U' (x - m) (lambda + ridge)^(-power / 2).

    Noise has the same size along every direction of the params, but the signal does not: a digit's pixels vary
    together, along some tens of directions, which digits of other classes reveal (compare the public subspace of Zhou,
    Wu and Banerjee 2021, "Bypassing the ambient dimension"). Rows are mapped before they are clipped, so that neither
    clipping nor noise is wasted on directions without signal.

    If private rows vary in other directions, that information is lost; the guarantee is not affected.

    Attributes:
      center: f32[d], mean of public rows.
      directions: f32[d, k], their principal directions, strongest first, each of length 1.
      variances: f32[k], of public rows along them; positive.
      log_power: f32[j], log of the power, a polynomial in log(mu N): power 0 only rotates rows, 1 whitens them.
      log_ridge: f32[j], log of the ridge over the largest variance, a polynomial in log(mu N).
    """

    center: Annotated[jax.Array, Numbers(("d",))]
    directions: Annotated[jax.Array, Numbers(("d", "k"))]
    variances: Annotated[jax.Array, Numbers(("k",), positive=True)]
    log_power: Polynomial
    log_ridge: Polynomial
    #: Statistics of public rows, never tuned.
    fixed: ClassVar[tuple[str, ...]] = ("center", "directions", "variances")
    kind: ClassVar[str] = "geometry"
    stage: ClassVar[Stage] = Stage.DIRECTIONS
    replaces_maps: ClassVar[bool] = True
    is_free: ClassVar[bool] = True

    def buy(self, start: Start, oracle: Oracle) -> Start:
        features, strength = self(oracle.setup.model.num_features(start.params.shape[0]), oracle.setup)
        return start.but(features=features, strength=strength)

    @classmethod
    def of(cls, x: np.ndarray, num_directions: int) -> "PublicGeometry":
        """From public rows f[n, d], with at most so many of the directions in which they vary; half-way between white
        and unscaled until it is tuned.

        Raises:
          InputError: rows do not vary.

        >>> rows = np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.4, 0.6, 1.0], [0.6, 0.4, 1.0]])
        >>> [round(float(variance), 3) for variance in PublicGeometry.of(rows, 2).variances]
        [0.25, 0.01]
        """
        x = np.asarray(x, np.float64)
        center = x.mean(0)
        covariance = (x - center).T @ (x - center) / len(x)
        # Largest first.
        variances, directions = (part[..., ::-1] for part in np.linalg.eigh(covariance))
        # Larger than rounding errors, for example those of one million equal rows.
        num_directions = min(num_directions, int((variances > 1e-9).sum()))
        if num_directions < 1:
            raise InputError("public rows that are all alike have no principal directions; choose other rows.")
        return cls(
            center=jnp.asarray(center, jnp.float32),
            directions=jnp.asarray(directions[:, :num_directions], jnp.float32),
            variances=jnp.asarray(variances[:num_directions], jnp.float32),
            log_power=jnp.zeros(3).at[0].set(-0.7),
            log_ridge=jnp.zeros(3).at[0].set(-3.0),
        )

    def __call__(self, num_features: int, setup: Setup) -> tuple[FeatureMap, jax.Array]:
        """The map of rows, and f32[k], log of each direction's variance relative to the smallest.

        Raises:
          InputError: rows have another number of features.
        """
        if num_features != self.center.shape[0]:
            raise InputError(
                f"the protector reads rows in the principal directions of {self.center.shape[0]} features in their "
                f"order, and these have {num_features}, for which it was not made; choose another protector."
            )
        ridge = jnp.exp(value(self.log_ridge, setup.log_signal)) * self.variances[0]
        stretch = (self.variances + ridge) ** (-0.5 * jnp.exp(value(self.log_power, setup.log_signal)))
        # Expected squared length of a public row.
        stretch = stretch * TARGET_NORM * jax.lax.rsqrt(self.variances @ jnp.square(stretch))
        basis = Basis(self.directions * stretch[None, :], self.directions.T / stretch[:, None])
        strength = jnp.log(self.variances) - jnp.log(self.variances[-1])
        return FeatureMap(self.center, jnp.ones(()), basis), strength
