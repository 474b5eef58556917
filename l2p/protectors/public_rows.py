"""What public rows say inside a run: their gradients, the directions of these, and the model that fits them.

Everything here reads `oracle.public` only, which costs nothing; no function takes private rows.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from l2p import struct
from l2p.errors import InputError
from l2p.features import FeatureMap
from l2p.models import INTERCEPT_COLUMN, Model, Softmax
from l2p.models.linear import GeneralizedLinear
from l2p.oracle import Oracle
from l2p.task import Rows, null_invalid

#: Of which matrix directions are singular vectors: of the total gradient, as in AdaMix, or of the rows' gradients.
Matrix = Literal["total", "rows"]
#: A singular value below this share of the largest is a rounding error, and its vector no direction of public rows.
RANK_TOLERANCE = 1e-5


def public_rows(oracle: Oracle, method: str) -> Rows:
    """The public rows of a run, those with a value that is not finite as null rows.

    Raises:
      InputError: at trace time, there are none.
    """
    if oracle.public is None:
        raise InputError(
            f"{method} learns from public rows, and there are none; give a file of the same columns with --public, or "
            "choose a method that needs none."
        )
    return null_invalid(oracle.public)


def has_matrix(model: Model) -> bool:
    """Whether the params are a matrix of (features and intercept) x classes, and a row's gradient an outer product."""
    return isinstance(model, (Softmax, GeneralizedLinear))


