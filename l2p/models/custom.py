"""A model that its user gives by the loss of one row: any parameters, any rows."""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.base.layout import Layout
from l2p.models.base import Model
from l2p.models.closed_forms import RowGradient
from l2p.models.parts import Factor, computed_once, exact_sum, rows_at_a_time, scaled_sum
from l2p.privacy.card.custom import CUSTOM
from l2p.task.exact_sums import Quantized, QuantizedRows
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows, cut

#: The most rows whose gradients are computed at a time in a simulation, and where gradients of matrices are formed for
#: each: fewer or more took longer (`benchmarks/network_steps.py`).
MICROBATCH, OF_MATRICES = 256, 8
#: The same for losses and predictions, of which only numbers are kept.
LOSS_BATCH = 64
#: The number of params of a table's typical model.
TYPICAL_PARAMS = 100


@dataclasses.dataclass(frozen=True, eq=False)
class Parameters:
    """A pytree of parameters, of which some are trained and lie in a flat vector.

    Two of them are equal where all but the values of what is trained is the same.

    Attributes:
      tree: structure of the whole pytree.
      names: paths of the leaves that are trained.
      trained: layout of the list of these leaves.
      frozen: all leaves in order, None in place of those that are trained.
    """

    tree: jax.tree_util.PyTreeDef
    names: tuple[str, ...]
    trained: Layout
    frozen: tuple[Any, ...]

    def tree_of(self, vector: jax.Array) -> Any:
        """The whole pytree, whose trained leaves are those of a vector f32[p]."""
        return self.filled(self.trained.tree_of(vector))

    def filled(self, leaves: Sequence[Any]) -> Any:
        """The whole pytree with these leaves where some are trained."""
        trained = iter(leaves)
        return jax.tree.unflatten(self.tree, [next(trained) if leaf is None else leaf for leaf in self.frozen])

    def flat(self, tree: Any) -> np.ndarray:
        """The vector f32[p] of the trained leaves of a whole pytree."""
        leaves = zip(jax.tree.leaves(tree), self.frozen, strict=True)
        return self.trained.flat([leaf for leaf, frozen in leaves if frozen is None])

    @functools.cached_property
    def _key(self) -> tuple[Any, ...]:
        return self.tree, self.names, self.trained, tuple(map(_identity, self.frozen))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parameters) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def hashable(thing: Any) -> Any:
    """The thing, or, if it has no hash, a function that is equal to itself alone and calls it."""
    try:
        hash(thing)
    except TypeError:
        return lambda *arguments: thing(*arguments)
    return thing


