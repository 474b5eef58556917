"""Meta-gradients against random search, with the same number of simulated runs each; the better one ships.

Differentiating a run takes a forward pass, a second one (its steps are rematerialised) and a backward pass at twice the
cost: it counts as `GRADIENT_RUNS`. A candidate of the search is run on tasks of every shape, a meta-gradient on those
of one.
"""

from pathlib import Path
from typing import Any

from l2p.checkpoints import checkpoint
from meta_train.config import Comparison, MetaConfig, Plain, Search

#: Differentiating one run counts as this many simulated runs.
GRADIENT_RUNS = 4


def trials(config: Comparison) -> dict[str, MetaConfig]:
    """The two trainings by name, with equally many simulated runs and held-out evaluations, up to rounding.

    >>> config = Comparison.of("x", "noisygd", coefficients=3, steps=300, num_features=(8, 24, 52))
    >>> [(name, trial.outer.steps, trial.outer.eval_every) for name, trial in trials(config).items()]
    [('gradient', 300, 50), ('search', 400, 66)]
    """
    ratio = GRADIENT_RUNS / len(config.shapes)
    steps, eval_every = (max(1, int(count * ratio)) for count in (config.outer.steps, config.outer.eval_every))
    return {
        "gradient": Plain.from_flat(config.common(Plain)),
        "search": Search.from_flat({**config.common(Search), "steps": steps, "eval_every": eval_every}),
    }


def ship_better(config: MetaConfig, trained: dict[str, Path], out: Path) -> Path:
    """Write the trial with the better held-out score to `out/NAME.safetensors`; its card describes the two.

    `held_out` and `seconds` are the winner's; `trials` has `held_out_score`, `seconds` and `steps` of each, and `won`
    names the winner.
    """
    cards = {method: checkpoint.read_checkpoint_card(path) for method, path in trained.items()}
    scores = {method: card["held_out"]["held_out_score"] for method, card in cards.items()}
    won = min(scores, key=lambda method: scores[method])
    trials_on_card: dict[str, Any] = {
        method: {"held_out_score": scores[method], "seconds": card["seconds"], "steps": card["config"]["steps"]}
        for method, card in cards.items()
    }
    path = out / f"{config.name}{checkpoint.SUFFIX}"
    card = {**cards[won], "config": config.flat(), "trials": trials_on_card, "won": won}
    checkpoint.save(checkpoint.load(trained[won]).protector, path, card)
    return path
