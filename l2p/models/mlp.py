"""A small neural network: one hidden layer of sigmoid units."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models.base import INTERCEPT_COLUMN, Model, softplus
from l2p.models.parts import Factor, safe_sqrt
from l2p.task.exact_sums import COEFFICIENT_BITS, Quantized, QuantizedRows, joined, numbers, room
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows, sum_in_blocks

#: The hidden layer's weights are its params times this. Both layers share one clipping norm and one step size; with
#: this scale their gradients have about the same norm (0.45 and 0.58 at the start on IPUMS-BR).
HIDDEN_SCALE = 0.5
#: Typical second moment, over rows, of the direction in which the hidden units of a row vary most.
UNITS_MOMENT = 0.3


@dataclasses.dataclass(frozen=True)
class MLP(Model):
    """Two layers for binary labels (Hong et al. 2021): sigmoid units, then logistic regression on them.

    The output uses 2 sigmoid - 1 of each unit. The family of functions is the same, because the output's bias absorbs
    the constant, but gradients lose the component that moves all units alike. Params are the hidden layer's (d + 1) x
    20 matrix, row by row with its biases last, then the output's 20 weights and bias.

    Attributes:
      num_units: number of hidden units.

    >>> model = MLP()
    >>> model.num_params(52), model.num_features(1081)
    (1081, 52)
    """

    num_units: int = 20
    name: ClassVar[str] = "mlp"
    kinds: ClassVar[tuple[str, ...]] = ("binary",)
    gives_probabilities: ClassVar[bool] = True
    convex: ClassVar[bool] = False
    depth: ClassVar[int] = 2  # type: ignore[misc]

    @property
    def floats_per_row(self) -> int:  # type: ignore[override]
        return self.num_units

    def num_params(self, num_features: int) -> int:
        return (num_features + 2) * self.num_units + 1

    def num_features(self, num_params: int) -> int:
        return (num_params - 1) // self.num_units - 2

    def init(self, num_features: int) -> jax.Array:
        """Random, from a fixed key and so public: both layers' weights are normal with variance 1 / fan-in, and biases
        put the middle of the unit cube at each unit's midpoint."""
        first, second = jax.random.split(jax.random.key(0))
        shape = num_features, self.num_units
        hidden = jax.random.normal(first, shape, jnp.float32) / (HIDDEN_SCALE * num_features**0.5)
        output = jax.random.normal(second, (self.num_units,), jnp.float32) / self.num_units**0.5
        biases = -0.5 * hidden.sum(0) / INTERCEPT_COLUMN
        return jnp.concatenate([hidden.ravel(), biases, output, jnp.zeros(1, jnp.float32)])

    def _layers(self, params: jax.Array) -> tuple[jax.Array, jax.Array]:
        """f32[..., p] -> weights f32[..., d + 1, h] of the hidden layer and f32[..., h + 1] of the output."""
        hidden, output = params[..., : -self.num_units - 1], params[..., -self.num_units - 1 :]
        return hidden.reshape(*params.shape[:-1], -1, self.num_units), output

    def hidden(self, weights: jax.Array, x: jax.Array) -> jax.Array:
        """Units in [-1, 1], 2 sigmoid - 1: params of the layer f32[d + 1, h], x f32[n, d] -> f32[n, h]."""
        return jnp.tanh(self._entering(weights, x))

    def _entering(self, weights: jax.Array, x: jax.Array) -> jax.Array:
        """Half of the sigmoids' input, f32[n, h]: sigmoid(z) is (1 + tanh(z / 2)) / 2."""
        return 0.5 * HIDDEN_SCALE * (x @ weights[:-1] + INTERCEPT_COLUMN * weights[-1:])

    def margin(self, params: jax.Array, x: jax.Array) -> jax.Array:
        """Margins: params f32[p], x f32[n, d] -> f32[n]."""
        weights, output = self._layers(params)
        return self.hidden(weights, x) @ output[:-1] + INTERCEPT_COLUMN * output[-1]

    def loss(self, params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        margin = self.margin(params, x[None, :])[0]
        return softplus(margin) - y * margin

    def losses(self, candidates: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        def loss(params: jax.Array) -> jax.Array:
            margin = self.margin(params, x)
            return softplus(margin) - y * margin

        # One after another: the units of all candidates together overflow the cache and take twice as long.
        return jax.lax.map(loss, candidates)

    def losses_along(
        self, params: jax.Array, direction: jax.Array, sizes: jax.Array, x: jax.Array, y: jax.Array
    ) -> jax.Array:
        """The input of the units is linear in the size, so any number of sizes takes two passes over the table."""
        (weights, output), (turn, change) = self._layers(params), self._layers(direction)
        entering, moving = self._entering(weights, x), self._entering(turn, x)

        def loss(size: jax.Array) -> jax.Array:
            after = output - size * change
            margin = jnp.tanh(entering - size * moving) @ after[:-1] + INTERCEPT_COLUMN * after[-1]
            return softplus(margin) - y * margin

        return jax.lax.map(loss, sizes)

    def predict(self, params: jax.Array, x: jax.Array) -> jax.Array:
        return (self.margin(params, x) > 0).astype(jnp.float32)

    def class_scores(self, params: jax.Array, x: jax.Array) -> jax.Array:
        margin = self.margin(params, x)
        return jax.nn.sigmoid(jnp.stack([-margin, margin], axis=-1))

    def scaled_gradient_sum(self, params: jax.Array, rows: Rows, features: FeatureMap, factor: Factor) -> jax.Array:
        """In two passes over the table, by ghost norms (Goodfellow 2015): a layer's gradient is the outer product of
        its input and the loss's derivative in its output, so its norm is the product of their norms."""
        weights, output = self._layers(self.params_for_raw_rows(params, features))

        def add(block: Rows) -> jax.Array:
            # Units first, [h, n]: operations over rows then run along memory.
            entering = weights[:-1].T @ block.x.T + INTERCEPT_COLUMN * weights[-1][:, None]
            units = jnp.tanh(0.5 * HIDDEN_SCALE * entering)
            residual = jax.nn.sigmoid(output[:-1] @ units + INTERCEPT_COLUMN * output[-1]) - block.y
            inner = 0.5 * HIDDEN_SCALE * residual[None, :] * (1.0 - jnp.square(units)) * output[:-1, None]
            squares = block.squared_norms(features)
            finite = jnp.isfinite(residual) & jnp.isfinite(inner).all(0) & jnp.isfinite(squares)
            units, inner = jnp.where(finite[None, :], units, 0.0), jnp.where(finite[None, :], inner, 0.0)
            residual, squares = jnp.where(finite, residual, 0.0), jnp.where(finite, squares, 0.0)
            before = jnp.square(inner).sum(0) * (squares + INTERCEPT_COLUMN**2)
            after = jnp.square(residual) * (jnp.square(units).sum(0) + INTERCEPT_COLUMN**2)
            weight = block.mask * factor(safe_sqrt(before + after))
            inner, residual = weight[None, :] * inner, weight * residual
            biases, bias = INTERCEPT_COLUMN * inner.sum(-1), INTERCEPT_COLUMN * residual.sum()[None]
            return jnp.concatenate([features.weighted_sum(block.x, inner).T.ravel(), biases, units @ residual, bias])

        # Lengths of all rows first: they are the same at every step.
        return sum_in_blocks(add, rows.replace(squares=rows.squared_norms(features)))

    def _exact_units(self, weights: jax.Array, rows: QuantizedRows) -> QuantizedRows:
        """The hidden units of a block's rows, as rows of h features."""
        weights = weights.astype(jnp.float64)
        entering = rows.dot(weights[:-1], INTERCEPT_COLUMN * weights[-1])
        return rows.rounded(jnp.tanh(0.5 * HIDDEN_SCALE * entering), jnp.ones((), jnp.float64))

    def _exact_margin(self, params: jax.Array, rows: QuantizedRows) -> tuple[jax.Array, QuantizedRows]:
        """Margins f64[n] and hidden units of a block's rows, exact at rounded params f32[p]."""
        weights, output = self._layers(params)
        units = self._exact_units(weights, rows)
        return units.dot(output[:-1], INTERCEPT_COLUMN * output[-1].astype(jnp.float64)), units

    def exact_gradient_sum(self, params: jax.Array, rows: QuantizedRows, factor: Factor, bound: jax.Array) -> Quantized:
        margin, units = self._exact_margin(params, rows)
        bound, resolution = bound.astype(jnp.float64), jnp.asarray(2.0**-COEFFICIENT_BITS)
        residual = jax.nn.sigmoid(margin) - rows.y
        output = 0.5 * HIDDEN_SCALE * self._layers(params)[1][:-1].astype(jnp.float64)
        largest = jnp.maximum(jnp.abs(output).max(), 1e-30)
        # Whole numbers, so that their norm is exact.
        bend = 1.0 - jnp.square(units.values())
        inner = numbers(residual[:, None] * bend * (output / largest)[None, :], resolution).steps
        norms = jnp.sqrt(jnp.square(inner).sum(-1)) * (resolution * largest)
        before, after = rows.lengths(INTERCEPT_COLUMN), units.lengths(INTERCEPT_COLUMN)
        norm = jnp.sqrt(jnp.square(norms * before) + jnp.square(residual * after))
        # A coefficient is at most bound / INTERCEPT_COLUMN, and half a unit of each may be added by rounding.
        unit = bound / INTERCEPT_COLUMN * resolution
        longest = room(bound, 0.5 * unit * (before * self.num_units**0.5 + after))
        scale = jnp.minimum(factor(norm), longest / jnp.maximum(norm, 1e-150))
        weights = numbers(inner * (resolution * largest * scale)[:, None], unit)
        residuals = numbers(residual * scale, unit)
        biases, bias = rows.sum(weights), rows.sum(residuals)
        return joined(
            rows.weighted_sum(weights),
            Quantized(biases.steps, biases.unit * INTERCEPT_COLUMN),
            units.weighted_sum(residuals),
            Quantized(bias.steps, bias.unit * INTERCEPT_COLUMN),
        )

    def exact_losses(self, candidates: jax.Array, rows: QuantizedRows) -> jax.Array:
        def loss(params: jax.Array) -> jax.Array:
            margin, _ = self._exact_margin(params, rows)
            return softplus(margin) - rows.y * margin

        return jax.lax.map(loss, candidates).T

    def exact_classes(self, params: jax.Array, rows: QuantizedRows) -> jax.Array:
        return (self._exact_margin(params, rows)[0] > 0).astype(jnp.float32)

    def params_for_raw_rows(self, params: jax.Array, features: FeatureMap) -> jax.Array:
        weights, output = self._layers(params)
        turned = features.weights_for_raw(weights[..., :-1, :], axis=-2)
        shift = jnp.einsum("d,...dh->...h", features.center, turned)
        flat = turned.reshape(*params.shape[:-1], -1)
        return jnp.concatenate([flat, weights[..., -1, :] - shift / INTERCEPT_COLUMN, output], -1)

    def params_for_mapped_rows(self, params: jax.Array, features: FeatureMap) -> jax.Array:
        weights, output = self._layers(params)
        shift = jnp.einsum("d,...dh->...h", features.center, weights[..., :-1, :])
        turned = features.weights_for_mapped(weights[..., :-1, :], axis=-2)
        flat = turned.reshape(*params.shape[:-1], -1)
        return jnp.concatenate([flat, weights[..., -1, :] + shift / INTERCEPT_COLUMN, output], -1)

    def per_param(self, values: jax.Array) -> jax.Array:
        hidden = jnp.repeat(jnp.append(values, 0.0), self.num_units)
        return jnp.concatenate([hidden, jnp.zeros(self.num_units + 1)])

    def moment_per_param(self, moments: jax.Array) -> jax.Array:
        # Weights of one feature move the margin together, by the output's weights, whose length is 1 at the start.
        hidden = jnp.square(0.5 * HIDDEN_SCALE) * jnp.append(moments, INTERCEPT_COLUMN**2)
        output = jnp.full(self.num_units, UNITS_MOMENT)
        return jnp.concatenate([jnp.repeat(hidden, self.num_units), output, jnp.zeros(1)])

    def moment_growth(self, params: jax.Array, start: jax.Array) -> jax.Array:
        (weights, output), (first_weights, first_output) = self._layers(params), self._layers(start)
        hidden = _growth(output[:-1], first_output[:-1])
        # Units are between -1 and 1, so that their second moments sum to at most their number.
        units = jnp.minimum(_growth(weights[:-1], first_weights[:-1]), self.num_units / UNITS_MOMENT)
        return jnp.concatenate([jnp.full(weights.size, hidden), jnp.full(self.num_units, units), jnp.ones(1)])

    def typical_slope(self, kind: str) -> float:
        del kind
        return 0.2  # of a row's gradient at the start, over the row's length; logistic regression has 0.5

    def typical_curvature(self, kind: str) -> float:
        del kind
        return 0.25

    def typical_margin(self, kind: str) -> float:
        del kind
        return 2.0  # that of logistic regression, which has the same loss

    @property
    def num_rates(self) -> int:  # type: ignore[override]
        return 1

    def params_at_rates(self, params: jax.Array, rates: jax.Array) -> jax.Array:
        # The hidden units of the start are odd around the middle of the unit cube, so that margins are around 0.
        return params.at[-1].set(jnp.log(rates[1] / rates[0]) / INTERCEPT_COLUMN)

    def scales_at_rates(self, rates: jax.Array, kind: str) -> tuple[jax.Array, jax.Array]:
        del kind
        over_even = 4.0 * rates[:1] * rates[1:]
        return over_even, over_even

    def arrays(self, params: np.ndarray) -> Mapping[str, np.ndarray]:
        """`hidden_weights` f32[d, h], `hidden_bias` f32[h], `weights` f32[h] and `bias` f32[1] of the margin
        sigmoid(x . hidden_weights + hidden_bias) . weights + bias."""
        size = self.num_units + 1
        hidden = np.float32(HIDDEN_SCALE) * params[:-size].reshape(-1, self.num_units)
        output, bias = params[-size:-1], np.float32(INTERCEPT_COLUMN) * params[-1:]
        return {
            "hidden_weights": hidden[:-1],
            "hidden_bias": np.float32(INTERCEPT_COLUMN) * hidden[-1],
            "weights": 2.0 * output,
            "bias": bias - output.sum(keepdims=True),
        }


def _growth(now: jax.Array, start: jax.Array) -> jax.Array:
    """Factor f32[] by which the squared length of weights is larger than at the start; at least 1."""
    return jnp.maximum(jnp.square(now).sum() / jnp.maximum(jnp.square(start).sum(), 1e-12), 1.0)
