"""Logistic regression from sufficient statistics of a polynomial loss (PASS-GLM; Huggins, Adams & Broderick 2017)."""

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Model
from l2p.models.base import softplus
from l2p.oracle import Oracle
from l2p.protectors.by_hand.gradient_descent import private_mean
from l2p.protectors.by_hand.noised_moments import Moments, NoisedMoments
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.centering import Centering

#: Nodes of the quadrature for a Chebyshev coefficient, which it finds to float32 for intervals up to 100 or so.
_NODES = np.cos((np.arange(256) + 0.5) * np.pi / 256)


@struct.dataclass
class PassGLM(NoisedMoments):
    """Logistic regression whose loss is replaced by its Chebyshev polynomial of degree 2, and solved in closed form.

    The loss is log(1 + exp(m)) - y m; the even part of the first term is replaced by a + b m^2, the best such
    polynomial for margins in [-radius, radius] in Chebyshev's weight, and the odd part m / 2 is exact. So the loss of
    all rows depends on the second moment and on the sum of +-x alone, and is released once for any number of fits. Both
    sums are noised as in `NoisedMoments`, which also sets the ridge.

    Attributes:
      centering, log_norm_bound, logit_share, log_ridge: as in `NoisedMoments`.
      log_radius: f32[k], log of the largest margin that the polynomial is made for, a polynomial in log(mu N).
    """

    centering: Centering
    log_norm_bound: Polynomial
    logit_share: Polynomial
    log_ridge: Polynomial
    log_radius: Polynomial
    num_steps: Count = struct.field(pytree_node=False, default=1)
    models = ("logistic",)

    def check_model(self, model: Model) -> None:
        if model.name not in self.models:
            raise InputError(
                f"pass_glm replaces the logistic loss by a polynomial, and the loss of {model.name} is another one; "
                "choose model logistic, or dp_ls for squares and for several classes."
            )
        super().check_model(model)

    def solution(self, params: jax.Array, moments: Moments, oracle: Oracle) -> jax.Array:
        del params
        coefficient = curvature(jnp.exp(value(self.log_radius, oracle.setup.log_signal)))
        # The gradient is sum of 2 b x x' params - (y - 1/2) x.
        return moments.solve(moments.cross) / (4.0 * coefficient)


def curvature(radius: jax.Array) -> jax.Array:
    """b f32[], the coefficient of m^2 in the Chebyshev polynomial of degree 2 of log(1 + exp(m)) on [-radius, radius].

    >>> round(float(curvature(jnp.float32(1e-2))), 3), round(float(curvature(jnp.float32(4.0))), 3)
    (0.125, 0.082)
    """
    nodes = jnp.asarray(_NODES, jnp.float32)
    even = softplus(radius * nodes) - 0.5 * radius * nodes
    # 2 / pi times the integral against T_2(t) = 2 t^2 - 1, whose weight at every node is the same.
    return 2.0 * (2.0 * jnp.mean(even * (2.0 * jnp.square(nodes) - 1.0))) / jnp.square(radius)


@hand_designed(form="rival")
def pass_glm(problem: Problem) -> PassGLM:
    """Logistic regression from noised sums, by a polynomial.

    PASS-GLM of degree 2 for margins up to 4, as its authors advise, with noise on its sums. In one step after a private
    mean for a twentieth of the budget; both sums cost the same.
    """
    del problem
    return PassGLM(
        private_mean(length=1.0),
        log_norm_bound=log_constant(1.2),
        logit_share=logit_constant(0.5),
        log_ridge=log_constant(1.5),
        log_radius=log_constant(4.0),
    )
