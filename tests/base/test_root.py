"""The search for where a falling function becomes 0."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.root import WIDTH, falls_to_zero

LOW, HIGH = -25.0, 40.0
ZEROS = np.concatenate([np.linspace(-24.9, 39.9, 97), [LOW + WIDTH, HIGH - WIDTH]]).astype(np.float32)
#: Functions f(x) of the distance to their zero: straight, bent like a price, steep, with jumps, and rough.
SHAPES = {
    "straight": lambda x: -1.4 * x,
    "bent": lambda x: jnp.where(x < 0.5, -30.0 * (x - 0.5), -1.4 * (x - 0.5)) - 15.0,
    "curved": lambda x: jnp.expm1(jnp.clip(-3.0 * x, -60.0, 60.0)),
    "jumping": lambda x: jnp.where(x < 0, 68.0 - x, -0.01 - x),
    "level": lambda x: jnp.where(x < 0, 1.0, -1.0),
    "rough": lambda x: -1.4 * x + 1e-6 * jnp.sin(1e7 * x),
}


def test_a_zero_is_found_from_any_guess_and_from_above():
    """The function is at most 0 where the search ends, and was above 0 within `WIDTH` before."""

    def values(x):
        return jnp.stack([shape(x) for shape in SHAPES.values()])

    def search(shape, zero, guess):
        return falls_to_zero(lambda x: values(x - zero)[shape], LOW, HIGH, zero + guess, -1.4)

    shapes, guesses = jnp.arange(len(SHAPES)), jnp.array([-70.0, -3.0, -0.1, 0.0, 1e-5, 2.0, 70.0])
    over_all = jax.vmap(jax.vmap(jax.vmap(search, (None, None, 0)), (None, 0, None)), (0, None, None))
    x = np.asarray(jax.jit(over_all)(shapes, ZEROS, guesses))
    apart, below = x - ZEROS[:, None], x - np.float32(1.01 * WIDTH) - ZEROS[:, None]
    for index, (name, shape) in enumerate(SHAPES.items()):
        assert np.all((shape(apart[index]) <= 0) | (x[index] == HIGH)), name
        rough = 1e-5 if name == "rough" else 0.0
        assert np.all((shape(below[index] - rough) > 0) | (x[index] < LOW + 2 * WIDTH)), name


def test_a_search_takes_few_evaluations_and_ends_for_nan():
    places = []

    def evaluations(function, guess):
        places.clear()
        counted = lambda x: jax.pure_callback(lambda x: places.append(x) or function(x), x, x)  # noqa: E731
        return float(falls_to_zero(counted, LOW, HIGH, jnp.float32(guess), -1.4)), len(places)

    assert evaluations(lambda x: np.float32(-1.4) * (x - 3), 2.0)[1] <= 4
    assert evaluations(lambda x: np.float32(-1.4) * (x - 3) + (x < 3), 2.0)[1] <= 25
    assert evaluations(lambda x: x * np.float32(math.nan), 2.0)[1] <= 2
