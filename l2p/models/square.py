"""Least squares: linear regression, and quadratic problems."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models.base import INTERCEPT_COLUMN
from l2p.models.linear import GeneralizedLinear
from l2p.models.parts import Factor, safe_sqrt
from l2p.task.exact_sums import QuantizedRows
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows


@dataclasses.dataclass(frozen=True)
class Square(GeneralizedLinear):
    """Linear least squares, (margin - y)^2 / 2, on targets in [0, 1]; as a classifier, on labels 0 and 1.

    >>> import jax.numpy as jnp
    >>> float(Square().loss(jnp.zeros(3), jnp.ones(2), jnp.array(1.0)))
    0.5
    """

    name: ClassVar[str] = "square"
    kinds: ClassVar[tuple[str, ...]] = ("regression", "binary")
    lipschitz: ClassVar[float] = math.inf
    smoothness: ClassVar[float] = 1.0

    def init(self, num_features: int) -> jax.Array:
        """Predicts 1/2 for every row, the middle of the targets' range: starting from zero, every run would spend its
        first steps on an offset that is known beforehand."""
        start = super().init(num_features)
        return start.at[-1].set(0.5 / INTERCEPT_COLUMN) if self.has_intercept else start

    def typical_slope(self, kind: str) -> float:
        return 0.2 if kind == "regression" else 0.5

    def line_curvature(self, length: jax.Array, kind: str) -> jax.Array:
        del kind
        return jnp.square(length)

    def base_margin(self, rates: jax.Array) -> jax.Array:
        return rates[1]

    def margin_loss(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        return 0.5 * jnp.square(margin - y)

    def residual(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        return margin - y

    def curvature(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.ones(jnp.broadcast_shapes(margin.shape, y.shape), margin.dtype)

    def classes(self, margins: jax.Array) -> jax.Array:
        return (margins > 0.5).astype(jnp.float32)

    def predict(self, params: jax.Array, x: jax.Array) -> jax.Array:
        return self.margin(params, x)

    def class_scores(self, params: jax.Array, x: jax.Array) -> jax.Array:
        margin = self.margin(params, x) - 0.5
        return jnp.stack([-margin, margin], axis=-1)

    def classify(self, params: jax.Array, x: jax.Array) -> jax.Array:
        return self.classes(self.margin(params, x))


@dataclasses.dataclass(frozen=True)
class Quadratic(Square):
    """Quadratic problems ||W theta - y||^2 (Andrychowicz et al. 2016): least squares without an intercept.

    Rows x in [0, 1] are rows 2 x - 1 of W, so that W is centred, as in that paper. The optimum is the solution of the
    normal equations. There is no intercept to absorb a shift, so rows are not centred; params are rewritten exactly
    only for maps of the features that map 1/2 to itself, such as x -> scale * (x - 1/2) + 1/2.

    >>> import jax.numpy as jnp
    >>> float(Quadratic().loss(jnp.ones(2), jnp.array([1.0, 0.5]), jnp.array(0.0)))
    0.5
    """

    name: ClassVar[str] = "quadratic"
    kinds: ClassVar[tuple[str, ...]] = ("regression",)
    has_intercept: ClassVar[bool] = False
    shortest: ClassVar[float] = 1.0 / 32.0

    def num_params(self, num_features: int) -> int:
        return num_features

    def num_features(self, num_params: int) -> int:
        return num_params

    def design(self, x: jax.Array) -> jax.Array:
        return 2.0 * x - 1.0

    def margin(self, params: jax.Array, x: jax.Array) -> jax.Array:
        return self.design(x) @ params

    def margins(self, candidates: jax.Array, x: jax.Array) -> jax.Array:
        return candidates @ self.design(x).T

    def scaled_gradient_sum(self, params: jax.Array, rows: Rows, features: FeatureMap, factor: Factor) -> jax.Array:
        """In two passes over the table, as for other linear models; 2 x' - 1 of mapped rows x' is itself a map."""
        centred = FeatureMap(features.center + 0.5 / features.scale, 2.0 * features.scale)
        residual = (rows.x @ params - centred.center @ params) * centred.scale - rows.y
        squares = centred.squared_norms(rows.x)
        finite = jnp.isfinite(residual) & jnp.isfinite(squares)
        residual, squares = jnp.where(finite, residual, 0.0), jnp.where(finite, squares, 0.0)
        weight = rows.mask * residual * factor(jnp.abs(residual) * safe_sqrt(squares))
        return centred.weighted_sum(rows.x, weight)

    def exact_rows(self, rows: QuantizedRows) -> tuple[QuantizedRows, float]:
        return rows.map(FeatureMap(jnp.full(rows.offset.shape, 0.5), jnp.full((), 2.0))), 0.0

    def exact_margins(self, params: jax.Array, rows: QuantizedRows) -> jax.Array:
        return self.exact_rows(rows)[0].dot(params.T, jnp.zeros(params.shape[:-1]))

    def params_for_raw_rows(self, params: jax.Array, features: FeatureMap) -> jax.Array:
        return params * features.scale

    def params_for_mapped_rows(self, params: jax.Array, features: FeatureMap) -> jax.Array:
        return params / features.scale

    def per_param(self, values: jax.Array) -> jax.Array:
        return values

    def arrays(self, params: np.ndarray) -> Mapping[str, np.ndarray]:
        """`weights` f32[d] and `bias` f32[1] of the prediction weights . x + bias."""
        return {"weights": 2.0 * params, "bias": -params.sum(keepdims=True)}