def _identity(leaf: Any) -> Any:
    """The leaf, or what stands for it if it has no hash: of an array, its digest."""
    if not isinstance(leaf, (np.ndarray, jax.Array)):
        return hashable(leaf)
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    array = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    return str(leaf.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()


@dataclasses.dataclass(frozen=True)
class CustomLoss(Model):
    """A loss of one row that its user wrote.

    Its rows are not features in [0, 1] but numbers of any size, those of one row in a line. Whatever the loss does, it
    sees one row at a time, so that no row can change what another one contributes, as in a batch's statistics.

    Attributes:
      function: (params, row) -> loss, a pytree each and a scalar; traced with 32-bit numbers.
      parameters: how params lie in a vector.
      rows: how a row lies in a line.
      predictor: (params, row) -> a prediction of any structure; None without one.
      shares: by trained array, as in `l2p.models.parts.Shares`.
      digest: of what the function computed when it was checked; one that reads another number by now is another model,
        and programs compiled for the first are not taken for it.
    """

    function: Callable[[Any, Any], jax.Array]
    parameters: Parameters
    rows: Layout
    predictor: Callable[[Any, Any], Any] | None = None
    digest: str = ""
    shares: tuple[float, ...] | None = None
    name: ClassVar[str] = CUSTOM
    kinds: ClassVar[tuple[str, ...]] = (CUSTOM,)
    convex: ClassVar[bool] = False
    has_intercept: ClassVar[bool] = False
    reads_features: ClassVar[bool] = False

    @classmethod
    def stand_in(cls, num_params: int, num_features: int) -> "CustomLoss":
        """A model of these sizes, which is 0 on every row: enough to find out what a protector asks of any."""
        params, row = (jax.ShapeDtypeStruct((size,), jnp.float32) for size in (num_params, num_features))
        trained = Layout.of([params])
        return cls(_nothing, Parameters(trained.tree, ("0",), trained, (None,)), Layout.of(row))

    def __str__(self) -> str:
        return f"{self.name}:{self.parameters.trained.size}"

    @property
    def dilution(self) -> float:  # type: ignore[override]
        return math.sqrt(self.parameters.trained.size / TYPICAL_PARAMS)

    @property
    def depth(self) -> int:  # type: ignore[override]
        return max(1, sum(len(shape) > 1 for shape in self.parameters.trained.shapes))

    def num_params(self, num_features: int) -> int:
        del num_features
        return self.parameters.trained.size

    def num_features(self, num_params: int) -> int:
        del num_params
        return self.rows.size

    def loss(self, params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        del y
        loss = self.function(self.parameters.tree_of(params), self.rows.tree_of(x))
        return jnp.asarray(loss).astype(jnp.float32)

    # A release traces its sums with 64-bit numbers, in which a user's constants would be wider than elsewhere.

    def gradients(self, params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        with jax.enable_x64(False):
            return jax.vmap(jax.grad(self.loss), (None, 0, 0))(params, x, y)

    def losses(self, candidates: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        with jax.enable_x64(False):
            rows = jnp.asarray(x), y

            def of_all(params: jax.Array) -> jax.Array:
                return jax.lax.map(lambda row: self.loss(params, *row), rows, batch_size=LOSS_BATCH)

            return jax.lax.map(of_all, candidates)

    def limited_apart(self, gradients: jax.Array) -> list[tuple[jax.Array, float]]:
        if self.shares is None:
            return super().limited_apart(gradients)
        ends = np.cumsum([math.prod(shape) for shape in self.parameters.trained.shapes])
        return list(zip(jnp.split(gradients, ends[:-1], axis=-1), self.shares, strict=True))

    def _row_gradient(self, exact: bool) -> RowGradient:
        """The gradient of the loss of (trained leaves, row f32[k])."""
        sizes = self.parameters.trained.size, self.rows.size
        params, row = (jax.ShapeDtypeStruct((size,), jnp.float32) for size in sizes)

        def loss(leaves: list[Any], row: jax.Array) -> jax.Array:
            return jnp.asarray(self.function(self.parameters.filled(leaves), self.rows.tree_of(row)))

        return RowGradient.of(loss, jax.eval_shape(self.parameters.trained.tree_of, params), row, exact)

    def scaled_gradient_sum(self, params: jax.Array, rows: Rows, features: FeatureMap, factor: Factor) -> jax.Array:
        """In microbatches of one size, so that memory does not grow with the batch, and the loss is compiled once."""
        leaves, num_rows = self.parameters.trained.tree_of(params), rows.y.shape[0]
        gradient = self._row_gradient(exact=False)
        parts_of = functools.partial(gradient.parts, leaves)
        if not num_rows:
            return jnp.zeros_like(params)
        most = min(num_rows, OF_MATRICES if gradient.forms_matrices else MICROBATCH)
        size = rows_at_a_time(parts_of, jax.ShapeDtypeStruct((self.rows.size,), jnp.float32), most)

        def add(total: jax.Array, start: jax.Array) -> tuple[jax.Array, None]:
            first = jnp.minimum(start, num_rows - size)  # the last microbatch leaves out what the one before it had
            block = cut(rows, first, size)
            mask = jnp.where(first + jnp.arange(size) >= start, block.mask, 0.0)
            parts = computed_once(parts_of, jnp.asarray(features.apply(block.x)))
            return total + scaled_sum(gradient.forms, parts, mask, factor, self.shares), None

        starts = jnp.arange(0, num_rows, size)
        return jax.lax.scan(add, jnp.zeros_like(params), starts)[0]

    def exact_gradient_sum(self, params: jax.Array, rows: QuantizedRows, factor: Factor, bound: jax.Array) -> Quantized:
        leaves, gradient = self.parameters.trained.tree_of(params), self._row_gradient(exact=True)
        read = rows.values().astype(jnp.float32)
        parts_of = functools.partial(gradient.parts, leaves)
        return exact_sum(gradient.forms, parts_of, read, rows.block.counted, factor, bound, self.shares)

    def exact_losses(self, candidates: jax.Array, rows: QuantizedRows) -> jax.Array:
        values = rows.values().astype(jnp.float32), rows.block.y

        def of_row(row: tuple[jax.Array, jax.Array]) -> jax.Array:
            with jax.enable_x64(False):
                return jax.lax.map(lambda params: self.loss(params, *row), candidates)

        return jax.lax.map(of_row, values).astype(jnp.float64)

    def as_given(self, params: jax.Array) -> Any:
        return self.parameters.tree_of(params)

    def as_flat(self, params: Any) -> jax.Array:
        return jnp.asarray(self.parameters.flat(params))

    def arrays(self, params: np.ndarray) -> Mapping[str, np.ndarray]:
        """What was trained, f32[...] by path."""
        leaves = self.parameters.trained.tree_of(jnp.asarray(params))
        return {name: np.asarray(leaf, np.float32) for name, leaf in zip(self.parameters.names, leaves, strict=True)}

    def predictions(self, params: Any, data: Any) -> Any:
        """Predictions for a pytree of rows, stacked.

        Raises:
          InputError: the user gave no function that predicts.
        """
        if self.predictor is None:
            raise InputError(
                "a loss of your own does not say what it predicts; pass predict=, a function of (params, row), to "
                "private_train, or predict from Result.params yourself."
            )
        return jax.device_get(_predicted(self.as_flat(params), jax.tree.map(jnp.asarray, data), self))

    def predict(self, params: jax.Array, x: jax.Array) -> jax.Array:
        self._has_no("predictions of a table's rows")

    def class_scores(self, params: jax.Array, x: jax.Array) -> jax.Array:
        self._has_no("classes")

    def per_param(self, values: jax.Array) -> jax.Array:
        self._has_no("features, of which one belongs to a parameter")

    def params_for_raw_rows(self, params: jax.Array, features: FeatureMap) -> jax.Array:
        del features  # always the identity, since no protector maps its rows
        return params

    def params_for_mapped_rows(self, params: jax.Array, features: FeatureMap) -> jax.Array:
        del features
        return params

    def _has_no(self, lacking: str) -> NoReturn:
        raise TypeError(f"a custom loss has no {lacking}.")


@functools.partial(jax.jit, static_argnames="model")
def _predicted(params: jax.Array, data: Any, model: CustomLoss) -> Any:
    predict, given = cast(Callable, model.predictor), model.as_given(params)
    return jax.lax.map(lambda row: predict(given, row), data, batch_size=LOSS_BATCH)


def _nothing(params: Any, row: Any) -> jax.Array:
    del row
    return 0.0 * params[0].sum()
