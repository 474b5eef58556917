"""Models whose loss depends on a row through one margin."""

import abc
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from l2p.base.compiled import as_one
from l2p.models.base import INTERCEPT_COLUMN, Model
from l2p.models.parts import Factor
from l2p.task.exact_sums import COEFFICIENT_BITS, Quantized, QuantizedRows, coefficients, joined
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows

#: Standard deviation of margins around the base rate's, once features say a little, over `typical_margin`.
SPREAD = 0.25
#: Nodes and weights for means over a standard normal distribution.
NODES, NODE_WEIGHTS = (values.astype(np.float32) for values in np.polynomial.hermite_e.hermegauss(21))
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
#: Functions of margins and targets.
ELEMENTWISE = ("margin_loss", "residual", "curvature", "newton_curvature")


def _of_each(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """A method of (margins, targets), which may be scalars, called for each pair alone."""

    @functools.wraps(function)
    def of_each(self: Any, margin: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.vectorize(functools.partial(function, self))(margin, y)

    of_each.is_of_each = True  # pyrefly: ignore[missing-attribute]
    return of_each


def is_of_each(model: "GeneralizedLinear", name: str) -> bool:
    """True for a function of margins and targets that is called for each pair alone, wherever it comes from."""
    return name not in getattr(model, "__dict__", {}) and hasattr(inspect.getattr_static(model, name), "is_of_each")


class GeneralizedLinear(Model):
    """A model whose loss depends on a row through one margin: x . w + INTERCEPT_COLUMN * b, params = (w, b).

    Per-row gradients are multiples of the row itself, which is what makes clipping them closed-form.

    Attributes:
      lipschitz: supremum of |residual| over margins, for targets of its kinds; `math.inf` if there is none.
      smoothness: supremum of the curvature over margins; `math.inf` if there is none.
      flat: whether the curvature vanishes at some margins, so that Newton's method alone may fail to descend.
      shortest: the smallest length of a line; in a release, shorter lines are treated as this long.
    """

    lipschitz: ClassVar[float]
    smoothness: ClassVar[float]
    flat: ClassVar[bool] = False
    shortest: ClassVar[float] = INTERCEPT_COLUMN

    def __init_subclass__(cls, **options: Any) -> None:
        """Calls functions of margins and targets for each pair alone: a release computes them of many rows at once, and
        what a row contributes must not depend on the others, whatever a class of a user's own makes of arrays."""
        super().__init_subclass__(**options)
        for name in ELEMENTWISE:
            function = inspect.getattr_static(cls, name)  # which may be that of another base
            if inspect.isfunction(function) and not hasattr(function, "is_of_each"):
                setattr(cls, name, _of_each(function))

    @abc.abstractmethod
    def margin_loss(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        """Loss as a function of the margin, elementwise."""

    @abc.abstractmethod
    def residual(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        """Derivative of `margin_loss` in the margin, elementwise."""

    @abc.abstractmethod
    def curvature(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        """Second derivative of `margin_loss` in the margin, elementwise."""

    def newton_curvature(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        """The curvature that Newton's method uses, elementwise; models whose curvature may vanish replace it."""
        return self.curvature(margin, y)

    def num_params(self, num_features: int) -> int:
        return num_features + 1

    def num_features(self, num_params: int) -> int:
        return num_params - 1

    def design(self, x: Float[Array, "*rows features"]) -> Float[Array, "*rows params"]:
        """Design matrix: the rows with the constant column, which params multiply."""
        return jnp.column_stack([x, jnp.full(x.shape[0], INTERCEPT_COLUMN)])

    def margin(self, params: Float[Array, " params"], x: Float[Array, "*rows features"]) -> Float[Array, "*rows"]:
        """Margins of rows."""
        return x @ params[:-1] + INTERCEPT_COLUMN * params[-1]

    def margins(
        self, candidates: Float[Array, "candidates params"], x: Float[Array, "rows features"]
    ) -> Float[Array, "candidates rows"]:
        """Margins of rows under several params."""
        return candidates[:, :-1] @ x.T + INTERCEPT_COLUMN * candidates[:, -1:]

    def loss(self, params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return self.margin_loss(self.margin(params, x), y)

    def losses(self, candidates: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return self.margin_loss(self.margins(candidates, x), y[None, :])

    def losses_along(
        self, params: jax.Array, direction: jax.Array, sizes: jax.Array, x: jax.Array, y: jax.Array
    ) -> jax.Array:
        """Margins along a line are linear in the size, so any number of sizes takes two passes over the table."""
        margin, change = self.margins(jnp.stack([params, direction]), x)
        # One size after another: 21 sizes at once on 40,000 rows overflow the cache and take a third longer.
        return jax.lax.map(lambda size: self.margin_loss(margin - size * change, y), sizes)

    def classes(self, margins: jax.Array) -> jax.Array:
        """Predicted classes as a function of the margins, elementwise."""
        return (margins > 0).astype(jnp.float32)

    def predict(self, params: jax.Array, x: jax.Array) -> jax.Array:
        return self.classes(self.margin(params, x))

    @property
    def num_rates(self) -> int:  # type: ignore[override]
        return 1 if self.has_intercept else 0

    def base_margin(self, rates: Float[Array, "2"]) -> Float[Array, ""]:
        """The margin that fits best where all rows have the same, given rates as in `params_at_rates`."""
        raise TypeError(f"model {self} does not start from rates.")

    def params_at_rates(self, params: jax.Array, rates: jax.Array) -> jax.Array:
        return params.at[-1].set(self.base_margin(rates) / INTERCEPT_COLUMN)

    def scales_at_rates(self, rates: jax.Array, kind: str) -> tuple[jax.Array, jax.Array]:
        if kind == "regression":
            return super().scales_at_rates(rates, kind)
        spread = SPREAD * self.typical_margin(kind)
        slope, curvature = self._scales(rates, spread)
        even_slope, even_curvature = self._scales(jnp.full(2, 0.5), spread)
        return (slope / even_slope)[None], (curvature / even_curvature)[None]

    def _scales(self, rates: jax.Array, spread: float) -> tuple[jax.Array, jax.Array]:
        """Mean absolute slope and mean curvature f32[] over margins that spread around the base margin."""
        places = jnp.asarray(NODES)[:, None]
        slopes = self.residual(self.base_margin(rates) + spread * places, jnp.array(self.labels)[None, :])
        weights = jnp.asarray(NODE_WEIGHTS)[:, None] * rates[None, :]
        # The mean derivative over a normal distribution, by Stein's lemma: hinges have no second derivative.
        return (weights * jnp.abs(slopes)).sum(), (weights * slopes * places).sum() / spread

    def class_scores(self, params: jax.Array, x: jax.Array) -> jax.Array:
        margin = self.margin(params, x)
        return jnp.stack([-margin, margin], axis=-1)

    def scaled_gradient_sum(self, params: jax.Array, rows: Rows, features: FeatureMap, factor: Factor) -> jax.Array:
        """In two passes over the table: a gradient is residual * (mapped row, intercept column), so its norm is
        known without forming it. Rows whose residual or squared norm is not finite count as zero."""
        residual = self.residual(self.margin(self.params_for_raw_rows(params, features), rows.x), rows.y)
        squares = rows.squared_norms(features)
        finite = jnp.isfinite(residual) & jnp.isfinite(squares)
        residual, squares = jnp.where(finite, residual, 0.0), jnp.where(finite, squares, 0.0)
        weight = rows.mask * residual * factor(jnp.abs(residual) * jnp.sqrt(squares + INTERCEPT_COLUMN**2))
        return jnp.append(features.weighted_sum(rows.x, weight), weight.sum() * INTERCEPT_COLUMN)

    def exact_rows(self, rows: QuantizedRows) -> tuple[QuantizedRows, float]:
        """The rows that params multiply, without the intercept's column, and the constant in that column."""
        return rows, INTERCEPT_COLUMN

    def exact_margins(self, params: jax.Array, rows: QuantizedRows) -> jax.Array:
        """Margins of a block's rows, exact at rounded params: f32[p] -> f64[n], f32[k, p] -> f64[n, k]."""
        return rows.dot(params[..., :-1].T, INTERCEPT_COLUMN * params[..., -1].astype(jnp.float64))

    def exact_gradient_sum(self, params: jax.Array, rows: QuantizedRows, factor: Factor, bound: jax.Array) -> Quantized:
        residual = self.residual(self.exact_margins(params, rows), rows.y)
        rows, constant = self.exact_rows(rows)
        lengths = jnp.maximum(rows.lengths(constant), self.shortest)
        bound = bound.astype(jnp.float64)
        # A coefficient is at most bound / shortest.
        unit = bound / self.shortest * 2.0**-COEFFICIENT_BITS
        size = jnp.abs(residual)
        weights = coefficients(residual, size, factor(size * lengths), bound / lengths, unit)
        features = rows.weighted_sum(weights)
        if not constant:
            return joined(features)
        intercept = rows.sum(weights)
        return joined(features, Quantized(intercept.steps, intercept.unit * constant))

    def exact_losses(self, candidates: jax.Array, rows: QuantizedRows) -> jax.Array:
        return self.margin_loss(self.exact_margins(candidates, rows), rows.y[:, None])

    def exact_classes(self, params: jax.Array, rows: QuantizedRows) -> jax.Array:
        return self.classes(self.exact_margins(params, rows))

    def params_for_raw_rows(self, params: jax.Array, features: FeatureMap) -> jax.Array:
        weights = features.weights_for_raw(params[..., :-1])
        shift = (weights @ features.center)[..., None]
        return jnp.concatenate([weights, params[..., -1:] - shift / INTERCEPT_COLUMN], -1)

    @functools.partial(as_one, static=("self",))
    def params_for_mapped_rows(self, params: jax.Array, features: FeatureMap) -> jax.Array:
        shift = (params[..., :-1] @ features.center)[..., None]
        weights = features.weights_for_mapped(params[..., :-1])
        return jnp.concatenate([weights, params[..., -1:] + shift / INTERCEPT_COLUMN], -1)

    def per_param(self, values: jax.Array) -> jax.Array:
        return jnp.append(values, 0.0)

    def arrays(self, params: np.ndarray) -> Mapping[str, np.ndarray]:
        """`weights` f32[d] and `bias` f32[1] of the margin weights . x + bias."""
        return {"weights": params[:-1], "bias": np.float32(INTERCEPT_COLUMN) * params[-1:]}
