"""Synthetic tasks with classes or numbers as targets, with features like those of real tables."""

import dataclasses
from collections.abc import Iterator
from typing import Never

import jax
import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.task.rows import Rows
from meta_train.tasks.drawing import between, with_class_noise, with_label_noise
from meta_train.tasks.family import Family

#: The sources of synthetic tasks with two classes, with numbers, and (followed by their number) with several classes.
SYNTHETIC, SYNTHETIC_NUMBERS, SYNTHETIC_CLASSES = "synthetic", "synthetic:numbers", "synthetic:classes:"
#: Follow the first of these words in the names of sources of tasks in another style, as in `synthetic:rough:numbers`:
#: long tails, strong correlations and rare classes; and of rough tasks those whose columns are mostly one-hot, those
#: whose classes a linear model separates, and those in which few rows have targets and features far from all others.
ROUGH, ONE_HOT, SEPARABLE, HEAVY = STYLES = ("rough", "one_hot", "separable", "heavy")
#: Exponents of the power law of the latent variables' variances: from all equal to a handful that matter.
SPECTRUM = (0.0, 2.0)
#: Standard deviation of a continuous feature's squashed score: from nearly linear to nearly binary.
GAIN = (0.3, 3.0)
#: Length of a teacher's weights, the standard deviation of its logits: from hardly learnable to nearly separable.
TEACHER = (0.5, 6.0)
#: Offsets of the teacher's logits, in their standard deviations: classes from even to one in a dozen.
IMBALANCE = 1.5
#: Standard deviation of a number, and the share of its variance that is noise.
DEVIATION, NOISE_SHARE = (0.05, 0.3), (0.05, 0.95)
#: Of rough tasks: the power to which columns are raised, the share of their variance that all scores have in common,
#: and how many times further apart offsets are, each for half of the tasks; and the largest power of the directions'
#: deviations that a teacher's weights on them follow.
TAIL, COMMON, RARE, ALIGNED = (1.0, 8.0), 0.98, 2.0, 3.0
#: Length of their teachers' weights: the classes of many real tables can be told apart.
ROUGH_TEACHER = (0.5, 20.0)
#: Of one-hot columns: mean number of values of a category, and standard deviation of the offsets that make some rare.
VALUES, POPULARITY = (2.0, 12.0), (0.2, 2.0)
#: Scores that differ by less count as the same.
ROUNDING = 1e-5
#: The largest offset of two classes that can be separated, in deviations of the output: neither is empty.
RAREST = 2.0
#: Of heavy tails: the power to which columns are raised, deviation of the logarithm of the noise's own deviation, and
#: that of the logarithm of skewed targets.
HEAVY_TAIL, BURSTS, SKEW = (2.0, 20.0), (0.3, 1.2), (0.3, 1.5)


