"""Worth of public rows beside private ones."""

import jax
import jax.numpy as jnp
import numpy as np

from l2p.protectors.stepwise.public_rows import Matrix, PublicGradients


def performance_boost(public_error: float, private_error: float, paragon_error: float) -> float:
    """Gain of a private model over the public one, relative to the one without privacy, as a ratio of distances:
    (public - paragon) / (private - paragon); 1 is no gain, infinite is the paragon itself (Golatkar et al. 2022).

    >>> round(performance_boost(0.4358, 0.3303, 0.2517), 2)  # MIT-67, epsilon 3
    2.34
    """
    distance = private_error - paragon_error
    return (public_error - paragon_error) / distance if distance else float("inf")


def subspace_errors(
    public: PublicGradients, private: PublicGradients, number: int, key: jax.Array, matrix: Matrix = "total"
) -> tuple[float, float]:
    """PRIVATE. Shares of the private gradient's squared length outside `number` directions: of public gradients, and of
    random ones.

    Args:
      public: gradients that the directions are of.
      private: gradients of the private rows at the same params.
      number: P.
      key: draws the random directions.
      matrix: see `PublicGradients.directions`.
    """
    gradient = private.total()
    directions = public.directions(number, matrix)
    random = jnp.linalg.qr(jax.random.normal(key, directions.shape))[0]
    target = np.asarray(gradient, np.float64).reshape(directions.shape[0], -1)

    def outside(basis: jax.Array) -> float:
        columns = np.asarray(basis, np.float64)
        return float(np.square(target - columns @ (columns.T @ target)).sum() / np.square(target).sum())

    return outside(directions), outside(random)
