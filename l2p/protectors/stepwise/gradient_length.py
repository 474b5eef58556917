"""The length of gradients at the start, which says how far a change of the params moves what a network puts out."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import Model
from l2p.oracle import Oracle
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial
from l2p.protectors.register import stored
from l2p.protectors.stepwise.purchase import Purchase, Stage, Start
from l2p.protectors.stepwise.schedulers import noise_for_share
from l2p.queries import GradientLengths

#: Length in whose unit logarithms are told: networks on features in [0, 1] are near it.
TYPICAL = 3.0
#: A row's logarithm counts as far as this from zero: lengths from a twentieth to twenty times the typical one.
MOST = 3.0
#: Standard deviation of the logarithm over networks and tables: what a noisy answer is shrunk by.
SPREAD = 0.7


@stored
@struct.dataclass
class GradientLength(Purchase):
    """Buys the mean log length of the gradients of rows at the start.

    Adam moves every coordinate by about its learning rate, whatever the gradients' scale, and noise moves it so too.
    How far that moves what a network puts out is proportional to the length of a row's gradient, which depends on the
    scale of features and on how a network is parametrised.

    Attributes:
      logit_share: f32[k], logit of the query's share of the remaining budget, a polynomial in log(mu N).
    """

    logit_share: Polynomial
    kind: ClassVar[str] = "gradient_length"
    stage: ClassVar[Stage] = Stage.GRADIENT
    maps_rows: ClassVar[bool] = False

    def fits(self, model: Model) -> bool:
        del model
        return True

    def buy(self, start: Start, oracle: Oracle) -> Start:
        setup = oracle.setup
        params = start.mapped_params(setup.model)
        multiplier = noise_for_share(oracle, jax.nn.sigmoid(value(self.logit_share, setup.log_signal)))
        query = GradientLengths(
            setup.model, params, start.features, jnp.float32(TYPICAL), jnp.float32(MOST), multiplier
        )
        mean = oracle.ask(query)[0] / setup.num_rows
        noise_std = multiplier * MOST * setup.adjacency.sensitivity_factor / setup.num_rows
        trust = 1.0 / (1.0 + jnp.square(noise_std / SPREAD))
        return start.but(log_length=trust * mean)
