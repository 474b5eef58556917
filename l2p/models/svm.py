"""Linear support vector machines: the hinge loss, and Huber's smooth form of it."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.models.linear import GeneralizedLinear

#: Rate at which the larger class gets the whole margin, in units of how much larger it is.
STEEPNESS = 4.0


def _base_margin(rates: jax.Array) -> jax.Array:
    """Margin f32[] near 1 towards the larger of two classes f32[2], which is best for both losses; smaller where they
    are nearly even, so that noise decides which is larger."""
    return jnp.tanh(STEEPNESS * (rates[1] - rates[0]))


@dataclasses.dataclass(frozen=True)
class HuberSVM(GeneralizedLinear):
    """Linear SVM with Huber's hinge (Wu et al. 2017), labels 0 and 1, read as -1 and +1.

    With z = (2 y - 1) * margin: 0 above 1 + width, 1 - z below 1 - width, and (1 + width - z)^2 / (4 width) between.

    Attributes:
      width: h, half the length of the bend.

    >>> svm = HuberSVM()
    >>> [round(float(svm.margin_loss(jnp.array(margin), jnp.array(1.0))), 4) for margin in (-1.0, 1.0, 1.1)]
    [2.0, 0.025, 0.0]
    """

    name: ClassVar[str] = "svm"
    kinds: ClassVar[tuple[str, ...]] = ("binary",)
    lipschitz: ClassVar[float] = 1.0
    flat: ClassVar[bool] = True
    width: float = 0.1

    @property
    def smoothness(self) -> float:  # type: ignore[override]
        return 1.0 / (2.0 * self.width)

    def typical_curvature(self, kind: str) -> float:
        del kind
        return 0.5  # `newton_curvature` at margin 0

    def base_margin(self, rates: jax.Array) -> jax.Array:
        return _base_margin(rates)

    def margin_loss(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        h, z = self.width, (2.0 * y - 1.0) * margin
        bends = jnp.abs(1.0 - z) <= h
        # z is replaced by 1 outside the bend, so that no derivative overflows.
        bend = jnp.square(1.0 + h - jnp.where(bends, z, 1.0)) / (4.0 * h)
        return jnp.where(bends, bend, jnp.where(z < 1.0, 1.0 - z, 0.0))

    def residual(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        sign = 2.0 * y - 1.0
        return -sign * jnp.clip((1.0 + self.width - sign * margin) / (2.0 * self.width), 0.0, 1.0)

    def curvature(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        sign = 2.0 * y - 1.0
        bends = jnp.abs(1.0 - sign * margin) <= self.width
        return jnp.where(bends, jnp.square(sign) * self.smoothness, 0.0)

    def newton_curvature(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        """Curvature of the flattest parabola that touches the loss at this margin and lies above it everywhere.

        Outside the bend the loss is linear, without curvature; with this curvature every full Newton step descends.
        """
        distance = jnp.abs(1.0 - (2.0 * y - 1.0) * margin)
        return 0.5 / jnp.maximum(distance, self.width)


@dataclasses.dataclass(frozen=True)
class Hinge(GeneralizedLinear):
    """Linear SVM with the hinge loss max(0, 1 - z), labels 0 and 1, z as in `HuberSVM`; the kink counts as flat.

    >>> import jax.numpy as jnp
    >>> float(Hinge().loss(jnp.zeros(3), jnp.ones(2), jnp.array(1.0)))
    1.0
    """

    name: ClassVar[str] = "hinge"
    kinds: ClassVar[tuple[str, ...]] = ("binary",)
    lipschitz: ClassVar[float] = 1.0
    flat: ClassVar[bool] = True
    smoothness: ClassVar[float] = math.inf

    def typical_curvature(self, kind: str) -> float:
        del kind
        return 0.5  # of the flattest parabola that touches the loss at margin 0 and lies above it

    def base_margin(self, rates: jax.Array) -> jax.Array:
        return _base_margin(rates)

    def margin_loss(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        slack = 1.0 - (2.0 * y - 1.0) * margin
        return jnp.where(slack > 0, slack, 0.0)

    def residual(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        sign = 2.0 * y - 1.0
        return jnp.where(sign * margin < 1.0, -sign, 0.0)

    def curvature(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        """Zero wherever it exists, so Newton's method needs a smoothed hinge."""
        return jnp.zeros(jnp.broadcast_shapes(margin.shape, y.shape), margin.dtype)
