"""Public rows inside a run: their gradients, the directions of these, and the model that fits them.

Everything here reads `oracle.public` only, which costs nothing; no function takes private rows.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN, Model, Softmax
from l2p.models.linear import GeneralizedLinear
from l2p.oracle import Oracle
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows, null_invalid

#: Matrix whose singular vectors are the directions: of the total gradient, as in AdaMix, or of the rows' gradients.
Matrix = Literal["total", "rows"]
#: A singular value below this share of the largest is a rounding error, and its vector no direction of public rows.
RANK_TOLERANCE = 1e-5


def public_rows(oracle: Oracle, method: str) -> Rows:
    """The public rows of a run, those with a value that is not finite as null rows.

    Raises:
      InputError: at trace time, there are none.
    """
    if oracle.public is None:
        raise missing(method)
    return null_invalid(oracle.public)


def missing(method: str) -> InputError:
    """Error of a method, or of a part of one, that has no public rows to learn from."""
    return InputError(
        f"{method} learns from public rows, and there are none; give a table of the same columns (--public), or choose "
        "a method that needs none."
    )


def has_matrix(model: Model) -> bool:
    """True if the params are a matrix of (features and intercept) x classes, and a row's gradient an outer product."""
    return isinstance(model, (Softmax, GeneralizedLinear)) and model.has_intercept


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
        return cls(model, params, null_invalid(rows.replace(x=x)))

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

    def moments(self) -> jax.Array:
        """Second moments f32[d] of the features of the rows that count."""
        counts = (self.rows.mask > 0).astype(jnp.float32)
        return counts @ jnp.square(self.rows.x) / self.count

    def variance(self) -> jax.Array:
        """Variance f32[p] of the mean gradient in each coordinate, if rows are drawn at random; above 0."""
        if has_matrix(self.model):
            design, residuals = self.factors()
            squares = (jnp.square(design).T @ jnp.square(residuals)).ravel()
        else:
            counts = (self.rows.mask > 0).astype(jnp.float32)
            squares = counts @ jnp.square(self.model.gradients(self.params, self.rows.x, self.rows.y))
        return (squares + 1e-12) / jnp.square(self.count)

    def norms(self) -> jax.Array:
        """L2 norms f32[n] of the rows' gradients; 0 for null rows."""
        if has_matrix(self.model):
            design, residuals = self.factors()
            norms = _length(design) * _length(residuals)
        else:
            norms = _length(self.model.gradients(self.params, self.rows.x, self.rows.y))
        return jnp.where(self.rows.mask > 0, norms, 0.0)

    def quantile(self, share: jax.Array) -> jax.Array:
        """The quantile f32[] of the norms of the rows that count, between two of them by linear interpolation."""
        ordered = jnp.sort(jnp.where(self.rows.mask > 0, self.norms(), jnp.inf))
        place = share * (self.count - 1.0)
        low = jnp.floor(place).astype(jnp.int32)
        high = jnp.minimum(low + 1, self.count.astype(jnp.int32) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    def factors(self) -> tuple[jax.Array, jax.Array]:
        """Design f32[n, d + 1], with the intercept's column, and residuals f32[n, K], whose outer product is the
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
        design = jnp.column_stack([x, jnp.full(x.shape[0], INTERCEPT_COLUMN)])
        return design, jnp.where(self.rows.mask[:, None] > 0, residuals, 0.0)

    def directions(self, number: int | None, matrix: Matrix = "total") -> jax.Array:
        """The first left singular vectors f32[d + 1, number] of public gradients, zeros beyond their rank, or all.

        "total" takes the matrix of the total gradient, (d + 1) x K, as AdaMix does; "rows" the rows' gradients side by
        side, (d + 1) x nK, whose rank is not limited by the number of classes. They are orthonormal, and constant to
        derivatives, which do not exist where two singular values are equal.

        Raises:
          InputError: at trace time, more directions than the matrix can have.
        """
        wide = self._matrix(matrix)
        if number is not None and number > min(wide.shape):
            raise self._beyond(number, min(wide.shape), matrix)
        vectors, values, _ = jnp.linalg.svd(jax.lax.stop_gradient(wide), full_matrices=False)
        significant = values > RANK_TOLERANCE * jnp.maximum(values[0], 1e-30)
        return jnp.where(significant, vectors, 0.0)[:, :number]

    def check_rank(self, number: int, matrix: Matrix) -> None:
        """Refuse more directions than the matrix of these rows, arrays on the host, has; `InputError`."""
        rank = int(np.linalg.matrix_rank(np.asarray(self._matrix(matrix), np.float64), rtol=RANK_TOLERANCE))
        if number > rank:
            raise self._beyond(number, rank, matrix)

    def _matrix(self, matrix: Matrix) -> jax.Array:
        design, residuals = self.factors()
        # Outer products design_j x residual_j side by side have the left singular vectors of design_j |residual_j|.
        return design.T @ residuals if matrix == "total" else (design * _length(residuals)[:, None]).T

    def _beyond(self, number: int, rank: int, matrix: Matrix) -> InputError:
        name = "the sum of public gradients" if matrix == "total" else "public rows' gradients side by side"
        return InputError(
            f"a projection to {number} directions was asked for, but {name}, for model {self.model} a matrix, has rank "
            f"{rank}, and singular vectors beyond that are chosen by rounding errors and not by public rows; ask for "
            f"at most {rank} directions, or give more public rows."
        )


def check_classes(public: Rows, model: Model, kind: str) -> None:
    """Refuse public rows, arrays on the host, that lack a class; `InputError`."""
    if kind == "regression":
        return
    present = set(np.asarray(public.y)[np.asarray(public.mask) > 0].tolist())
    if absent := [label for label in model.labels if label not in present]:
        raise InputError(
            f"public rows have no row of {len(absent)} of the {len(model.labels)} declared classes (the first is "
            f"number {int(absent[0])}), and a model started on them would never predict it; give at least one row of "
            "each class, or choose a method that needs no public rows."
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
      learning_rate: of a step along the mean gradient, over `moment_bound`. Stable below 4 for softmax, below 8 for
        logistic regression and below 2 for least squares, whatever the rows are.
      num_steps: number of steps (static).
      decay: weight of the L2 term.
    """
    bound = moment_bound(model, rows)

    def step(params: jax.Array, _: None) -> tuple[jax.Array, None]:
        gradient = PublicGradients.at(model, params, rows).mean() + decay * params
        return params - learning_rate / bound * gradient, None

    return jax.lax.scan(step, params, length=num_steps)[0]


def moment_bound(model: Model, rows: Rows) -> jax.Array:
    """The Frobenius norm f32[] of the rows' second moments, with their intercept column: a bound on the largest of
    them, and so, times the loss's curvature in the margins, on the curvature of the mean loss."""
    if isinstance(model, GeneralizedLinear):
        design = model.design(rows.x)
    else:
        design = jnp.column_stack([rows.x, jnp.full(rows.y.shape[0], INTERCEPT_COLUMN)])
    design = rows.mask[:, None] * design
    moment = design.T @ design / jnp.maximum(rows.mask.sum(), 1.0)
    # The constant column alone keeps it above zero, unless every row is a null row.
    return jnp.sqrt(jnp.maximum(jnp.square(moment).sum(), INTERCEPT_COLUMN**4))


def _length(vectors: jax.Array) -> jax.Array:
    """L2 norms f32[n] of f32[n, k], with a finite derivative at zero; infinite where a square overflows."""
    squares = jnp.square(vectors).sum(-1)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)
