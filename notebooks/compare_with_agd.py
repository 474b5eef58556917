# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---
# %% [markdown]
# # Learned private optimizers against AGD
#
# AGD (Lee and Kifer, KDD 2018) is the hand-designed method that Hong et al. (AAAI 2021) made their pair of LSTMs to
# beat. Below: the paper's figures 3 and 2 from stored results on census rows, and what a scheduler does over the steps
# if all have one accountant, in a simulation that runs here.

# %%
# %matplotlib inline
# %config InlineBackend.print_figure_kwargs = {"bbox_inches": "tight", "dpi": 80}
import csv
import os
from pathlib import Path

import numpy as np

import l2p
from l2p.base import drawing
from l2p.base.drawing import COLOURS, End
from l2p.compare import relative, results
from l2p.compare.config import CompareConfig
from l2p.compare.figures import against_epsilon, against_step
from l2p.compare.inputs import title_of
from l2p.compare.runner import curves

stored = Path(l2p.__file__).parents[1] / "benchmarks" / "results"

# %% [markdown]
# ## Figure 3: accuracy and loss against epsilon
#
# IPUMS-BR, 38,000 rows, 20 splits; every learned method was made without these rows. `universal` ships as the
# default, `paper-adult` is the paper's pair of LSTMs trained on Adult, `agd` has its authors' settings, `:tuned`
# stands for settings tuned on public data.

# %%
rows = results.read(stored / "ipums_br" / "results.csv")
named = ("universal", "paper-adult", "agd", "agd:tuned", "agd_gumbel:tuned", "noisygd:tuned")
references = (relative.NONPRIVATE, relative.CONSTANT)
rows = [row for row in rows if row["method"] in (*named, *references)]
panels = {relative.LABEL: relative.excess_loss(rows), "test accuracy": results.by_method(rows, "test_accuracy")}
against_epsilon(panels, named, references, "ipums_br, target monthly income, model logistic, delta 1e-08, 20 seeds")

# %% [markdown]
# Each method runs under the tightest accountant that covers it, or the one that it was trained with:

# %%
{row["method"]: row["accountant"] for row in rows}

# %% [markdown]
# Why not one for all? AGD mixes Gaussian answers with noisy choices of a step size, which Gaussian DP does not add
# up, so Renyi DP has to; the pair was trained under truncated concentrated DP, whose price is part of what its
# scheduler has learned. Some of AGD's distance is therefore its accountant's. The last figure gives all
# methods one accountant, the one that covers them all.
#
# ## Figure 2: loss and budget, step by step
#
# Adult, Huber's support vector machine, epsilon .05, 100 repetitions. AGD takes hundreds of cheap steps and spends
# much of its budget on choosing step sizes. A learned optimizer takes fifty and has learned how to divide the
# budget among them.

# %%
with (stored / "adult_svm_steps" / "steps.csv").open(newline="") as stream:
    steps = list(csv.DictReader(stream))
figure, axes = drawing.panels(2)
drawing.title(figure, "adult, target yearly income, model svm, epsilon 0.05, delta 1e-08, 100 seeds")
labels = {"train_loss": "train loss", "share_of_budget": "share of the budget spent in the step"}
for axis, (column, label) in zip(axes, labels.items(), strict=True):
    axis.set(xscale="log", yscale="log", xlabel="step", ylabel=label)
    ends = {}
    for colour, method in zip(COLOURS, dict.fromkeys(row["method"] for row in steps), strict=False):
        columns = [
            [float(row[f"{column}_{part}"]) for row in steps if row["method"] == method] for part in ("mean", "std")
        ]
        mean, std = np.array(columns)[:, : int(np.max(np.flatnonzero(np.array(columns)[0] > 0))) + 1]
        mean = np.where(mean > 0, mean, np.nan)
        drawing.band(axis, 1 + np.arange(len(mean)), mean, std, color=colour)
        ends[method] = End(len(mean), mean[-1], colour)
    drawing.name_lines(axis, ends)
figure

# %% [markdown]
# ## What a scheduler does over the steps, under one accountant
#
# scikit-learn's digits, odd against even, at epsilon 1: the train loss after each step, and the share of the budget
# that the step spent. `L2P_NOTEBOOK_SEEDS` sets the number of splits. A seed fixes the split and the noise of every
# method. The noise comes from JAX keys: these are simulations on public data, not private releases.
# `l2p compare --data digits:odd --accountant rdp` makes tables and the figure of such a comparison.

# %%
config = CompareConfig(
    "digits:odd",
    Path("unused"),
    methods=("universal", "paper-adult", "agd:tuned"),
    epsilon=(1.0,),
    delta=1e-5,
    seeds=int(os.environ.get("L2P_NOTEBOOK_SEEDS", "10")),
    accountant="rdp",
)
against_step(*curves(config, 1.0), title=f"{title_of(config, config.model)}, epsilon 1")
