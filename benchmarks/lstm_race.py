"""The paper's pair of LSTMs in the filter's frame against today's networks: the same tasks, equally many steps, seeds.

    L2P_TABLES=FOLDER python -m benchmarks.lstm_race train OUT
    L2P_TABLES=FOLDER python -m benchmarks.lstm_race page OUT > benchmarks/pages/lstm_race.md

`train` makes `OUT/NAME-SEED` for each variant and seed; what is there is kept, so that several processes may share the
work by `--variants`, and a training that was stopped goes on. `page` prints what they gain on fresh held-out tasks, and
on tables that no task was drawn from.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from benchmarks.paired_ends import ends
from benchmarks.run_ends import parts
from l2p.checkpoints import checkpoint
from l2p.checkpoints.method_name import SUFFIX
from l2p.compare.results import Estimate
from l2p.models import find_model
from l2p.protectors import Stepwise
from l2p.tables.public import catalog
from meta_train.config import MetaConfig
from meta_train.recipes import resolve
from meta_train.recipes.own import MODEL_OF
from meta_train.training.loop import meta_train

#: Of each variant the recipe, its other fields, and what it is.
VARIANTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "constants": ("universal", {"protector": "control_line"}, "the control's constants alone, trained on"),
    "universal": ("universal", {}, "networks without memory: one for each coordinate, one for clipping norms"),
    "lstm-projector": ("lstm-projector", {}, "an LSTM for each coordinate, the network for clipping norms"),
    "lstm": ("lstm", {}, "the pair: an LSTM for each coordinate, one for shares of the budget and clipping norms"),
    "lstm-steps": ("lstm-steps", {}, "the pair, whose output is the step in place of a correction"),
    "lstm-segments": ("lstm-segments", {}, "the pair, trained in segments of ten steps (Eq. 4)"),
}
CONTROL, FOLD, SEEDS, STEPS = "control-universal-fold-3", 3, 3, 240
#: Of the recipes' shapes: 24 columns with four classes, 12 with numbers, 64 with two classes and hidden units, and 12
#: with two classes.
SHAPES = (0, 2, 3, 4)
TABLES = ("nursery", "credit.g", "tic-tac-toe", "pol", "cmc", "bank32nh")
LOG_SIGNALS = (0.7, 2.1, 3.5, 4.9, 6.3, 7.7)
INTRODUCTION = """\
# The paper's pair of LSTMs in the filter's frame

