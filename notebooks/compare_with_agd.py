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
# # A learned private optimizer against AGD
#
# Three private optimizers train the same logistic regression within the same budgets:
#
# - `plain-adult`: ours, meta-trained on Adult;
# - `paper-adult`: the learned pair of Hong et al. (AAAI 2021), meta-trained on Adult;
# - `agd`: adaptive gradient descent (Lee and Kifer, KDD 2018), designed by hand.
#
# A seed fixes the split and the noise of every method, so that differences can be paired by seed. The noise comes from
# JAX keys: these are simulations on public data, not private releases.

# %%
# %matplotlib inline
import os
import tempfile
from pathlib import Path

from l2p.compare.config import CompareConfig
from l2p.compare.figures import against_epsilon, against_step
from l2p.compare.results import by_method
from l2p.compare.runner import compare, curves
from l2p.compare.summary import report

# %% [markdown]
# ## Data and budgets
#
# IPUMS-BR, the census sample of the papers, if it is in `L2P_DATA_DIR`; else odd against even digits, which come with
# scikit-learn. `L2P_NOTEBOOK_SEEDS` sets the number of runs per method and budget.

# %%
has_census = any(Path(os.environ.get("L2P_DATA_DIR", "nowhere")).glob("ipums_br.dat*"))
data, epsilons, delta = (
    ("ipums_br", (0.0125, 0.05, 0.2, 0.8), 1e-8) if has_census else ("digits:odd", (0.5, 1.0, 2.0, 4.0), 1e-5)
)

config = CompareConfig(
    data,
    Path(tempfile.mkdtemp()),
    methods=("plain-adult", "paper-adult", "agd", "nonprivate"),
    epsilon=epsilons,
    delta=delta,
    seeds=int(os.environ.get("L2P_NOTEBOOK_SEEDS", "10")),
)
config

# %% [markdown]
# ## Accuracy against epsilon
#
# One call runs methods x budgets x seeds. Every run is checked in float64 afterwards: `epsilon_certified` never
# exceeds its epsilon. The second table has differences from the first method, paired by seed.

# %%
rows = compare(config)
report(rows, config)
max(row["epsilon_certified"] / row["epsilon"] for row in rows if row["accountant"] != "none")

# %%
panels = {name.replace("_", " "): by_method(rows, name) for name in ("test_accuracy", "train_loss")}
against_epsilon(panels, dashed=("nonprivate",))

# %% [markdown]
# ## Loss and budget, step by step
#
# At one budget: the train loss after each step, and the share of the budget that the step spent. AGD takes hundreds
# of cheap steps and spends most of its budget on choosing step sizes. A learned optimizer takes fifty steps and has
# learned how to divide the budget among them.

# %%
against_step(*curves(config, epsilons[1]))
