"""Private SGD as the papers of its time calibrated it: constant noise on mini-batches and a constant step size.

Settings are those of Lee and Kifer 2018 and their code, which Hong et al. follow, except for its L2 weight of 0.001,
which changes the parameters over a whole run by at most 2 %. The fair form of both is `dpsgd` with accountant "pld" or
"rdp".
"""

import math

import jax.numpy as jnp

from l2p.privacy.cap import planning
from l2p.privacy.cost.sampling import FixedSize, Poisson
from l2p.privacy.events import Adjacency
from l2p.protectors.hand_designed import Problem, log_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.projectors import Optax
from l2p.protectors.stepwise.schedulers import Decaying
from l2p.protectors.stepwise.stepwise import Stepwise

#: The most steps of SGD-Adv, beyond any budget of the papers.
_ADV_STEPS = 10_000
#: SGD-MA's noise multiplier, and its maximum number of steps here: the original code asks for 1, 100, 1000 and more.
_MA_NOISE, _MA_STEPS = 4.0, 1000


@hand_designed("strong_composition", Adjacency.REPLACE_ONE, "paper")
def sgd_adv(problem: Problem) -> Stepwise:
    """SGD-Adv as published (Bassily, Smith & Thakurta 2014).

    SGD-Adv (Bassily, Smith & Thakurta 2014): batches of sqrt(N) + 10 rows, N epsilon / 500 steps of size 0.1,
    clipping norm 3; fixed-size batches, replaced rows, noise by strong composition, some 7 times that of `rdp`."""
    rows, batch = _sizes(problem)
    steps = min(max(round(rows * problem.budget.epsilon / 500), 1), _ADV_STEPS)
    return Stepwise(_constant(3.0), _descent(0.1), num_steps=steps, sampler=FixedSize(batch, rows))


@hand_designed("moments", Adjacency.ADD_REMOVE, "paper")
def sgd_ma(problem: Problem) -> Stepwise:
    """SGD-MA as published (Abadi et al. 2016).

    Poisson batches of sqrt(N) + 10 rows, clipping norm 4, steps of size 0.05; as many as the moments accountant allows
    at noise multiplier 4; if that is above 1000, then 1000 with less noise.
    """
    rows, batch = _sizes(problem)
    sampler, budget = Poisson(batch / rows), problem.budget
    least = planning.epsilon(sampler, budget.adjacency, budget.delta, _MA_STEPS, _MA_NOISE, "moments")
    steps = _MA_STEPS
    if least > budget.epsilon:
        # At least one, so that an accountant that certifies nothing raises its error.
        steps = max(planning.num_steps(budget, sampler, _MA_NOISE, "moments"), 1)
    return Stepwise(_constant(4.0), _descent(0.05), num_steps=steps, sampler=sampler)


def _sizes(problem: Problem) -> tuple[int, int]:
    """Rows of the table and of a batch; a small table's batch is half of it."""
    rows = problem.rows
    return rows, max(min(int(math.sqrt(rows)) + 10, rows // 2), 1)


def _constant(clip_norm: float) -> Decaying:
    return Decaying(log_clip_norm=log_constant(clip_norm), rate=jnp.array([0.0]))


def _descent(learning_rate: float) -> Optax:
    return Optax("sgd", {"learning_rate": log_constant(learning_rate)})
