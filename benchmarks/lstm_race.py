"""The paper's pair of LSTMs in the filter's frame against today's networks, trained alike.

    L2P_TABLES=FOLDER python -m benchmarks.lstm_race train OUT
    L2P_TABLES=FOLDER python -m benchmarks.lstm_race page OUT > benchmarks/pages/lstm_race.md

`train` makes `OUT/NAME-SEED` for each variant and seed; what is there is kept, so that several processes may share the
work by `--variants`, and a training that was stopped goes on. `page` prints what they gain on fresh held-out tasks, and
on tables that no task was drawn from.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from benchmarks.paired_ends import ends
from benchmarks.run_ends import model_for, parts
from l2p.checkpoints import checkpoint
from l2p.checkpoints.folds import fold_name
from l2p.checkpoints.method_name import SUFFIX
from l2p.compare.results import Estimate
from l2p.protectors import Stepwise
from l2p.tables.public import catalog
from meta_train.config import MetaConfig
from meta_train.recipes import resolve
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
FOLD, SEEDS, STEPS = 3, 3, 240
CONTROL = fold_name("control-universal", FOLD)
#: Of the recipes' shapes: 24 columns with four classes, 12 with numbers, 64 with two classes and hidden units, and 12
#: with two classes.
SHAPES = (0, 2, 3, 4)
#: Of OpenML.
TABLES = ("nursery", "credit.g", "tic-tac-toe", "pol", "cmc", "bank32nh")
LOG_SIGNALS = (0.7, 2.1, 3.5, 4.9, 6.3, 7.7)
INTRODUCTION = """\
# The paper's pair of LSTMs in the filter's frame

Hong et al. (2021) let a coordinate-wise LSTM make steps of noised gradients, and another one decide how much of the
budget each step spends. Here both are parts of the frame of `universal`: they read what its networks read, and correct
its filter and its schedule. Each variant starts as `{control}` and is trained, constants and all, on the
same tasks with equally many steps ({steps} on four of the recipe's shapes).

{variants}

**On held-out tasks no network is ahead of constants that were trained as long.** On tables that no task was drawn from
the pair is: it has less test loss than they have in twice as many cells as it has more, where today's networks, or an
LSTM for the steps alone, have less in a quarter to a half more. That is far from what would make it the network of
`universal` (better in 60 % of cells, worse in 3 %). So little training does not settle it: full recipes, `lstm-steps`
and `lstm-segments` have not been run.

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


def config_of(variant: str, seed: int) -> MetaConfig:
    """The variant's recipe on the race's shapes."""
    recipe, changes, _ = VARIANTS[variant]
    config = resolve.resolve(recipe, fold=FOLD).of_shapes(SHAPES)
    return config.but(name=f"{variant}-{seed}", seed=seed, steps=STEPS, eval_every=STEPS // 4, **changes)


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
    trained: dict[str, dict[int, Path]] = {}
    for variant, seed in itertools.product(VARIANTS, range(SEEDS)):
        if (path := path_of(out, variant, seed)).exists():
            trained.setdefault(variant, {})[seed] = path
    items = "\n".join(
        f"- `{variant}`, {len(paths)} seeds: {VARIANTS[variant][2]}" for variant, paths in trained.items()
    )
    print(INTRODUCTION.format(control=CONTROL, steps=STEPS, variants=items, version=jax.__version__))
    for line in itertools.chain(held_out(trained), on_tables(trained)):
        print(line, flush=True)


def held_out(trained: dict[str, dict[int, Path]]) -> Iterator[str]:
    """Lines on gains on held-out tasks, of checkpoints by variant and seed."""
    yield HELD_OUT
    for variant, paths in trained.items():
        cards = [checkpoint.read_checkpoint_card(path) for path in paths.values()]
        gains = [card["held_out"]["gains"] for card in cards]
        edges, by_band = gains[0]["log_signal"], np.array([gain["mean"] for gain in gains])
        if variant == next(iter(trained)):
            bands = " | ".join(f"{low:.1f} to {high:.1f}" for low, high in itertools.pairwise(edges))
            yield f"| variant | seconds | all | {bands} |"
            yield "|---" * (len(edges) + 2) + "|"
        estimates = [Estimate.of(values) for values in (by_band.mean(1), *by_band.T)]
        cells = " | ".join(f"{gain.mean:+.3f} ({gain.error:.3f})" for gain in estimates)
        yield f"| `{variant}` | {np.mean([card['seconds'] for card in cards]):.0f} | {cells} |"


def on_tables(trained: dict[str, dict[int, Path]]) -> Iterator[str]:
    """Lines on test losses of checkpoints by variant and seed."""
    control = log_losses(CONTROL)
    losses = {
        variant: {seed: log_losses(str(path)) for seed, path in paths.items()} for variant, paths in trained.items()
    }
    tables, budgets = ", ".join(TABLES), ", ".join(f"{signal:g}" for signal in LOG_SIGNALS)
    yield ON_TABLES.format(tables=tables, budgets=budgets, cells=len(TABLES) * len(LOG_SIGNALS))
    for variant, by_seed in losses.items():
        constants = losses["constants"]
        beside_control = np.stack([ended - control for ended in by_seed.values()])
        beside_constants = np.stack([by_seed[seed] - constants[seed] for seed in by_seed.keys() & constants.keys()])
        yield f"| `{variant}` | {shares(beside_control)} | {shares(beside_constants)} |"


def log_losses(name: str) -> np.ndarray:
    """Logarithms f[cells, RUNS] of a checkpoint's test losses at the end of runs on every table and budget."""
    protector, by_table = cast(Stepwise, checkpoint.load(name).protector), []
    for table in (f"openml:{name}" for name in TABLES):
        (private, test), kind = parts(table), catalog.kind_of(table)
        losses, _ = ends(protector, private, test, jnp.array(LOG_SIGNALS), model=model_for(table), kind=kind)
        by_table.append(np.log(losses))
    return np.concatenate(by_table)


def shares(differences: np.ndarray) -> str:
    """Shares of cells that are better, level and worse, and the mean change, of differences f[seeds, cells, RUNS] of
    log losses."""
    mean, error = differences.mean(-1), differences.std(-1, ddof=1) / differences.shape[-1] ** 0.5
    better, worse = (mean < -2.0 * error).mean(), (mean > 2.0 * error).mean()
    change = Estimate.of(mean.mean(1))
    return f"{better:.0%} | {1.0 - better - worse:.0%} | {worse:.0%} | {change.mean:+.1%} ({change.error:.1%})"


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"train": train, "page": page})
