"""How far a pull to the start, and a longer clipping norm, help Adam on networks: on public tasks and on digits.

python -m benchmarks.network_pull > benchmarks/pages/network_pull.md
"""

import math
import platform
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

import l2p
from benchmarks.network_cases import CASES, score
from l2p.protectors import Stepwise
from meta_train.recipes import resolve
from meta_train.training.methods import method_for
from meta_train.training.starting_points import starting_point

EPSILONS, DELTA, SEEDS = (0.5, 3.0, 8.0), 1e-5, 3
PULLS, CLIP_NORMS = (0.0, 0.1, 0.3, 0.5, 1.0), (1.0, 3.0)
#: On digits; convolutions take longest.
NETWORKS = ("dense 96-96", "adapter")
INTRODUCTION = """\
# Adam on networks with a pull to the start

`dp_adam` moves a coordinate by .03 at each of 50 steps, and clips gradients to norm 1. The more budget it has, the
surer of itself a network gets on rows that cannot be told apart, so that its loss rises on small tables. Below, a step
also takes back .03 times a pull of the distance from the start (`dp_adam_pulled`), and gradients are clipped to 3. Mean
score on 48 held-out public tasks of the recipe `control-deep-plain` (`meta_train/recipes/deep.toml`; a logarithm of the
loss, lower is better), of the four quarters of its range of log(mu N), and test loss on digits, as on
[networks.md](networks.md). Tasks with label noise want a pull of 1, digits a small one where the budget is small:
`dp_adam_pulled` has .3, which is on digits as good as .1 and better than .5 in the mean of the logarithm, and a
clipping norm of 3, which costs nothing there.

`python -m benchmarks.network_pull > benchmarks/pages/network_pull.md`
"""


def adam(pull: float, clip_norm: float) -> Stepwise:
    """`dp_adam_pulled` with these constants."""
    plain = l2p.load("dp_adam_pulled", l2p.Budget(1.0, DELTA))
    log_pull = jnp.zeros_like(plain.projector.log_pull).at[0, 0].set(math.log(max(pull, 1e-9)))
    return plain.replace(
        scheduler=plain.scheduler.replace(log_clip_norm=jnp.log(jnp.array([clip_norm], jnp.float32))),
        projector=plain.projector.replace(log_pull=log_pull),
    )


def lines() -> Iterator[str]:
    config = resolve.resolve("control-deep-plain")
    evaluate = method_for(config, starting_point(config)).evaluator
    cases = [case for case in CASES if case.data == "digits" and case.name in NETWORKS]
    yield "| clipping norm | pull | tasks | by log(mu N) | " + " | ".join(case.name for case in cases) + " |"
    yield "|---|---|---|---|" + "---|" * len(cases)
    for clip_norm in CLIP_NORMS:
        for pull in PULLS:
            protector = adam(pull, clip_norm)
            report = evaluate(_as_polynomials(protector))
            quarters = np.array(report["held_out_score_per_budget"]).reshape(4, -1).mean(1)
            cells = [
                ", ".join(
                    f"{np.mean([score(case, protector, epsilon, seed)['loss'] for seed in range(SEEDS)]):.3f}"
                    for epsilon in EPSILONS
                )
                for case in cases
            ]
            by_budget = ", ".join(f"{quarter:.2f}" for quarter in quarters)
            yield f"| {clip_norm:g} | {pull:g} | {report['held_out_score']:.3f} | {by_budget} | {' | '.join(cells)} |"


def _as_polynomials(protector: Stepwise) -> Stepwise:
    """The same with coefficients of quadratics, as the evaluator's program was compiled for."""
    return jax.tree.map(lambda leaf: jnp.zeros((3, *leaf.shape[1:])).at[0].set(leaf[0]), protector)


def main() -> None:
    shown = ", ".join(f"{epsilon:g}" for epsilon in EPSILONS)
    print(f"{INTRODUCTION}(digits at epsilon {shown}, {SEEDS} seeds; {platform.machine()}, jax {jax.__version__}).\n")
    for line in lines():
        print(line, flush=True)


if __name__ == "__main__":
    main()
