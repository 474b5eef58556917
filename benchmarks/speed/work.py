"""Steps of gradient descent on a random table: what every contender of `steps` and `replicates` does.

The last of the table's columns is the constant 1/2 that carries l2p's intercept, so that all have the same params and
no bias. Plain losses are written twice, for rows one after another, f32[N, d], and feature by feature, f32[d, N].
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import INTERCEPT_COLUMN, Model, find_model
from l2p.models.base import softplus
from l2p.models.mlp import HIDDEN_SCALE

RATE, MOMENTUM, CLIP_NORM = 0.02, 0.9, 1.0
CLASSES, UNITS, BEND = 10, 20, 0.1
#: So large that no row's gradient is clipped.
NO_CLIPPING = 50.0
SMALL = 1_024


@dataclasses.dataclass(frozen=True)
class Work:
    """Steps to be taken.

    Attributes:
      model: the model's name.
      num_rows: of the table.
      num_columns: of the table, with the constant one.
      batch: expected rows of a Poisson batch, or None for all rows.
      steps: of one run.
      private: whether noise is added; without, results can be compared.
      clip_norm: of a row's gradient.
    """

    model: str
    num_rows: int
    num_columns: int = 53
    batch: int | None = None
    steps: int = 50
    private: bool = True
    clip_norm: float = CLIP_NORM

    @property
    def read_rows(self) -> int:
        """Rows that a step is expected to read."""
        return self.batch or self.num_rows

    @property
    def tolerance(self) -> float:
        """The relative difference of losses that counts as the same work; batches differ by chance."""
        return 1e-3 if self.batch is None else 0.05

    def plain(self) -> "Work":
        """The same steps without privacy, on a table small enough for every library."""
        rows = min(SMALL, self.num_rows)
        batch = None if self.batch is None else min(self.batch, rows // 4)
        plain = {"steps": 20, "private": False, "clip_norm": NO_CLIPPING}
        return dataclasses.replace(self, num_rows=rows, batch=batch, **plain)

    def __str__(self) -> str:
        read = "full batch" if self.batch is None else f"Poisson batches of {self.batch:,}"
        return f"{self.model}, {read}, {self.num_rows:,} x {self.num_columns}"

    @functools.cached_property
    def learner(self) -> Model:
        """The model of l2p."""
        return find_model(self.model)

    @functools.cached_property
    def table(self) -> np.ndarray:
        """f32[N, d], features in [0, 1] and the constant column."""
        table = np.random.default_rng(0).random((self.num_rows, self.num_columns), np.float32)
        table[:, -1] = INTERCEPT_COLUMN
        return table

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """f32[N], classes that follow the first feature."""
        noisy = self.table[:, 0] + 0.3 * np.random.default_rng(1).normal(size=self.num_rows)
        classes = CLASSES if self.model.startswith("softmax") else 2
        return np.clip(np.floor(classes * noisy), 0, classes - 1).astype(np.float32)

    def start(self) -> jax.Array:
        """f32[p], where all begin."""
        return self.learner.init(self.num_columns - 1)

    def mean_loss(self, params: np.ndarray) -> float:
        """The plain mean loss over the table."""
        return float(losses(self.model, jnp.asarray(params), jnp.asarray(self.table), jnp.asarray(self.labels)).mean())


def losses(model: str, params: jax.Array, table: jax.Array, labels: jax.Array, by_feature: bool = False) -> jax.Array:
    """Losses f32[N] of params f32[p] on a table f32[N, d], or f32[d, N] where it is stored feature by feature."""

    def product(weights: jax.Array) -> jax.Array:
        return weights.T @ table if by_feature else table @ weights

    if model.startswith("softmax"):
        margins, axis = product(params.reshape(-1, CLASSES)), 0 if by_feature else 1
        own = jnp.expand_dims(labels, axis) == jnp.expand_dims(jnp.arange(CLASSES), 1 - axis)
        return jax.nn.logsumexp(margins, axis) - jnp.where(own, margins, 0.0).sum(axis)
    if model == "mlp":
        hidden, output = params[: -UNITS - 1].reshape(-1, UNITS), params[-UNITS - 1 :]
        units = jnp.tanh(0.5 * HIDDEN_SCALE * product(hidden))
        margin = (output[:-1] @ units if by_feature else units @ output[:-1]) + INTERCEPT_COLUMN * output[-1]
    else:
        margin = product(params)
    if model == "svm":
        signed = (2.0 * labels - 1.0) * margin
        bend = jnp.square(1.0 + BEND - signed) / (4.0 * BEND)
        return jnp.where(jnp.abs(1.0 - signed) <= BEND, bend, jnp.maximum(1.0 - signed, 0.0))
    return softplus(margin) - labels * margin
