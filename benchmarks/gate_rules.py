"""Rules for where a protector's networks run and where its control does, compared on held-out tasks, from cards alone.

    python -m benchmarks.gate_rules

The card of `universal` and those of its folds hold the networks' mean gain over their control in each of 8 bands of
log(mu N), for each of ten groups of held-out tasks, with standard errors. A rule that is scored with the gains that it
chose by would look too good. So each mean m with its standard error s is split into two that are independent if m is
normal: m + .6 s z, by which the rule chooses, and m - s z / .6, by which it is scored (z is standard normal, 1,000
draws). Scores are unbiased, for gains measured on 26 % fewer tasks. Prints the mean gain with one standard error over
z, and the share of gates that are open, for all four files together and then each file's gain. All gains are on tasks
of 1,024 rows, with which networks gain more than with many (`gains.py`).
"""

import functools
from collections.abc import Callable

import numpy as np

from l2p.checkpoints import checkpoint
from l2p.models import plain_name

FILES = "universal", *(f"universal-fold-{fold}" for fold in (1, 2, 3))
SPLIT, DRAWS = 0.6, 1_000

#: (models' gains f[models, BANDS], their errors, gains of all tasks f[BANDS], their errors) -> which gates are open.
Rule = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def pooled(gain: np.ndarray, error: np.ndarray, least: float) -> np.ndarray:
    """Empirical Bayes in each band: models' gains are draws around a common mean, with the spread that DerSimonian and
    Laird (1986) estimate; open where the posterior mean is above `least` posterior standard deviations."""
    weight = error**-2
    mean = (weight * gain).sum(0) / weight.sum(0)
    excess = (weight * (gain - mean) ** 2).sum(0) - (len(gain) - 1)
    spread = np.maximum(0, excess / (weight.sum(0) - (weight**2).sum(0) / weight.sum(0)))
    weight = 1 / (error**2 + spread)
    mean = (weight * gain).sum(0) / weight.sum(0)
    own = spread / (spread + error**2)
    deviation = np.sqrt(own * error**2 + (1 - own) ** 2 / weight.sum(0))
    return own * gain + (1 - own) * mean > least * deviation


def near(gain: np.ndarray) -> np.ndarray:
    """f[models, BANDS], gains in each band and its two neighbours, which count half."""
    padded = np.pad(gain, ((0, 0), (1, 1)), mode="edge")
    return (padded[:, :-2] + 2 * gain + padded[:, 2:]) / 4


def near_error(error: np.ndarray) -> np.ndarray:
    padded = np.pad(error**2, ((0, 0), (1, 1)), mode="edge")
    return np.sqrt(padded[:, :-2] + 4 * padded[:, 1:-1] + padded[:, 2:]) / 4


RULES: dict[str, Rule] = {
    "networks everywhere": lambda gain, error, total, total_error: np.ones_like(gain, bool),
    "own gain above 0": lambda gain, error, total, total_error: gain > 0,
    "own gain above 1 standard error": lambda gain, error, total, total_error: gain > error,
    "own gain above 2 standard errors": lambda gain, error, total, total_error: gain > 2 * error,
    "own above 0, that of all above 0": lambda gain, error, total, total_error: (gain > 0) & (total > 0),
    "own above 0, that of all above 2 errors (shipped)": lambda gain, error, total, total_error: (
        (gain > 0) & (total > 2 * total_error)
    ),
    "own above 0, one of the two above 2 errors": lambda gain, error, total, total_error: (
        (gain > 0) & ((total > 2 * total_error) | (gain > 2 * error))
    ),
    "pooled with other models, above 0": lambda gain, error, total, total_error: pooled(gain, error, 0),
    "pooled with other models, above 1 deviation": lambda gain, error, total, total_error: pooled(gain, error, 1),
    "own and neighbouring bands, above 0": lambda gain, error, total, total_error: near(gain) > 0,
    "own and neighbouring bands, above 1 error": lambda gain, error, total, total_error: near(gain) > near_error(error),
    "both kinds of pooling, above 0": lambda gain, error, total, total_error: pooled(near(gain), near_error(error), 0),
    "both kinds of pooling, above 1 deviation": lambda gain, error, total, total_error: pooled(
        near(gain), near_error(error), 1
    ),
}


@functools.cache
def groups(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gains of a file's groups of tasks, their errors, and the matrix that averages groups of the same model."""
    gains = checkpoint.load(name).card["held_out"]["gains"]
    own = [plain_name(group.split()[-1]) for group in gains["by_source"]]
    gain, error = (
        np.array([group_gain[key] for group_gain in gains["by_source"].values()]) for key in ("mean", "standard_error")
    )
    average = np.array([[model == own_model for own_model in own] for model in gains["by_model"]], float)
    return gain, error, average / average.sum(1, keepdims=True)


def score(name: str, rule: Rule) -> tuple[np.ndarray, float]:
    """A file's mean gain over models and bands in each draw, and the share of open gates."""
    (gain, error, average), noise = groups(name), np.random.default_rng(0)
    scores, shares = [], []
    for draw in noise.standard_normal((DRAWS, *gain.shape)):
        chosen_by, scored_by = gain + SPLIT * error * draw, gain - error * draw / SPLIT
        wider = error * np.sqrt(1 + SPLIT**2)
        total = chosen_by.mean(0), np.sqrt((wider**2).sum(0)) / len(gain)
        is_open = rule(average @ chosen_by, np.sqrt(average**2 @ wider**2), *total)
        scores.append((is_open * (average @ scored_by)).mean())
        shares.append(is_open.mean())
    return np.array(scores), float(np.mean(shares))


def main() -> None:
    print(f"| networks run where a model's gain is | gain | open | {' | '.join(FILES)} |")
    print("| --- |" + " --- |" * (2 + len(FILES)))
    by_rule = {label: [score(name, rule) for name in FILES] for label, rule in RULES.items()}
    for label, scores in sorted(by_rule.items(), key=lambda item: -np.mean([gain for gain, _ in item[1]])):
        each = np.mean([gain for gain, _ in scores], axis=0)
        cells = " | ".join(f"{gain.mean():.4f}" for gain, _ in scores)
        share = np.mean([share for _, share in scores])
        error = each.std() / DRAWS**0.5
        print(f"| {label} | {each.mean():.4f} ({error:.4f}) | {100 * share:.0f} % | {cells} |")


if __name__ == "__main__":
    main()
