"""No privacy: the references of every comparison, with all features and with none."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import NAMES
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.hand_designed import Problem
from l2p.protectors.register import hand_designed
from l2p.queries.solve import Minimizer
from l2p.run.protector import Protector


@struct.dataclass
class NonPrivate(Protector):
    """Asks for the exact minimiser (a local one if the model is not convex), which only an unlimited budget grants.

    Attributes:
      features: whether it may use features; without, it is the best constant prediction.
    """

    num_steps: int = struct.field(pytree_node=False, default=1)
    features: bool = struct.field(pytree_node=False, default=True)
    models = NAMES
    mechanisms = ("none",)
    additive = False

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, tuple]:
        return params, ()

    def step(self, params: jax.Array, state: tuple, oracle: Oracle) -> tuple[jax.Array, tuple]:
        return oracle.ask(Minimizer(oracle.setup.model, params, jnp.zeros(()), self.features)), state

    def finish(self, params: jax.Array, state: tuple, setup: Setup) -> jax.Array:
        return params


@hand_designed(form="reference", in_checkpoints=False)
def nonprivate(problem: Problem) -> NonPrivate:
    """The exact minimiser, with an unlimited budget."""
    del problem
    return NonPrivate()


@hand_designed(form="reference", in_checkpoints=False)
def no_features(problem: Problem) -> NonPrivate:
    """The best constant prediction, with an unlimited budget.

    A method that ends above its loss has learned nothing.
    """
    del problem
    return NonPrivate(features=False)