@dataclasses.dataclass(frozen=True)
class Synthetic(Family):
    """Rows of correlated features in [0, 1], some of them 0/1 indicators, and the label of a noisy linear teacher.

    Scores are normal, their covariance a randomly rotated power law. A share of the columns, drawn per task, are
    thresholded at a prevalence drawn per column, and the others are squashed. The teacher has random weights either on
    the scores' principal directions or on the columns, so that the classes may differ where rows vary most or least.

    Attributes:
      stream: families with different numbers draw independent tasks from the same distribution.
      half: selects which rows of a task it draws.
      style: one of `STYLES`, or "" for none. In all of them columns may also have long tails, with most values near 0,
        scores be nearly one, classes be rare, and teachers look at the directions of most variance above all.
    """

    stream: int
    half: int = 0
    style: str = ""

    def halves(self) -> tuple["Synthetic", "Synthetic"]:
        return dataclasses.replace(self, half=1), dataclasses.replace(self, half=2)

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        if num_features is None:
            raise InputError(
                f"{SYNTHETIC} tasks come from no table with columns of its own; set num_features to counts."
            )
        keys = iter(jax.random.split(jax.random.fold_in(key, self.stream), 12))
        x, latent = self._features(keys, num_rows, num_features)
        weights = jax.random.normal(next(keys), (num_features, *self._teachers))
        on_directions = latent @ weights
        on_columns = (x - x.mean(0, keepdims=True)) @ weights
        # A model that reads columns separates no classes but those that they make.
        by_directions = jax.random.bernoulli(next(keys)) & (self.style != SEPARABLE)
        output = jnp.where(by_directions, on_directions, on_columns)
        output = (output - output.mean(0, keepdims=True)) / jnp.maximum(output.std(0, keepdims=True), 1e-6)
        return self._labelled(keys, x, output)

    @property
    def rough(self) -> bool:
        """True in any style."""
        return self.style in STYLES

    @property
    def _teachers(self) -> tuple[int, ...]:
        """The number of teachers, as a shape: one."""
        return ()

    def _features(self, keys: Iterator[jax.Array], num_rows: int, num_features: int) -> tuple[jax.Array, jax.Array]:
        """Features f32[n, d] and the independent variables f32[n, d] from which they are made."""
        exponent = jax.random.uniform(next(keys), minval=SPECTRUM[0], maxval=SPECTRUM[1])
        deviations = (1.0 + jnp.arange(num_features)) ** (-0.5 * exponent)
        latent = jax.random.normal(jax.random.fold_in(next(keys), self.half), (num_rows, num_features))
        rotation, _ = jnp.linalg.qr(jax.random.normal(next(keys), (num_features, num_features)))
        # Half of the tasks have independent columns, whose variances follow the same power law.
        rotation = jnp.where(jax.random.bernoulli(next(keys)), rotation, jnp.eye(num_features))
        scores = (latent * deviations[None, :]) @ rotation
        scores = scores / jnp.maximum(scores.std(0), 1e-6)[None, :]
        spread = jnp.where(jax.random.bernoulli(next(keys)), 1.0, deviations / deviations[0])

        share_key, which_key, cut_key, gain_key = jax.random.split(next(keys), 4)
        rough_key = jax.random.fold_in(share_key, 1)
        if self.rough:
            share = COMMON * self._in_half(rough_key, 0) * jax.random.uniform(jax.random.fold_in(rough_key, 3))
            scores = jnp.sqrt(1.0 - share) * scores + jnp.sqrt(share) * latent[:, :1]
            # The classes of real tables differ most where rows vary most, often by more than in proportion.
            power = jax.random.uniform(jax.random.fold_in(rough_key, 5), maxval=ALIGNED)
            latent = latent * (deviations**power)[None, :]
        binary = jax.random.bernoulli(which_key, jax.random.uniform(share_key), (num_features,))
        cuts = jax.random.normal(cut_key, (num_features,))
        squashed = jax.nn.sigmoid(between(gain_key, GAIN) * spread[None, :] * scores)
        if self.rough:
            tail = between(jax.random.fold_in(rough_key, 4), HEAVY_TAIL if self.style == HEAVY else TAIL)
            has_tail = self._in_half(rough_key, 1) | (self.style == HEAVY)
            squashed = jnp.where(has_tail, squashed**tail, squashed)
        columns = jnp.where(binary[None, :], (scores > cuts[None, :]).astype(jnp.float32), squashed)
        return one_hot(jax.random.fold_in(rough_key, 6), scores, columns) if self.style == ONE_HOT else columns, latent

    @staticmethod
    def _in_half(key: jax.Array, number: int) -> jax.Array:
        """bool[], true in half of the tasks."""
        return jax.random.bernoulli(jax.random.fold_in(key, 10 + number))

    def _offsets(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Offsets f32[shape] that are added to a teacher's output of variance 1."""
        offsets = IMBALANCE * jax.random.normal(key, shape) / 2.0
        return jnp.where(self._in_half(key, 2), RARE, 1.0) * offsets if self.rough else offsets

    def _labelled(self, keys: Iterator[jax.Array], x: jax.Array, output: jax.Array) -> Rows:
        """Rows with classes, from the teacher's output f32[n], of mean 0 and variance 1."""
        length = between(next(keys), ROUGH_TEACHER if self.rough else TEACHER)
        offset = self._offsets(next(keys), ())
        logits = length * (output + offset)
        label_key, noise_key = jax.random.split(next(keys))
        if self.style == SEPARABLE:
            label = output + jnp.clip(offset, -RAREST, RAREST) > 0.0
            return Rows(x, label.astype(jnp.float32), jnp.ones(output.shape, jnp.float32))
        label_key = jax.random.fold_in(label_key, self.half)
        label = jax.random.bernoulli(label_key, jax.nn.sigmoid(logits)).astype(jnp.float32)
        return with_label_noise(noise_key, x, label)


def one_hot(key: jax.Array, scores: jax.Array, columns: jax.Array) -> jax.Array:
    """Columns f32[n, d] of which neighbours are the values of a category, and those that are alone stay as they are.

    Of the values of a category each row has the one with the largest score f32[n, d], after an offset for how common it
    is.
    """
    count_key, begin_key, common_key, offset_key = jax.random.split(key, 4)
    num_columns = scores.shape[1]
    begins = jax.random.bernoulli(begin_key, 1.0 / between(count_key, VALUES), (num_columns,)).at[0].set(True)
    category = jnp.cumsum(begins) - 1
    is_alone = jax.ops.segment_sum(jnp.ones(num_columns), category, num_columns)[category] == 1.0
    scores = scores + between(common_key, POPULARITY) * jax.random.normal(offset_key, (num_columns,))[None, :]
    largest = jax.ops.segment_max(scores.T, category, num_columns)[category].T
    # Compiled code may compute them twice, with other rounding, and then no value would be the largest.
    return jnp.where(is_alone[None, :], columns, (scores > largest - ROUNDING).astype(jnp.float32))


@dataclasses.dataclass(frozen=True)
class SyntheticNumbers(Synthetic):
    """The same rows, and a number in [0, 1]: the teacher's output plus noise, around a mean drawn per task."""

    def halves(self) -> Never:
        raise InputError("numbers are not classes, so there is no accuracy to measure.")

    def _labelled(self, keys: Iterator[jax.Array], x: jax.Array, output: jax.Array) -> Rows:
        deviation = between(next(keys), DEVIATION)
        share = jax.random.uniform(next(keys), minval=NOISE_SHARE[0], maxval=NOISE_SHARE[1])
        noise_key, mean_key = jax.random.split(next(keys))
        mean = jax.random.uniform(mean_key, minval=0.2, maxval=0.8)
        noise_key = jax.random.fold_in(noise_key, self.half)
        noise = jax.random.normal(noise_key, output.shape)
        burst_key, rows_key, skew_key = jax.random.split(jax.random.fold_in(mean_key, 1), 3)
        if self.style == HEAVY:
            noise = noise * jnp.exp(between(burst_key, BURSTS) * jax.random.normal(rows_key, output.shape))
        number = jnp.sqrt(1.0 - share) * output + jnp.sqrt(share) * noise
        if self.style == HEAVY:
            skewed = jnp.where(self._in_half(skew_key, 0), jnp.exp(between(skew_key, SKEW) * number), number)
            # Bounds hold all values, so that most of them lie in a small part of what is between.
            number = (skewed - skewed.min()) / (skewed.max() - skewed.min())
        else:
            number = mean + deviation * number
        return Rows(x, jnp.clip(number, 0.0, 1.0), jnp.ones(output.shape, jnp.float32))


@dataclasses.dataclass(frozen=True)
class SyntheticClasses(Synthetic):
    """The same rows, and one of several classes: the logits are the outputs of one teacher per class.

    Attributes:
      num_classes: K.
    """

    num_classes: int = 10

    def with_num_classes(self, num_classes: int | None) -> "SyntheticClasses":
        return self if num_classes is None else dataclasses.replace(self, num_classes=num_classes)

    @property
    def _teachers(self) -> tuple[int, ...]:
        return (self.num_classes,)

    def _labelled(self, keys: Iterator[jax.Array], x: jax.Array, output: jax.Array) -> Rows:
        length = between(next(keys), ROUGH_TEACHER if self.rough else TEACHER)
        offsets = self._offsets(next(keys), (self.num_classes,))
        logits = length * (output + offsets[None, :])
        if self.style == SEPARABLE:
            label = jnp.argmax(logits, axis=1).astype(jnp.float32)
            return Rows(x, label, jnp.ones(label.shape, jnp.float32))
        label = jax.random.categorical(jax.random.fold_in(next(keys), self.half), logits)
        rate_key, *noise_keys = jax.random.split(next(keys), 3)
        noise_keys = [jax.random.fold_in(key, self.half) for key in noise_keys]
        return with_class_noise((rate_key, *noise_keys), x, label, self.num_classes)
