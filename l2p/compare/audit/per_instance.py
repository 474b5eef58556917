"""Per-instance privacy loss of gradient descent (Golatkar et al., CVPR 2022, appendix C)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from l2p.oracle.setup import Setup
from l2p.privacy.cost.convert import gdp_epsilon
from l2p.protectors.stepwise.public_rows import PublicGradients
from l2p.protectors.stepwise.stepwise import Stepwise
from l2p.run.run import Simulation, advance, start
from l2p.task.rows import Rows


@dataclasses.dataclass(frozen=True, repr=False)
class InstanceLosses:
    """PRIVATE. What one simulated run reveals of each row, on the path that it took.

    Both depend on the private rows and their noise on the path, so neither may be released, and neither is a guarantee.

    Attributes:
      mu: f64[n], Gaussian-DP parameter of each row's removal; 0 for null rows.
      total: f64, that of the whole run, which no row exceeds.
    """

    mu: np.ndarray
    total: float

    def __repr__(self) -> str:
        return "InstanceLosses(private, not shown)"

    def epsilon(self, delta: float) -> np.ndarray:
        """f64[n], the epsilon of each row at delta."""
        return np.array([gdp_epsilon(mu, delta) if mu > 0 else 0.0 for mu in self.mu])

    def histogram(self, bins: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """PRIVATE. Numbers of rows i64[bins] by mu over that of the run, and the edges f64[bins + 1] from 0 to 1."""
        return np.histogram(self.mu / self.total, bins=bins, range=(0.0, 1.0))


_start, _advance = jax.jit(start), jax.jit(advance, static_argnames="num_steps")


def instance_losses(
    protector: Stepwise, params: jax.Array, rows: Rows, setup: Setup, key: jax.Array, public: Rows | None = None
) -> InstanceLosses:
    """PRIVATE. mu_i^2 = sum over t of min(|g_i(w_t)|, tau_t)^2 / (tau_t sigma_t)^2 of a simulated run.

    sigma_t is the noise multiplier of a step times the adjacency's sensitivity factor, and tau_t its clipping norm. The
    paper prints the first form of this without tau_t in the denominator.

    Args:
      protector: asks for one clipped gradient of all rows at each step, and for nothing else.
      params, rows, setup, key, public: as of `l2p.run.run.run`.
    """
    noise, model = Simulation(key), setup.model
    run, first = _start(protector, params, rows, setup, noise, public)
    if first:
        raise ValueError("a query before the first step has a loss of its own, which is not counted here.")
    squares, total = np.zeros(rows.y.shape[0]), 0.0
    for _ in range(protector.num_steps):
        norms = _norms(PublicGradients.at(model, run.params, rows, run.state.features))
        run, records, _ = _advance(protector, run, rows, setup, noise, num_steps=1, public=public)
        if [record.query for record in records] != ["clipped_gradient"]:
            raise ValueError("per-instance losses are of steps that ask for one clipped gradient.")
        if not bool(records[0].granted[0]):
            break
        clip_norm = float(records[0].clip_norm[0])
        sigma = float(records[0].noise_multiplier[0])
        # A row's removal moves the sum by its own clipped gradient, the replacement of a row by twice the bound.
        scale = (clip_norm * sigma * setup.adjacency.sensitivity_factor) ** 2
        squares += np.minimum(np.asarray(norms, np.float64), clip_norm) ** 2 / scale
        total += sigma**-2.0
    return InstanceLosses(np.sqrt(squares), float(np.sqrt(total)))


@jax.jit
def _norms(gradients: PublicGradients) -> jax.Array:
    return jnp.where(gradients.rows.mask > 0, gradients.norms(), 0.0)
