"""Deviations of a training of the L2P paper's pair from the paper (Hong et al. 2021), for its card."""

from l2p.protectors import LSTMScheduler, Stepwise
from l2p.run.protector import Protector
from meta_train.config import Constrained, MetaConfig
from meta_train.config.bands import BANDS

#: Of every pair, whatever it is trained by.
ALWAYS = (
    "one pair serves all budgets, the paper trains one for each: log(mu N) and t / T are inputs of the scheduler, its "
    f"output is relative to even spending, and each of {BANDS} bands of budgets is a constraint",
    "the projector reads log magnitude and sign of each coordinate, and its ratio to the noise, whose size is known; "
    "in the paper, the noised gradient",
    "the clipping norm C_g and the scale of updates are learned; the paper sets C_g",
    "each step reads all rows; in the paper, a random batch",
    "the score is the log of the excess loss; in the paper, the loss",
    "ctCDP has the sound root of Definition 0.1, not the one that is printed (docs/accounting.md)",
    "a step that cannot pay its price takes what is left if that is at least half of it; Algorithm 1 stops",
)


def deviations(config: MetaConfig, protector: Protector) -> list[str]:
    """Sentences on what the paper has otherwise; none for other protectors."""
    if not isinstance(config, Constrained) or not isinstance(protector, Stepwise):
        return []
    if not isinstance(protector.scheduler, LSTMScheduler):
        return []
    learner, num_steps = config.learner, protector.num_steps
    own = ["the scheduler reads the norm of the last noised gradient, which is free; Algorithm 2 buys that of the next"]
    if protector.norm_query is not None:
        own = ["the norm s_t is bought directly; Algorithm 2 squares it, and its noise would tell the size of a batch"]
    if learner.inner_gradient:
        own.append("meta-gradients pass through the gradients that a run asks for; the paper's treat them as constants")
    if learner.unroll is None:
        own.append(f"whole runs of {num_steps} steps are differentiated; the paper, 50 batches of 20 steps")
    elif (batches := (num_steps // learner.unroll, learner.unroll)) != (50, 20):
        own.append(f"{batches[0]} batches of {batches[1]} steps; the paper's are 50 of 20")
    if learner.constraint != "soft":
        own.append(
            "the constraint is the augmented Lagrangian of Eq. 2 or Eq. 5; the paper's own choice is Eq. 6 and 7"
        )
    return [*ALWAYS, *own]