Hong et al. (2021) let a coordinate-wise LSTM make steps of noised gradients, and another one decide how much of the
budget each step spends. Here both are parts of the frame of `universal`: they read what its networks read, and correct
its filter and its schedule. Each variant starts as `{control}` and is trained, constants and all, on the
same tasks with equally many steps ({steps} on four of the recipe's shapes).

{variants}

**No network is ahead of constants that were trained as long on held-out tasks.** On tables that no task was drawn from
the pair is: its test loss is lower than theirs in twice as many cells as it is higher; with today's networks, or an
LSTM for the steps alone, in half as many again. That is far from what would make it the network of `universal` (better
in 60 % of cells, worse in 3 %). So little training does not settle it; whole
recipes, `lstm-steps` and `lstm-segments` have not been run.

`L2P_TABLES=FOLDER python -m benchmarks.lstm_race train OUT`, then `python -m benchmarks.lstm_race page OUT`
(x86_64, jax {version})."""
HELD_OUT = """
## On held-out tasks

Gain over that control in log excess loss on fresh tasks of the kinds that were trained on, paired by task and noise:
mean over seeds with its standard error, of all and by log(mu N). Seconds of a training are on a shared core, the first
seed's with compiling.
"""
ON_TABLES = """
## On tables of the fold

{tables}, at log(mu N) of {budgets}:
{cells} cells with 24 runs each, paired by rows and noise. A cell counts as better or worse beyond two standard errors,
for every seed on its own; the change is that of the mean logarithm of the test loss. Beside the control on the left,
beside `constants` of the same seed on the right. Nothing is chosen on these tables here, but they have been looked at
before ([learning.md](learning.md)).

| variant | better | level | worse | change | better | level | worse | change |
|---|---|---|---|---|---|---|---|---|"""


def config_of(variant: str, seed: int, steps: int = STEPS) -> MetaConfig:
    """The variant's recipe on the race's shapes."""
    recipe, changes, _ = VARIANTS[variant]
    config = resolve.resolve(recipe, fold=FOLD).of_shapes(SHAPES)
    return config.but(name=f"{variant}-{seed}", seed=seed, steps=steps, eval_every=steps // 4, **changes)


def path_of(out: Path, variant: str, seed: int) -> Path:
    """Where a training's checkpoint is or will be."""
    return out / f"{variant}-{seed}" / f"{variant}-{seed}{SUFFIX}"


def train(out: tyro.conf.Positional[Path], variants: tuple[str, ...] = tuple(VARIANTS), seeds: int = SEEDS) -> None:
    """Train what is not there yet.

    Args:
      out: folder of trainings.
      variants: those to train.
      seeds: trainings of each.
    """
    for seed, variant in itertools.product(range(seeds), variants):
        path = path_of(out, variant, seed)
        if not path.exists():
            print(meta_train(config_of(variant, seed), path.parent), flush=True)


def page(out: tyro.conf.Positional[Path]) -> None:
    """Print the page, of what has been trained.

    Args:
      out: folder of trainings.
    """
    paths = {variant: [path_of(out, variant, seed) for seed in range(SEEDS)] for variant in VARIANTS}
    trained = {variant: [path for path in made if path.exists()] for variant, made in paths.items()}
    trained = {variant: made for variant, made in trained.items() if made}
    told = "\n".join(f"- `{variant}`, {len(made)} seeds: {VARIANTS[variant][2]}" for variant, made in trained.items())
    print(INTRODUCTION.format(control=CONTROL, steps=STEPS, variants=told, version=jax.__version__))
    for line in itertools.chain(held_out(trained), on_tables(trained)):
        print(line, flush=True)


def held_out(trained: dict[str, list[Path]]) -> Iterator[str]:
    """Lines on gains on held-out tasks."""
    yield HELD_OUT
    for variant, paths in trained.items():
        cards = [checkpoint.read_checkpoint_card(path) for path in paths]
        gains = [card["held_out"]["gains"] for card in cards]
        edges, by_band = gains[0]["log_signal"], np.array([gain["mean"] for gain in gains])
        if variant == next(iter(trained)):
            bands = " | ".join(f"{low:.1f} to {high:.1f}" for low, high in itertools.pairwise(edges))
            yield f"| variant | seconds | all | {bands} |"
            yield "|---" * (len(edges) + 2) + "|"
        means = [Estimate.of(values) for values in (by_band.mean(1), *by_band.T)]
        cells = " | ".join(f"{mean.mean:+.3f} ({mean.error:.3f})" for mean in means)
        yield f"| `{variant}` | {np.mean([card['seconds'] for card in cards]):.0f} | {cells} |"


def on_tables(trained: dict[str, list[Path]]) -> Iterator[str]:
    """Lines on test losses."""
    start = np.log(ended(checkpoint.load(CONTROL).protector))
    runs = {
        variant: [np.log(ended(checkpoint.load(str(path)).protector)) for path in trained[variant]]
        for variant in trained
    }
    tables, budgets = ", ".join(TABLES), ", ".join(f"{signal:g}" for signal in LOG_SIGNALS)
    yield ON_TABLES.format(tables=tables, budgets=budgets, cells=len(TABLES) * len(LOG_SIGNALS))
    for variant, losses in runs.items():
        yield f"| `{variant}` | {shares(losses, [start] * len(losses))} | {shares(losses, runs['constants'])} |"


def ended(protector: Stepwise) -> np.ndarray:
    """Test losses f[cells, RUNS] at the end of runs on every table and budget."""
    by_table = []
    for table in TABLES:
        (private, test), kind = parts(f"openml:{table}"), catalog.kind_of(f"openml:{table}")
        model = find_model(MODEL_OF[kind], catalog.num_classes(f"openml:{table}") if kind == "multiclass" else None)
        losses, _ = ends(protector, private, test, jnp.array(LOG_SIGNALS), model=model, kind=kind)
        by_table.append(np.asarray(losses))
    return np.concatenate(by_table)


def shares(runs: list[np.ndarray], beside: list[np.ndarray]) -> str:
    """Cells of a table: shares of cells that are better, level and worse, and the mean change, of logarithms of losses
    f[cells, RUNS] of each seed."""
    differences = np.stack([losses - other for losses, other in zip(runs, beside, strict=False)])
    mean, error = differences.mean(-1), differences.std(-1, ddof=1) / differences.shape[-1] ** 0.5
    better, worse = (mean < -2.0 * error).mean(), (mean > 2.0 * error).mean()
    change = Estimate.of(mean.mean(1))
    return f"{better:.0%} | {1.0 - better - worse:.0%} | {worse:.0%} | {change.mean:+.1%} ({change.error:.1%})"


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"train": train, "page": page})
