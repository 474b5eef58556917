"""Multi-class logistic regression."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models.base import INTERCEPT_COLUMN, Model
from l2p.models.parts import Factor, safe_sqrt
from l2p.task.exact_sums import COEFFICIENT_BITS, Quantized, QuantizedRows, coefficients, joined, numbers
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import BLOCK, Rows, sum_in_blocks
from l2p.task.table import FEW, ByFeature


@dataclasses.dataclass(frozen=True)
class Softmax(Model):
    """Multi-class logistic regression, labels 0 to K - 1; params are the (d + 1) x K matrix of weights, row by row.

    The last row holds the intercepts. A label outside the classes counts as no class.

    Attributes:
      num_classes: K, as declared.

    >>> model = Softmax(10)
    >>> str(model), model.num_params(64), round(float(model.loss(jnp.zeros(650), jnp.ones(64), jnp.array(3.0))), 4)
    ('softmax:10', 650, 2.3026)
    """

    num_classes: int
    name: ClassVar[str] = "softmax"
    kinds: ClassVar[tuple[str, ...]] = ("multiclass", "binary")
    gives_probabilities: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.name}:{self.num_classes}"

    @property
    def labels(self) -> tuple[float, ...]:
        return tuple(float(label) for label in range(self.num_classes))

    @property
    def floats_per_row(self) -> int:  # type: ignore[override]
        return self.num_classes

    @property
    def num_margins(self) -> int:  # type: ignore[override]
        return self.num_classes

    @property
    def num_rates(self) -> int:  # type: ignore[override]
        return self.num_classes

    def num_params(self, num_features: int) -> int:
        return (num_features + 1) * self.num_classes

    def num_features(self, num_params: int) -> int:
        return num_params // self.num_classes - 1

    def _matrix(self, params: jax.Array) -> jax.Array:
        """f32[..., p] -> f32[..., d + 1, K]."""
        return params.reshape(*params.shape[:-1], -1, self.num_classes)

    def _of(self, y: jax.Array) -> jax.Array:
        """One-hot labels: f32[...] -> bool[..., K]."""
        return y[..., None] == jnp.arange(self.num_classes).reshape((1,) * y.ndim + (-1,))

    def margins(self, params: jax.Array, x: jax.Array) -> jax.Array:
        """One margin per class: params f32[p], x f32[n, d] -> f32[n, K]."""
        weights = self._matrix(params)
        return x @ weights[:-1] + INTERCEPT_COLUMN * weights[-1:]

    def margin_loss(self, margins: jax.Array, y: jax.Array) -> jax.Array:
        """Loss as a function of the margins: f32[..., K], f32[...] -> f32[...]."""
        return jax.nn.logsumexp(margins, axis=-1) - jnp.where(self._of(y), margins, 0.0).sum(-1)

    def params_at_rates(self, params: jax.Array, rates: jax.Array) -> jax.Array:
        logs = jnp.log(rates)
        return self._matrix(params).at[-1].set((logs - logs.mean()) / INTERCEPT_COLUMN).ravel()

    def residuals(self, margins: jax.Array, y: jax.Array) -> jax.Array:
        """Gradient of `margin_loss` in the margins: f32[..., K], f32[...] -> f32[..., K]."""
        return jax.nn.softmax(margins, axis=-1) - self._of(y)

    def loss(self, params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return self.margin_loss(self.margins(params, x[None, :])[0], y)

    def losses(self, candidates: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        weights = self._matrix(candidates)
        # One matrix product for all candidates and classes.
        table = jnp.moveaxis(weights[:, :-1], 0, 1).reshape(x.shape[1], -1)
        margins = (x @ table).reshape(x.shape[0], -1, self.num_classes) + INTERCEPT_COLUMN * weights[None, :, -1]
        return self.margin_loss(margins, y[:, None]).T

    def losses_along(
        self, params: jax.Array, direction: jax.Array, sizes: jax.Array, x: jax.Array, y: jax.Array
    ) -> jax.Array:
        """Margins along a line are linear in the size, so any number of sizes takes two passes over the table."""
        margins, change = self.margins(params, x), self.margins(direction, x)
        # One size after another: 21 sizes at once on 40,000 rows overflow the cache and take a third longer.
        return jax.lax.map(lambda size: self.margin_loss(margins - size * change, y), sizes)

    def predict(self, params: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.argmax(self.margins(params, x), axis=-1).astype(jnp.float32)

    def class_scores(self, params: jax.Array, x: jax.Array) -> jax.Array:
        return jax.nn.softmax(self.margins(params, x), axis=-1)

    def scaled_gradient_sum(self, params: jax.Array, rows: Rows, features: FeatureMap, factor: Factor) -> jax.Array:
        """In two passes over a block of rows: a gradient is the outer product of (mapped row, intercept column) and the
        residuals, so its norm is the product of their norms."""
        matrix = self._matrix(self.params_for_raw_rows(params, features))

        one_by_one = isinstance(rows.x, ByFeature) and self.num_classes <= FEW

        def add(block: Rows) -> jax.Array:
            # Classes first, [K, n]: operations over rows then run along memory.
            products = (block.x @ matrix[:-1]).T if one_by_one else matrix[:-1].T @ block.x.T
            margins = products + INTERCEPT_COLUMN * matrix[-1][:, None]
            residuals = jax.nn.softmax(margins, axis=0) - (block.y[None, :] == jnp.arange(self.num_classes)[:, None])
            squares = block.squared_norms(features)
            finite = jnp.isfinite(residuals).all(0) & jnp.isfinite(squares)
            residuals, squares = jnp.where(finite[None, :], residuals, 0.0), jnp.where(finite, squares, 0.0)
            norms = safe_sqrt(jnp.square(residuals).sum(0)) * jnp.sqrt(squares + INTERCEPT_COLUMN**2)
            weights = (block.mask * factor(norms))[None, :] * residuals
            total = features.weighted_sum(block.x, weights).T
            return jnp.concatenate([total, INTERCEPT_COLUMN * weights.sum(-1)[None, :]]).ravel()

        # Lengths of all rows first: they are the same at every step.
        return sum_in_blocks(
            add, rows.replace(squares=rows.squared_norms(features)), len(rows.y) if one_by_one else BLOCK
        )

    def exact_margins(self, params: jax.Array, rows: QuantizedRows) -> jax.Array:
        """Margins of a block's rows, exact at rounded params: f32[p] -> f64[n, K], f32[k, p] -> f64[n, k, K]."""
        weights = jnp.moveaxis(self._matrix(params), -2, 0).astype(jnp.float64)  # [d + 1, ..., K]
        flat = weights.reshape(weights.shape[0], -1)
        margins = rows.dot(flat[:-1], INTERCEPT_COLUMN * flat[-1])
        return margins.reshape(-1, *weights.shape[1:])

    def exact_gradient_sum(self, params: jax.Array, rows: QuantizedRows, factor: Factor, bound: jax.Array) -> Quantized:
        resolution = jnp.asarray(2.0**-COEFFICIENT_BITS)
        likely, total = _exponentials(self.exact_margins(params, rows))
        residuals = numbers(likely / total - self._of(rows.y), resolution)  # whole numbers, so that their norm is exact
        norms = jnp.sqrt(jnp.square(residuals.steps).sum(-1)) * resolution
        lengths, bound = rows.lengths(INTERCEPT_COLUMN), bound.astype(jnp.float64)
        # A coefficient is at most bound / INTERCEPT_COLUMN.
        unit = bound / INTERCEPT_COLUMN * resolution
        vectors = residuals.steps * resolution
        weights = coefficients(vectors, norms, factor(norms * lengths), bound / lengths, unit)
        intercepts = rows.sum(weights)
        return joined(rows.weighted_sum(weights), Quantized(intercepts.steps, intercepts.unit * INTERCEPT_COLUMN))

    def exact_losses(self, candidates: jax.Array, rows: QuantizedRows) -> jax.Array:
        margins = self.exact_margins(candidates, rows)
        total = _exponentials(margins)[1][..., 0]
        own = jnp.where(self._of(rows.y)[:, None, :], margins, 0.0).sum(
            -1
        )  # at most one term is not 0, so the sum is exact
        return jnp.log(total) + margins.max(-1) - own

    def exact_classes(self, params: jax.Array, rows: QuantizedRows) -> jax.Array:
        return jnp.argmax(self.exact_margins(params, rows), axis=-1).astype(jnp.float32)

    def params_for_raw_rows(self, params: jax.Array, features: FeatureMap) -> jax.Array:
        weights = self._matrix(params)
        turned = features.weights_for_raw(weights[..., :-1, :], axis=-2)
        shift = jnp.einsum("d,...dk->...k", features.center, turned)[..., None, :]
        raw = jnp.concatenate([turned, weights[..., -1:, :] - shift / INTERCEPT_COLUMN], -2)
        return raw.reshape(*params.shape[:-1], -1)

    def params_for_mapped_rows(self, params: jax.Array, features: FeatureMap) -> jax.Array:
        weights = self._matrix(params)
        shift = jnp.einsum("d,...dk->...k", features.center, weights[..., :-1, :])[..., None, :]
        turned = features.weights_for_mapped(weights[..., :-1, :], axis=-2)
        mapped = jnp.concatenate([turned, weights[..., -1:, :] + shift / INTERCEPT_COLUMN], -2)
        return mapped.reshape(*params.shape[:-1], -1)

    def scales_at_rates(self, rates: jax.Array, kind: str) -> tuple[jax.Array, jax.Array]:
        del kind
        # A class of share p has the mean slope 2 p (1 - p), and the curvature p (1 - p).
        over_even = rates * (1.0 - rates) * self.num_classes / (1.0 - 1.0 / self.num_classes)
        return over_even, over_even

    def typical_slope(self, kind: str) -> float:
        del kind
        return (1.0 - 1.0 / self.num_classes) ** 0.5

    def typical_curvature(self, kind: str) -> float:
        del kind
        # Twice p (1 - p) at even chances: the classes' Hessian has eigenvalues of up to that when chances differ.
        return 2.0 * (1.0 - 1.0 / self.num_classes) / self.num_classes

    def largest_curvature(self, kind: str) -> float:
        del kind
        return 0.5  # Boehning (1992)

    def per_param(self, values: jax.Array) -> jax.Array:
        return jnp.repeat(jnp.append(values, 0.0), self.num_classes)

    def arrays(self, params: np.ndarray) -> Mapping[str, np.ndarray]:
        """`weights` f32[d, K] and `bias` f32[K] of the margins x . weights + bias; the largest gives the class."""
        weights = params.reshape(-1, self.num_classes)
        return {"weights": weights[:-1], "bias": np.float32(INTERCEPT_COLUMN) * weights[-1]}


def _exponentials(margins: jax.Array) -> tuple[jax.Array, jax.Array]:
    """exp(margin - largest margin) f64[..., K] in whole units of 2^-40, or more for more than 8,192 classes, and their
    sum f64[..., 1], which is exact."""
    bits = min(40, 53 - math.ceil(math.log2(margins.shape[-1])))
    steps = jnp.rint(jnp.exp(margins - margins.max(-1, keepdims=True)) * 2.0**bits)
    return steps * 2.0**-bits, steps.sum(-1, keepdims=True) * 2.0**-bits
