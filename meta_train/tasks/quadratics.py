"""Random quadratic problems: tasks with a known optimum, without a table."""

import dataclasses

import jax
import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.task.rows import Rows
from meta_train.tasks.drawing import between
from meta_train.tasks.family import Family

#: The source of random quadratic problems.
QUADRATICS = "random_quadratics"
#: Minimum and maximum length of a quadratic problem's optimum, standard deviation of the noise on its target, and
#: spread of a feature, where 1 is all of [0, 1].
OPTIMUM_LENGTH, TARGET_NOISE, SPREAD = (0.5, 2.0), (0.02, 0.5), (0.25, 1.0)


@dataclasses.dataclass(frozen=True)
class Quadratics(Family):
    """Random quadratic problems (Andrychowicz et al. 2016), each with its own optimum.

    Features are uniform around 1/2, each with its own spread, so that curvature differs between coordinates by a
    factor of up to 16. The target is (2 x - 1) . w plus normal noise; w has a random direction and length.

    Attributes:
      stream: families with different numbers draw independent problems from the same distribution.
    """

    stream: int

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        if num_features is None:
            raise InputError(f"{QUADRATICS} come from no table with columns of its own; set num_features to counts.")
        keys = jax.random.split(jax.random.fold_in(key, self.stream), 6)
        spread = jax.random.uniform(keys[0], (num_features,), minval=SPREAD[0], maxval=SPREAD[1])
        design = spread[None, :] * jax.random.uniform(keys[1], (num_rows, num_features), minval=-1.0, maxval=1.0)
        direction = jax.random.normal(keys[2], (num_features,))
        optimum = between(keys[3], OPTIMUM_LENGTH) * direction / jnp.linalg.norm(direction)
        noise = between(keys[4], TARGET_NOISE) * jax.random.normal(keys[5], (num_rows,))
        return Rows(0.5 * (1.0 + design), design @ optimum + noise, jnp.ones(num_rows, jnp.float32))
