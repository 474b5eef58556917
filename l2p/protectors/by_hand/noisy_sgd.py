"""SGD with noise in every step, as Wu et al. (2017) extended it to several passes: SCS13 and BST14."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle import Oracle
from l2p.privacy.accountants.basic import WholePriceList
from l2p.privacy.events import Adjacency
from l2p.protectors.by_hand.bolt_on import PassProtector, noise_for, num_problems
from l2p.protectors.hand_designed import Problem
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.schedulers import SLACK
from l2p.queries.noisy_passes import NoisyPasses, SampledPasses
from l2p.task.feature_map import FeatureMap


@struct.dataclass
class NoisySGD(PassProtector):
    """Passes over permuted rows, with noise in each batch's sum (Song, Chaudhuri & Sarwate 2013)."""

    @property
    def mechanisms(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.noise,)

    def step(
        self, params: jax.Array, state: FeatureMap | tuple, oracle: Oracle
    ) -> tuple[jax.Array, FeatureMap | tuple]:
        setup, loss = oracle.setup, self.loss(oracle.setup.model)
        multiplier = oracle.noise_multiplier((1.0 - SLACK) * setup.price_list.budget, self.noise)
        problems = num_problems(setup.model)
        query = NoisyPasses(loss, self.plan(loss), params, multiplier, problems, self.norm_bound, self.noise)
        return oracle.ask(query), state


@struct.dataclass
class SampledSGD(PassProtector):
    """Fresh random batches, with Gaussian noise in each sum (Bassily, Smith & Thakurta 2014), (epsilon, delta)-private
    as a whole."""

    mechanisms = ("objective",)

    def step(
        self, params: jax.Array, state: FeatureMap | tuple, oracle: Oracle
    ) -> tuple[jax.Array, FeatureMap | tuple]:
        setup, loss = oracle.setup, self.loss(oracle.setup.model)
        prices = setup.price_list
        assert isinstance(prices, WholePriceList)
        multiplier = oracle.noise_multiplier(jnp.asarray(prices.budget), "objective")
        query = SampledPasses(
            loss,
            self.plan(loss),
            params,
            prices.log_delta,
            multiplier,
            num_problems(setup.model),
            self.norm_bound,
            self.rule != "strongly_convex",
        )
        return oracle.ask(query), state


@hand_designed(form="rival")
def scs13(problem: Problem) -> NoisySGD:
    """SGD with noise in every step, 10 passes (SCS13).

    Song, Chaudhuri & Sarwate (2013): permuted batches of 50, steps of 1 / sqrt(t), each pass paid for by itself. Exact
    Gaussian noise, or, with accountant `basic`, pure differential privacy, a tenth of epsilon for each pass.
    """
    return NoisySGD.of(problem, rule="inverse_power", step_size=1.0, noise=noise_for(problem.accountant))


@hand_designed("basic", Adjacency.REPLACE_ONE, "paper")
def bst14(problem: Problem) -> SampledSGD:
    """Noisy SGD on sampled batches, convex (BST14).

    Bassily, Smith & Thakurta (2014), as Algorithm 4 of Wu et al. (2017), with sound constants: 10 passes' worth of
    random batches of 50, steps of 2 R / (G sqrt(t)) in a ball of radius R = 10.
    """
    return SampledSGD.of(problem, rule="inverse_power", step_size=1.0, radius=10.0)


@hand_designed("basic", Adjacency.REPLACE_ONE, "paper")
def bst14_sc(problem: Problem) -> SampledSGD:
    """Noisy SGD on sampled batches, strongly convex (BST14).

    As `bst14`, with Algorithm 5's steps: ridge 0.001, min(1 / beta, 1 / (ridge t)), iterates within 1 / ridge of 0.
    """
    return SampledSGD.of(problem, rule="strongly_convex", ridge=1e-3, radius=1e3)
