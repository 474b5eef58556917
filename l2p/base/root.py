"""Where a falling function becomes 0, in few evaluations."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

#: The width of the bracket that a search ends with; up to 64 it spans two float32 numbers or more.
WIDTH = 2.0**-17
#: Evaluations after which brackets are only halved; searches need 4 on a straight line, and about 20 at a jump.
_FREE = 30

#: A place f32[] and the function's value there.
Point = tuple[jax.Array, jax.Array]


def falls_to_zero(
    function: Callable[[jax.Array], jax.Array], low: float, high: float, guess: jax.Array, slope: float
) -> jax.Array:
    """The least x f32[] at which the function is at most 0: at most `WIDTH` above it, and not one where it is above 0.

    Chandrupatla's method: inverse quadratic interpolation where three points allow it, else halves. A good guess and
    slope save evaluations and change nothing else.

    Args:
      function: of f32[], finite, falling up to rounding; it may jump.
      low, high: within [-64, 64]; assumed to lie where the function is above 0, and at most 0.
      guess: f32[], where the search begins.
      slope: of the function near it.
    """

    def narrowed(state: tuple) -> tuple:
        x, newest, opposite, count = state
        point = x, function(x)
        same_side = (point[1] > 0) == (newest[1] > 0)
        opposite, third = _either(same_side, opposite, newest), _either(same_side, newest, opposite)
        share = jnp.where(count < _FREE, _share(point, opposite, third), 0.5)
        # The second point lies just beyond where the slope leads, so that the two often are a bracket.
        by_slope = x - point[1] / slope + jnp.where(point[1] > 0, WIDTH, -WIDTH)
        following = jnp.where(count == 0, by_slope, x + share * (opposite[0] - x))
        least, most = jnp.minimum(x, opposite[0]), jnp.maximum(x, opposite[0])
        return jnp.clip(following, least + WIDTH / 2, most - WIDTH / 2), point, opposite, count + 1

    def is_wide(state: tuple) -> jax.Array:
        _, (x, _), (end, _), _ = state
        return jnp.abs(x - end) > WIDTH  # false for NaN

    guess = jnp.clip(guess, low + WIDTH, high - WIDTH)
    ends = [
        (jnp.full_like(guess, end), jnp.full_like(guess, value)) for end, value in ((low, jnp.inf), (high, -jnp.inf))
    ]
    _, (x, value), (end, _), _ = jax.lax.while_loop(is_wide, narrowed, (guess, *ends, jnp.zeros((), jnp.int32)))
    return jnp.where(value > 0, end, x)


def _either(first_one: jax.Array, first: Point, second: Point) -> Point:
    return jnp.where(first_one, first[0], second[0]), jnp.where(first_one, first[1], second[1])


def _share(newest: Point, opposite: Point, third: Point) -> jax.Array:
    """How far from the newest point to the opposite one the function is 0, as a share f32[].

    By the inverse quadratic through three points where it is monotone between them, by the straight line where the
    third was not evaluated, and else one half.
    """
    (x1, f1), (x2, f2), (x3, f3) = newest, opposite, third
    place, height = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
    monotone = (height**2 < place) & ((1 - height) ** 2 < 1 - place)  # false for NaN
    curved = f1 / (f2 - f1) * f3 / (f2 - f3) + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
    straight = jnp.where(jnp.isfinite(f2) & jnp.isinf(f3), f1 / (f1 - f2), 0.5)
    return jnp.where(monotone, curved, straight)
