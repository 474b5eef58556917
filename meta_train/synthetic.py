"""Synthetic tasks: two classes, features of every kind that tables have, and no table."""

import dataclasses

import jax
import jax.numpy as jnp

from l2p.errors import InputError
from l2p.task import Rows
from meta_train.family import Family, with_label_noise

#: The source of synthetic tasks.
SYNTHETIC = "synthetic"
#: Exponents of the power law that the latent variables' variances follow: from all alike to a handful that matter.
SPECTRUM = (0.0, 2.0)
#: Standard deviation of a continuous feature's squashed score: from nearly linear to nearly binary.
GAIN = (0.3, 3.0)
#: Length of a teacher's weights, its logits' standard deviation: from hardly learnable to nearly separable.
TEACHER = (0.5, 6.0)
#: Offsets of the teacher's logits, in their standard deviations: classes from even to one in a dozen.
IMBALANCE = 1.5


@dataclasses.dataclass(frozen=True)
class Synthetic(Family):
    """Rows of correlated features in [0, 1], some of them 0/1 indicators, and the label of a noisy linear teacher.

    Scores are normal, their covariance a power law turned at random; a share of columns, the task's own, are cut in two
    at a prevalence of their own, the others squashed. The teacher weighs the scores' principal directions at random or
    the columns themselves, so that what tells the classes apart may lie where rows vary most or least.

    Attributes:
      stream: tasks of two families with different numbers have nothing in common but their distribution.
      half: which rows of a task it draws.
    """

    stream: int
    half: int = 0

    def halves(self) -> tuple["Synthetic", "Synthetic"]:
        return dataclasses.replace(self, half=1), dataclasses.replace(self, half=2)

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        if num_features is None:
            raise InputError(
                f"{SYNTHETIC} tasks come from no table with columns of its own; set num_features to counts."
            )
        keys = iter(jax.random.split(jax.random.fold_in(key, self.stream), 12))
        exponent = jax.random.uniform(next(keys), minval=SPECTRUM[0], maxval=SPECTRUM[1])
        deviations = (1.0 + jnp.arange(num_features)) ** (-0.5 * exponent)
        latent = jax.random.normal(jax.random.fold_in(next(keys), self.half), (num_rows, num_features))
        turned, _ = jnp.linalg.qr(jax.random.normal(next(keys), (num_features, num_features)))
        # Half of the tasks have independent columns, of variances that differ as much.
        turned = jnp.where(jax.random.bernoulli(next(keys)), turned, jnp.eye(num_features))
        scores = (latent * deviations[None, :]) @ turned
        scores = scores / jnp.maximum(scores.std(0), 1e-6)[None, :]
        spread = jnp.where(jax.random.bernoulli(next(keys)), 1.0, deviations / deviations[0])

        share_key, which_key, cut_key, gain_key = jax.random.split(next(keys), 4)
        binary = jax.random.bernoulli(which_key, jax.random.uniform(share_key), (num_features,))
        cuts = jax.random.normal(cut_key, (num_features,))
        gain = jnp.exp(jax.random.uniform(gain_key, minval=jnp.log(GAIN[0]), maxval=jnp.log(GAIN[1])))
        squashed = jax.nn.sigmoid(gain * spread[None, :] * scores)
        x = jnp.where(binary[None, :], (scores > cuts[None, :]).astype(jnp.float32), squashed)

        weights = jax.random.normal(next(keys), (num_features,))
        on_directions = latent @ weights
        on_columns = (x - x.mean(0, keepdims=True)) @ weights
        logits = jnp.where(jax.random.bernoulli(next(keys)), on_directions, on_columns)
        low, high = jnp.log(TEACHER[0]), jnp.log(TEACHER[1])
        length = jnp.exp(jax.random.uniform(next(keys), minval=low, maxval=high))
        offset = IMBALANCE * jax.random.normal(next(keys)) / 2.0
        logits = length * ((logits - logits.mean()) / jnp.maximum(logits.std(), 1e-6) + offset)
        label_key, noise_key = jax.random.split(next(keys))
        label_key = jax.random.fold_in(label_key, self.half)
        label = jax.random.bernoulli(label_key, jax.nn.sigmoid(logits)).astype(jnp.float32)
        return with_label_noise(noise_key, x, label)
