"""Noisy minimum: which of several candidates has the smallest total clipped loss."""

import abc
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Model
from l2p.privacy.events import Adjacency, Event
from l2p.queries.base import Query, positive, within
from l2p.task.exact_sums import COEFFICIENT_BITS, ExactSum, Quantized, QuantizedRows, numbers, value_of
from l2p.task.noise import Noise
from l2p.task.rows import Rows

#: Noise distributions whose price for selections is proved.
SELECTION_NOISE = ("gumbel", "exponential")


def clip_losses(losses: jax.Array, clip_norm: jax.Array) -> jax.Array:
    """Losses of any shape clipped to [0, clip_norm]; NaN counts as clip_norm."""
    return jnp.clip(jnp.where(jnp.isnan(losses), clip_norm, losses), 0.0, clip_norm)


def exact_losses(losses: jax.Array, clip_norm: jax.Array) -> Quantized:
    """`clip_losses` in whole units, at most clip_norm each: f64[n, k] -> [n, k]."""
    clip_norm = clip_norm.astype(jnp.float64)
    return numbers(clip_losses(losses, clip_norm), clip_norm * 2.0**-COEFFICIENT_BITS)


class Selection(Query):
    """Index i32[] of the candidate with the smallest noised loss, each row's loss clipped to [0, clip_norm].

    Adding a row can only raise every score (they are monotone), by at most `clip_norm`; replacing one counts twice.
    With scale = sensitivity / epsilon, the smallest of score - Gumbel noise is the exponential mechanism, which has
    bounded range epsilon (Durfee and Rogers 2019) and so is epsilon^2/8-zCDP; the smallest of score - exponential
    noise is epsilon-DP (Lee and Kifer 2018, with the sign of the noise right: it must lower scores), epsilon^2/2-zCDP.

    Attributes:
      clip_norm: f32[], largest loss of one row, above 0; NaN losses count as this much.
      noise_multiplier: f32[], 1 / epsilon.
      mechanism: "gumbel" or "exponential" (static).
    """

    clip_norm: jax.Array

    @property
    @abc.abstractmethod
    def num_candidates(self) -> int:
        """k, the number of candidates."""

    @abc.abstractmethod
    def losses(self, rows: Rows) -> Float[Array, "{self.num_candidates} {len(rows.y)}"]:
        """Every candidate's loss on every row."""

    @abc.abstractmethod
    def exact_losses(self, rows: QuantizedRows) -> Float[Array, "rows {self.num_candidates}"]:
        """The same on a block's rows, in float64: a row's losses depend on that row alone."""

    def event(self) -> Event:
        """The event of one choice; `InputError` for noise that no theorem about selections covers."""
        if self.mechanism not in SELECTION_NOISE:
            raise InputError(
                f"a selection with {self.mechanism} noise has no price here, since one row moves every score; choose "
                f"{' or '.join(SELECTION_NOISE)}."
            )
        return super().event()

    @property
    def bound(self) -> jax.Array:
        return within(self.clip_norm, positive(self.clip_norm))

    def contributions(self, rows: Rows) -> jax.Array:
        return self.losses(rows).T

    def limit(self, contributions: jax.Array) -> jax.Array:
        """Each loss clipped to [0, clip_norm]; NaN counts as clip_norm."""
        return clip_losses(contributions, self.clip_norm)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        # Does not use `contributions`, because transposing that table would cost more than computing the losses.
        return aggregate + (clip_losses(self.losses(rows), self.clip_norm) * rows.mask[None, :]).sum(-1)

    def empty(self) -> jax.Array:
        return jnp.zeros(self.num_candidates, jnp.float32)

    def exact(self, rows: QuantizedRows) -> Quantized:
        return rows.sum(exact_losses(self.exact_losses(rows), self.clip_norm))

    def release(self, aggregate: jax.Array | ExactSum, noise: Noise, adjacency: Adjacency) -> jax.Array:
        # The noise enters with a minus sign: lower the score of a candidate at random, then take the minimum.
        return jnp.argmax(super().release(-value_of(aggregate), noise, adjacency)).astype(jnp.int32)


@struct.dataclass
class NoisyMinimum(Selection):
    """A selection among any candidates, for protectors whose candidates do not lie on a line.

    Attributes:
      model: the model (static).
      candidates: f32[k, p], parameters; released or public.
      clip_norm, noise_multiplier, mechanism: see `Selection`.
    """

    model: Model = struct.field(pytree_node=False)
    candidates: jax.Array
    clip_norm: jax.Array
    noise_multiplier: jax.Array
    mechanism: str = struct.field(pytree_node=False, default="gumbel")  # type: ignore[misc]
    name: ClassVar[str] = "noisy_minimum"
    of_loss: ClassVar[bool] = True

    @property
    def num_candidates(self) -> int:
        return self.candidates.shape[0]

    def losses(self, rows: Rows) -> jax.Array:
        return self.model.losses(self.candidates, rows.x, rows.y)

    def exact_losses(self, rows: QuantizedRows) -> jax.Array:
        return self.model.exact_losses(self.candidates, rows)


@struct.dataclass
class NoisyLineSearch(Selection):
    """A selection among step sizes: `NoisyMinimum` of the points params - size * direction, at its privacy cost.

    It is faster: along a line the margins of any number of points take two passes over the rows.

    Attributes:
      model: the model (static).
      params, direction: f32[p] each, released or public.
      sizes: f32[k].
      clip_norm, noise_multiplier, mechanism: see `Selection`.
    """

    model: Model = struct.field(pytree_node=False)
    params: jax.Array
    direction: jax.Array
    sizes: jax.Array
    clip_norm: jax.Array
    noise_multiplier: jax.Array
    mechanism: str = struct.field(pytree_node=False, default="gumbel")  # type: ignore[misc]
    name: ClassVar[str] = "noisy_line_search"
    of_loss: ClassVar[bool] = True

    @property
    def num_candidates(self) -> int:
        return self.sizes.shape[0]

    def point(self, index: jax.Array) -> jax.Array:
        """The candidate f32[p] of this index i32[]."""
        return self.params - self.sizes[index] * self.direction

    def losses(self, rows: Rows) -> jax.Array:
        return self.model.losses_along(self.params, self.direction, self.sizes, rows.x, rows.y)

    def exact_losses(self, rows: QuantizedRows) -> jax.Array:
        return self.model.exact_losses(self.params[None, :] - self.sizes[:, None] * self.direction[None, :], rows)
