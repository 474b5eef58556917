"""The interface of models: the loss of one row, over a flat parameter vector."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from l2p.base.errors import InputError
from l2p.models.parts import GRADIENT_FLOATS, MIN_NORM, Factor, Part, Whole, exact_sum, scaled_sum
from l2p.task.exact_sums import Quantized, QuantizedRows, row_by_row
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows, sum_in_blocks

#: Value of the constant column that carries the intercept. At 1/2 it adds
#: little to a row's norm, so per-row clipping leaves more of the features.
INTERCEPT_COLUMN = 0.5


class Model(abc.ABC):
    """A model with flat parameters. Instances are hashable: they are static under `jax.jit`.

    Attributes:
      name: its name; `str(model)` is the name that `find_model` takes, including the number of classes if the model
        needs one.
      kinds: the kinds of target it can be trained on: "binary" (0 and 1), "multiclass" (0 to K - 1) or "regression"
        (in [0, 1] by public bounds); the default comes first.
      gives_probabilities: whether `class_scores` are probabilities.
      convex: whether the loss is convex in the params.
      has_intercept: whether an intercept can absorb a shift of the features. Without one, rows cannot be centred.
      reads_features: whether its rows are features in [0, 1] and a target; otherwise they are numbers of any size,
        which its loss alone reads.
      floats_per_row: how many intermediate numbers the loss of a row needs, for planning memory.
      num_margins: how many numbers of a row the loss depends on: K for K classes, else 1.
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    gives_probabilities: ClassVar[bool] = False
    convex: ClassVar[bool] = True
    has_intercept: ClassVar[bool] = True
    reads_features: ClassVar[bool] = True
    floats_per_row: int = 1
    num_margins: int = 1
    #: The length of a row's part in `l2p.queries.TargetSum`.
    num_rates: int = 0
    #: How many times as long the noise on a mean gradient is as for a table's typical model, which has fewer params. It
    #: takes that many times as many rows to make up for it.
    dilution: float = 1.0
    #: How many matrices are trained, one behind the other or beside one another; at least 1.
    depth: int = 1

    @property
    def labels(self) -> tuple[float, ...]:
        """The labels of prepared rows, if the target is a class."""
        return 0.0, 1.0

    def __str__(self) -> str:
        return self.name

    def kind(self, classes: Sequence[float] | None = None) -> str:
        """The kind of target to learn, given the declared `classes`; None if none are declared.

        >>> from l2p.models import MODELS
        >>> MODELS["square"].kind(), MODELS["square"].kind((0, 1)), MODELS["logistic"].kind()
        ('regression', 'binary', 'binary')
        """
        if classes is not None and "regression" in self.kinds:
            return self.kinds[-1]
        return self.kinds[0]

    def known_kind(self, kind: str | None) -> str:
        """`kind`, or the model's default if it is None.

        Raises:
          InputError: the model cannot be trained on such targets.
        """
        if kind is not None and kind not in self.kinds:
            raise InputError(
                f"kind is {kind!r}, but model {self} learns a {' or '.join(self.kinds)} target; name one of these, or "
                "choose another model."
            )
        return kind or self.kinds[0]

    @abc.abstractmethod
    def num_params(self, num_features: int) -> int:
        """Length of the flat parameter vector for rows of `num_features` features."""

    @abc.abstractmethod
    def num_features(self, num_params: int) -> int:
        """The inverse of `num_params`."""

    @abc.abstractmethod
    def loss(
        self, params: Float[Array, " params"], x: Float[Array, " features"], y: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Loss of one row."""

    @abc.abstractmethod
    def predict(self, params: Float[Array, " params"], x: Float[Array, "rows features"]) -> Float[Array, " rows"]:
        """The predicted target, a class or a value."""

    @abc.abstractmethod
    def params_for_raw_rows(
        self, params: Float[Array, "*batch mapped"], features: FeatureMap
    ) -> Float[Array, "*batch raw"]:
        """Params for mapped rows, rewritten to give the same predictions on raw rows."""

    @abc.abstractmethod
    def params_for_mapped_rows(
        self, params: Float[Array, "*batch raw"], features: FeatureMap
    ) -> Float[Array, "*batch mapped"]:
        """The inverse of `params_for_raw_rows`: params for raw rows, rewritten for mapped ones."""

    @abc.abstractmethod
    def arrays(self, params: Float[np.ndarray, " params"]) -> Mapping[str, np.ndarray]:
        """Params as named arrays that other tools can read, without this package's conventions."""

    @abc.abstractmethod
    def per_param(self, values: Float[Array, " features"]) -> Float[Array, " {self.num_params(values.size)}"]:
        """One number per feature to one per param; params that belong to no feature get zero."""

    def moment_per_param(self, moments: Float[Array, " features"]) -> Float[Array, " {self.num_params(moments.size)}"]:
        """Second moment of the margin's derivative in each param at the start, given those of the features; 0 for
        intercepts. Params that can only be moved together have that of all of them."""
        return self.per_param(moments)

    def moment_growth(self, params: Float[Array, " params"], start: Float[Array, " params"]) -> Float[Array, " params"]:
        """Factor by which these moments are larger at params than at a start; 1 where the margin
        is linear in the params."""
        del start
        return jnp.ones_like(params)

    def typical_slope(self, kind: str) -> float:
        """Typical length of the loss's derivative in the margins at the start, for targets of a kind: a public scale of
        clipping norms."""
        del kind
        return 1.0

    def typical_curvature(self, kind: str) -> float:
        """Typical second derivative of the loss in a margin at the start: a public scale of step sizes."""
        del kind
        return 1.0

    def typical_margin(self, kind: str) -> float:
        """Typical length of the margins at the minimum where features are informative: a public scale of params."""
        return self.typical_slope(kind) / self.typical_curvature(kind)

    def largest_curvature(self, kind: str) -> float:
        """Bound of the loss's second derivative over all margins, along any direction of them: gradient descent on
        linear margins is stable at steps of up to 2 over this. By default the typical one, which is no bound where
        derivatives are large at a few margins, or where margins are not linear in the params, as of an MLP; there
        it has to be learned from gradients."""
        return self.typical_curvature(kind)

    def line_curvature(self, length: Float[Array, ""], kind: str) -> Float[Array, ""]:
        """Typical second derivative of the loss in the logarithm of the margins' scale, given their root mean
        square. Where slopes are bounded, few rows have margins at which slopes still change.

        For normal margins m and the logistic loss it is between E[m^2 p (1 - p)] and 1.6 times that.

        >>> from l2p.models import MODELS
        >>> [round(float(MODELS["logistic"].line_curvature(jnp.array(size), "binary")), 2) for size in (1.0, 2.0, 20.0)]
        [0.18, 0.35, 0.1]
        """
        shrunk = 1.0 + jnp.square(length / self.typical_margin(kind))
        return self.typical_curvature(kind) * jnp.square(length) * shrunk**-1.5

    def scales_at_rates(
        self, rates: Float[Array, " classes"], kind: str
    ) -> tuple[Float[Array, " {self.num_margins}"], Float[Array, " {self.num_margins}"]]:
        """Mean absolute slope and curvature of the loss in each margin at the intercepts of
        `params_at_rates`, over those at even rates: where classes are rare most rows say little. 1 for numbers, whose
        spread around their mean is not known.

        Args:
          rates: as in `params_at_rates`.
          kind: of the targets.

        >>> from l2p.models import MODELS
        >>> scales = MODELS["logistic"].scales_at_rates(jnp.array([0.9, 0.1]), "binary")
        >>> [round(float(scale[0]), 2) for scale in scales]
        [0.37, 0.4]
        """
        del rates, kind
        return jnp.ones(self.num_margins), jnp.ones(self.num_margins)

    def params_at_rates(
        self, params: Float[Array, " params"], rates: Float[Array, " classes"]
    ) -> Float[Array, " params"]:
        """Params with the intercepts that fit best where no feature counts.

        Args:
          params: any.
          rates: the shares of the classes, above 0; for numbers in [0, 1] two, of which the last is their mean.

        Raises:
          TypeError: the model has no such intercepts, which it says by a `num_rates` of 0.
        """
        raise TypeError(f"model {self} does not start from rates.")

    def classify(self, params: Float[Array, " params"], x: Float[Array, "rows features"]) -> Float[Array, " rows"]:
        """Predicted classes, if the target is a class."""
        return self.predict(params, x)

    @abc.abstractmethod
    def class_scores(
        self, params: Float[Array, " params"], x: Float[Array, "rows features"]
    ) -> Float[Array, "rows classes"]:
        """A score for each of K classes, if the target is a class; the class with the largest is predicted, and rows
        are ranked by how large it is."""

    def as_given(self, params: Float[Array, " params"]) -> Any:
        """Params as a result hands them to its user: the vector, unless the user gave them otherwise."""
        return params

    def as_flat(self, params: Any) -> Float[Array, " params"]:
        """The inverse of `as_given`."""
        return params

    def init(self, num_features: int) -> Float[Array, " {self.num_params(num_features)}"]:
        """The public starting point: zeros, unless a model says otherwise."""
        return jnp.zeros(self.num_params(num_features), jnp.float32)

    def losses(
        self, candidates: Float[Array, "candidates params"], x: Float[Array, "rows features"], y: Float[Array, " rows"]
    ) -> Float[Array, "candidates rows"]:
        """Losses of rows under several params."""
        return jax.vmap(jax.vmap(self.loss, (None, 0, 0)), (0, None, None))(candidates, x, y)

    def losses_along(
        self,
        params: Float[Array, " params"],
        direction: Float[Array, " params"],
        sizes: Float[Array, " sizes"],
        x: Float[Array, "rows features"],
        y: Float[Array, " rows"],
    ) -> Float[Array, "sizes rows"]:
        """Losses of params - size * direction."""
        return self.losses(params[None, :] - sizes[:, None] * direction[None, :], x, y)

    def gradients(
        self, params: Float[Array, " params"], x: Float[Array, "rows features"], y: Float[Array, " rows"]
    ) -> Float[Array, "rows params"]:
        """Every row's gradient."""
        return jax.vmap(jax.grad(self.loss), (None, 0, 0))(params, x, y)

    def scaled_gradient_sum(
        self, params: Float[Array, " params"], rows: Rows, features: FeatureMap, factor: Factor
    ) -> Float[Array, " params"]:
        """Sum of per-row gradients on mapped rows, each times `factor` of their L2 norms.

        Rows whose norm is not finite count as zero. This default forms gradients block by block; models with a
        closed form never form them.
        """

        def add(block: Rows) -> jax.Array:
            gradients = self.gradients(params, jnp.asarray(features.apply(block.x)), block.y)
            return scaled_sum([Whole.of(params)], [Part(None, gradients)], block.mask, factor)

        return sum_in_blocks(add, rows, max(1, GRADIENT_FLOATS // params.shape[0]))

    def limited_apart(self, gradients: Float[Array, "rows params"]) -> list[tuple[Float[Array, "rows array"], float]]:
        """The parts of gradients that are each limited by themselves, with their shares of the limit, whose squares sum
        to 1; one part, unless the user of a loss said otherwise."""
        return [(gradients, 1.0)]

    def clipped_gradient_sum(
        self, params: Float[Array, " params"], rows: Rows, features: FeatureMap, clip_norm: Float[Array, ""]
    ) -> Float[Array, " params"]:
        """Sum of per-row gradients on mapped rows, each clipped to L2 norm `clip_norm`."""
        return self.scaled_gradient_sum(
            params, rows, features, lambda norms: jnp.minimum(1.0, clip_norm / jnp.maximum(norms, MIN_NORM))
        )

    # Sums for releases. A row's contribution depends only on that row and on public facts (`l2p.task.exact_sums`).
    # These defaults compute one row at a time; models with a closed form go block by block.

    def exact_gradient_sum(
        self, params: Float[Array, " params"], rows: QuantizedRows, factor: Factor, bound: Float[Array, ""]
    ) -> Quantized:
        """`scaled_gradient_sum` over a block, each row clipped to L2 norm `bound`: exact, with float64 enabled."""

        def parts(row: tuple[jax.Array, jax.Array]) -> list[Part]:
            return [Part(None, self.gradients(params, row[0][None, :], row[1][None])[0])]

        read = rows.values().astype(jnp.float32), rows.block.y
        return exact_sum([Whole.of(params)], parts, read, rows.block.counted, factor, bound)

    def exact_losses(
        self, candidates: Float[Array, "candidates params"], rows: QuantizedRows
    ) -> Float[Array, "rows candidates"]:
        """`losses` of a block's rows, rows first, in float64, which has to be enabled."""
        losses = row_by_row(lambda x, y: self.losses(candidates, x, y)[:, 0], rows)
        return losses.astype(jnp.float64)

    def exact_classes(self, params: Float[Array, " params"], rows: QuantizedRows) -> Float[Array, " rows"]:
        """`classify` of a block's rows, with float64 enabled."""
        return row_by_row(lambda x, _: self.classify(params, x)[0], rows)


@jax.custom_jvp
def softplus(margin: jax.Array) -> jax.Array:
    """log(1 + exp(margin)), elementwise, with an absolute error of about one unit of rounding at 1.

    `jax.nn.softplus` keeps more digits of losses near zero but takes twice as long, and this function is most of the
    cost of choosing among candidates.
    """
    return jnp.maximum(margin, 0.0) + jnp.log(1.0 + jnp.exp(-jnp.abs(margin)))


@softplus.defjvp
def _softplus_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    # The two halves above have a kink at 0, which is every row's margin when params are zero.
    return softplus(*primals), jax.nn.sigmoid(primals[0]) * tangents[0]
