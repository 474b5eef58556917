"""Public rows alone, and their ensemble with AGD: the baselines of private rows (Wang & Zhou 2020)."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.by_hand.agd import agd
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial
from l2p.protectors.hand_designed import Problem, log_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.public_rows import public_rows
from l2p.protectors.with_public_rows.public_end import AveragedWithPublic
from l2p.protectors.with_public_rows.public_fit import FITTED, fit
from l2p.run.protector import Protector

#: Weight of ||w||^2 beside the mean loss of some tens of rows, which would otherwise be fitted exactly.
WEIGHT = 0.01


@struct.dataclass
class OnlyPublic(Protector):
    """A fit to public rows; it asks no query, so it spends nothing and its privacy loss is zero.

    Attributes:
      log_weight: f32[k], log of the weight of the distance to the start, a polynomial in log(mu N).
    """

    log_weight: Polynomial
    num_steps: int = struct.field(pytree_node=False, default=1)
    models = FITTED
    mechanisms = ()
    adaptive_noise = False
    needs_public = True

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, tuple]:
        weight = jnp.exp(value(self.log_weight, oracle.setup.log_signal))
        return fit(oracle.setup.model, params, public_rows(oracle, "onlypub"), params, weight), ()

    def step(self, params: jax.Array, state: tuple, oracle: Oracle) -> tuple[jax.Array, tuple]:
        return params, state

    def finish(self, params: jax.Array, state: tuple, setup: Setup) -> jax.Array:
        return params


@hand_designed(form="reference", in_checkpoints=False)
def onlypub(problem: Problem) -> OnlyPublic:
    """A fit to public rows alone; spends nothing."""
    del problem
    return OnlyPublic(log_constant(WEIGHT))


@hand_designed(form="paper")
def agd_avg(problem: Problem) -> AveragedWithPublic:
    """The mean of the results of `agd` and `onlypub`."""
    return AveragedWithPublic(agd(problem), log_constant(WEIGHT))
