"""Shipped protectors on fresh held-out tasks of the family they were meta-trained on, task by task.

    python benchmarks/held_out_tasks.py

Prints mean scores (log excess loss, lower is better) per band of log(mu N), and how often each protector is far from
`control-plain-adult`: by more than a factor e in excess loss. Needs the Adult data set (`L2P_DATA_DIR`, or a download).
"""

import functools
import platform

import jax
import numpy as np

from l2p.checkpoints import checkpoint
from l2p.models import Logistic
from meta_train.config.bands import BANDS
from meta_train.config.one_source import OneSource
from meta_train.evaluation.budgets import ByMu
from meta_train.evaluation.scores import whole_run
from meta_train.tasks.sources import families

NAMES = (
    *(
        "control-plain-adult",
        "plain-adult",
        "control-universal-logistic-synthetic",
        "universal-logistic-synthetic",
        "paper-adult",
    ),
    *("noisygd-tuned-logistic-adult", "agd_gumbel-tuned-logistic-adult", "agd-tuned-logistic-adult"),
)
TASKS = OneSource(tasks=64)
SEED = 77


def main() -> None:
    _, held_out = families(TASKS.source)
    model, key = Logistic(), jax.random.key(SEED)
    run = jax.jit(jax.vmap(whole_run, (None, 0, 0, 0, 0)))
    loaded = {name: checkpoint.load(name) for name in NAMES}
    scores: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    for shape in TASKS.shapes:
        sample = functools.partial(held_out.sample, model=model, **TASKS.arguments(shape))
        batch = jax.jit(sample)(jax.random.fold_in(key, shape.num_features or 0))
        for name, saved in loaded.items():
            # Without selections all accountants are equal up to their unit; AGD needs one that prices selections.
            accountant = saved.card["accountant"] or ("zcdp" if name.startswith("agd") else "gdp")
            rows, setups = ByMu(accountant).simulate(batch, model, capped=True)
            keys = jax.random.split(key, TASKS.tasks)
            scores[name].append(np.asarray(run(saved.protector, rows, batch.best_loss, setups, keys)[0].value))
    # Tasks are in order of log(mu N), so a band is a contiguous slice.
    table = {name: np.stack(parts).reshape(len(parts), BANDS, -1) for name, parts in scores.items()}
    count = table[NAMES[0]].size
    print(f"{count} tasks; jax {jax.__version__} on {jax.default_backend()}, Python {platform.python_version()}")
    for name, values in table.items():
        bands = " ".join(f"{value:6.2f}" for value in values.mean((0, 2)))
        worse, better = ((sign * (values - table[NAMES[0]]) > 1.0).sum() for sign in (1, -1))
        print(f"{name:30s} mean {values.mean():6.3f}  by band {bands}  far worse than control {worse}, better {better}")


if __name__ == "__main__":
    main()