@struct.dataclass
class PublicGradients:
    """Gradients of public rows at the present params; nothing is computed before a method is called.

    Attributes:
      model: the model (static).
      params: f32[p], for mapped rows.
      rows: public rows, mapped as private ones are, x f32[n, d].
    """

    model: Model = struct.field(pytree_node=False)
    params: jax.Array
    rows: Rows

    @classmethod
    def at(cls, model: Model, params: jax.Array, rows: Rows, features: FeatureMap | None = None) -> "PublicGradients":
        """At params f32[p] for rows read through `features`; None reads them as they are."""
        x = rows.x if features is None else features.apply(rows.x)
        return cls(model, params, null_invalid(rows.replace(x=x)))  # type: ignore[attr-defined]

    @property
    def count(self) -> jax.Array:
        """f32[], number of rows that count, at least 1."""
        return jnp.maximum((self.rows.mask > 0).sum(), 1).astype(jnp.float32)

    def total(self, clip_norm: jax.Array | None = None) -> jax.Array:
        """Sum f32[p] of the rows' gradients, each clipped to `clip_norm` if one is given."""
        raw = FeatureMap.identity(self.rows.x.shape[1])
        if clip_norm is not None:
            return self.model.clipped_gradient_sum(self.params, self.rows, raw, clip_norm)
        return self.model.scaled_gradient_sum(self.params, self.rows, raw, jnp.ones_like)

    def mean(self, clip_norm: jax.Array | None = None) -> jax.Array:
        """Mean gradient f32[p] of the rows that count."""
        return self.total(clip_norm) / self.count

    def norms(self) -> jax.Array:
        """L2 norms f32[n] of the rows' gradients; 0 for null rows."""
        if has_matrix(self.model):
            lines, residuals = self.factors()
            norms = _length(lines) * _length(residuals)
        else:
            norms = _length(self.model.gradients(self.params, self.rows.x, self.rows.y))
        return jnp.where(self.rows.mask > 0, norms, 0.0)

    def quantile(self, share: jax.Array) -> jax.Array:
        """The quantile f32[] of the norms of the rows that count, between two of them by linear interpolation.

        >>> from l2p.models import Logistic
        >>> rows = Rows(jnp.zeros((3, 1)), jnp.zeros(3), jnp.array([1.0, 1.0, 0.0]))
        >>> round(float(PublicGradients.at(Logistic(), jnp.zeros(2), rows).quantile(0.9)), 3)  # sigmoid(0) / 2, twice
        0.25
        """
        ordered = jnp.sort(jnp.where(self.rows.mask > 0, self.norms(), jnp.inf))
        place = share * (self.count - 1.0)
        low = jnp.floor(place).astype(jnp.int32)
        high = jnp.minimum(low + 1, self.count.astype(jnp.int32) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    def factors(self) -> tuple[jax.Array, jax.Array]:
        """Lines f32[n, d + 1], with the intercept's column, and residuals f32[n, K], whose outer product is the
        gradient of a row, for models whose params are a matrix; zeros for null rows.

        Raises:
          InputError: the model has no such matrix.
        """
        x, y, model = self.rows.x, self.rows.y, self.model
        if isinstance(model, Softmax):
            residuals = model.residuals(model.margins(self.params, x), y)
        elif isinstance(model, GeneralizedLinear):
            residuals = model.residual(model.margin(self.params, x), y)[:, None]
        else:
            raise InputError(
                f"the params of model {model} are no matrix of features and classes, whose gradients have singular "
                "vectors; choose model softmax or logistic, or a method without a projection."
            )
        lines = jnp.column_stack([x, jnp.full(x.shape[0], INTERCEPT_COLUMN)])
        return lines, jnp.where(self.rows.mask[:, None] > 0, residuals, 0.0)

    def directions(self, number: int, matrix: Matrix = "total") -> jax.Array:
        """The first left singular vectors f32[d + 1, number] of the public gradient, zeros beyond its rank.

        "total" takes the matrix of the total gradient, (d + 1) x K, as AdaMix does; "rows" the rows' gradients side by
        side, (d + 1) x nK, whose rank is not limited by the number of classes. They are orthonormal, and derivatives
        hold them still, because these do not exist where two singular values are equal.

        Raises:
          InputError: at trace time, more directions than the matrix can have.
        """
        lines, residuals = self.factors()
        check_rank(number, self.model, *lines.shape, residuals.shape[1], matrix)
        # Side by side, outer products line_j x residual_j have the Gram matrix of the lines times their length.
        wide = lines.T @ residuals if matrix == "total" else (lines * _length(residuals)[:, None]).T
        vectors, values, _ = jnp.linalg.svd(jax.lax.stop_gradient(wide), full_matrices=False)
        known = values > RANK_TOLERANCE * jnp.maximum(values[0], 1e-30)
        return jnp.where(known, vectors, 0.0)[:, :number]


def check_rank(number: int, model: Model, num_rows: int, num_lines: int, num_classes: int, matrix: Matrix) -> None:
    """Refuse more directions than gradients of so many public rows, lines and classes can have; `InputError`."""
    most = min(num_lines, num_rows, num_classes) if matrix == "total" else min(num_lines, num_rows)
    if number > most:
        raise InputError(
            f"a projection to {number} directions was asked for, but the matrix of the public gradients ({matrix}) has "
            f"a rank of at most {most} for {model} on {num_rows} public rows of {num_lines - 1} features, and vectors "
            "beyond its rank would be chosen by a rounding error and not by public rows; ask for at most "
            f"{most} directions, or give more public rows."
        )


def projected(gradient: jax.Array, directions: jax.Array) -> jax.Array:
    """A gradient f32[p], read as a matrix (d + 1) x K, projected onto directions f32[d + 1, P]."""
    matrix = gradient.reshape(directions.shape[0], -1)
    return (directions @ (directions.T @ matrix)).ravel()


def fit(
    model: Model,
    params: jax.Array,
    rows: Rows,
    learning_rate: jax.typing.ArrayLike,
    num_steps: int,
    decay: jax.typing.ArrayLike = 0.0,
) -> jax.Array:
    """Params f32[p] after steps of gradient descent on the mean loss of public rows plus decay / 2 |w|^2.

    Args:
      params: f32[p], where it starts, for rows as they are given.
      learning_rate: of a step along the mean gradient.
      num_steps: number of steps (static).
      decay: weight of the L2 term.
    """

    def step(params: jax.Array, _: None) -> tuple[jax.Array, None]:
        gradient = PublicGradients.at(model, params, rows).mean() + decay * params
        return params - learning_rate * gradient, None

    return jax.lax.scan(step, params, length=num_steps)[0]


def _length(vectors: jax.Array) -> jax.Array:
    """L2 norms f32[n] of f32[n, k], with a finite derivative at zero; infinite where a square overflows."""
    squares = jnp.square(vectors).sum(-1)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)
