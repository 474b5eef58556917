"""Public-data-assisted mirror descent (PDA-DPMD; Amid, Ganesh, Mathews, Ramaswamy, Song, Steinke, Suriyakumar,
Thakkar and Thakurta, ICML 2022)."""

from l2p.protectors.hand_designed import Problem, log_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.public_parts import PublicMirror
from l2p.protectors.stepwise.stepwise import Stepwise
from l2p.protectors.with_public_rows.adamix import PRIVATE_RATE, descent_for, mixed


@hand_designed(form="rival")
def pda_dpmd(problem: Problem) -> Stepwise:
    """Mirror descent: public gradients take over from noised ones.

    Its practical form, from the model of public rows: the mixture of a noised and a public gradient, by a cosine that
    reaches zero at twice the number of steps.
    """
    return mixed(
        problem.budget, problem.model, PublicMirror(descent_for(problem.model, PRIVATE_RATE), log_constant(2.0))
    )
