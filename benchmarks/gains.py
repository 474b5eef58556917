"""Gains of networks over their control on held-out tasks, measured as training does but with other numbers of rows.

    L2P_TABLES=FOLDER python -m benchmarks.gains [--name universal-fold-1] [--rows 4096] [--rounds 8]

FOLDER holds OpenML's tables. A task has `rows` rows, whatever number of rows it stands for, and is scored on as many
others. Prints the mean gain in log excess loss, with a standard error, in each band of log(mu N), over all tasks and,
if there are several models, by model. About 20 minutes on one core with 4,096 rows.
"""

from typing import Any

import tyro

from l2p.checkpoints import checkpoint
from meta_train.config import on_card
from meta_train.training.methods import method_for
from meta_train.training.starting_points import starting_point


def main(name: str = "universal-fold-1", rows: int = 4096, rounds: int = 8) -> None:
    """Measure and print.

    Args:
      name: of a checkpoint with networks, or its path.
      rows: of each task.
      rounds: batches of tasks for each shape; training takes 16.
    """
    loaded = checkpoint.load(name)
    config = on_card(loaded.card).but(rows=rows, gain_rounds=rounds)
    gains = method_for(config, starting_point(config)).evaluator.gains(loaded.protector)
    edges = gains["log_signal"]
    print(f"{name}, {rows:,} rows, from log(mu N) {edges[0]:.1f} to {edges[-1]:.1f} in {len(edges) - 1} bands")
    for label, gain in {"all": gains, **gains.get("by_model", {})}.items():
        print(f"{label} ({gain['tasks']} tasks): {' '.join(_cells(gain))}")


def _cells(gains: dict[str, Any]) -> list[str]:
    pairs = zip(gains["mean"], gains["standard_error"], strict=True)
    return [f"{mean:+.3f} ({error:.3f})" for mean, error in pairs]


if __name__ == "__main__":
    tyro.cli(main)
