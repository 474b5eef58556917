"""Sensitivities for output perturbation: the most that one row moves the result of a solver that adds no noise.

The noise is then added once, to the solution: an `Event` of mechanism gaussian (or gamma) whose noise multiplier is its
standard deviation (or scale) over this sensitivity.
"""

import math
from collections.abc import Iterable

from l2p.base.errors import InputError
from l2p.privacy.events import Adjacency

# The recursion rounds to the nearest, a few ulp per step.
_UP = 1 + 1e-12


def gradient_descent(
    lipschitz: float,
    smoothness: float,
    step_sizes: Iterable[float],
    num_rows: int,
    adjacency: Adjacency,
    strong_convexity: float = 0.0,
) -> float:
    """Bound on the L2 distance between the results of gradient descent on an average loss on two neighbouring tables.

    From a start that does not depend on the rows, w <- w - eta_t * (mean over the N rows of grad l(w, row) + grad r(w))
    with every step size fixed beforehand. Two runs on neighbours move apart by at most L eta_t c / N per step, c = 2
    gradients where a row is replaced and 1 where it is nulled (N is public and the divisor in both runs); and a step
    stretches the distance that they already have by at most max(1 - gamma eta_t, beta eta_t - 1), which is 1 for convex
    objectives, gamma = 0 (Hardt, Recht & Singer 2016, Lemma 3.7; Zhang, Zheng, Mou & Wang 2017 state 3 L T eta / N for
    constant steps, which is valid and looser).

    The regulariser r is in both tables, so its gradient cancels: L bounds the data's gradients alone, while beta and
    gamma are those of the whole objective, on every table. A projection onto a fixed convex set after each step is
    covered, since it brings points no further apart.

    Args:
      lipschitz: L, bound on ||grad l(w, row)|| for every row and every w that is visited.
      smoothness: beta, Lipschitz constant of the whole objective's gradient.
      step_sizes: eta_t f[T], at most 2 / beta each.
      num_rows: N, public.
      adjacency: zero_out or replace_one.
      strong_convexity: gamma of the whole objective; 0 if it is only convex.

    Returns:
      Delta, in the units of w, rounded up.

    Raises:
      InputError: add_remove, a constant that is not a valid bound, or a step size for which two runs may diverge.

    >>> round(gradient_descent(1.0, 0.25, [1.0] * 100, 10_000, Adjacency.REPLACE_ONE), 4)
    0.02
    >>> round(gradient_descent(1.0, 0.25, [1.0] * 100, 10_000, Adjacency.REPLACE_ONE, strong_convexity=0.1), 4)
    0.002
    """
    if adjacency is Adjacency.ADD_REMOVE:
        raise InputError(
            "under add_remove the number of rows is private, but gradient descent on an average divides by it, which "
            "moves every row's share; choose adjacency zero_out or replace_one."
        )
    if num_rows != int(num_rows) or num_rows < 1:
        raise InputError(f"the number of rows is {num_rows!r}, so there is no average; give a whole number above 0.")
    _check_bound("the Lipschitz constant of the loss", lipschitz)
    _check_bound("the smoothness of the objective", smoothness)
    if not 0 <= strong_convexity <= smoothness:
        raise InputError(
            f"a strong convexity of {strong_convexity!r} is not between 0 and the smoothness, {smoothness!r}, so no "
            "objective has both; check the two constants."
        )
    distance = 0.0
    for size in step_sizes:
        _check_bound("a step size", size)
        if size * smoothness > 2:
            raise InputError(
                f"a step size of {size!r} exceeds 2 / beta = {2 / smoothness:.6g}, beyond which two runs may move "
                "apart without bound; choose smaller steps."
            )
        stretched = max(1 - strong_convexity * size, smoothness * size - 1)
        distance = stretched * distance + adjacency.sensitivity_factor * lipschitz * size / num_rows
    return distance * _UP


def _check_bound(subject: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise InputError(
            f"{subject} is {value!r}, but the sensitivity needs a finite bound above 0; give one that holds for every "
            "row that the table may hold."
        )
