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
# # What epsilon means on your table
#
# Three answers for one table size: what an attacker can learn of one row at most, what it costs in accuracy, and
# when a budget is too small to learn anything. Nothing here reads a row; put in your own numbers.

# %%
# %matplotlib inline
import numpy as np
from scipy import stats

import l2p
from l2p.base import drawing
from l2p.base.drawing import COLOURS
from l2p.checkpoints.forecast import plan
from l2p.compare.audit.membership import auc_ceiling
from l2p.privacy.cost.convert import gdp_mu

sizes, features, delta, majority = (1_000, 10_000, 100_000), 100, 1e-6, 0.8
epsilons = np.array([0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0])

# %% [markdown]
# ## What an attacker can learn of one row
#
# The attacker knows all other rows, the method and all that it released, and wants to know whether one row was
# there. Gaussian differential privacy says how well any test can do: at a rate of false alarms, at most this power.

# %%
figure, (curve, ceiling) = drawing.panels(2)
alarms = np.linspace(1e-4, 1 - 1e-4, 400)
for colour, epsilon in zip(COLOURS, (1.0, 3.0, 10.0), strict=False):
    power = stats.norm.cdf(stats.norm.ppf(alarms) + gdp_mu(epsilon, delta))
    curve.plot(alarms, power, color=colour)
    at = (alarms[100], power[100])
    curve.annotate(f"epsilon {epsilon:g}", at, (-4, 4), textcoords="offset points", color=colour, ha="right")
curve.plot([0, 1], [0, 1], **drawing.REFERENCE)
curve.set(xlabel="false alarms", ylabel="attacker's power at most")
budgets = np.geomspace(0.01, 10, 60)
ceiling.plot(budgets, [auc_ceiling(gdp_mu(epsilon, delta)) for epsilon in budgets], color=COLOURS[0])
ceiling.axhline(0.5, **drawing.REFERENCE)
ceiling.set(xscale="log", xlabel="epsilon", ylabel="AUC of any attack at most (dashes: a coin)")
figure

# %% [markdown]
# ## What it costs
#
# `l2p plan`'s forecast: the share of the gain over the best constant prediction that a private model keeps, with the
# range that held 8 of 10 runs on tables that nobody trained on.

# %%
shares = {
    size: np.array([plan(size, features, l2p.Budget(e, delta), majority=majority).forecasts[0].share for e in epsilons])
    for size in sizes
}
figure, panels = drawing.panels(len(sizes), width=4.2)
for axis, colour, (size, foretold) in zip(panels, COLOURS, shares.items(), strict=False):
    low, median, high = foretold.T
    axis.plot(epsilons, median, color=colour, marker="o", markersize=3.5)
    axis.fill_between(epsilons, low, high, color=colour, alpha=0.2, linewidth=0)
    axis.set(xscale="log", xlabel="epsilon", ylabel="share of the gain that is kept", ylim=(-0.3, 1.05))
    axis.set_title(f"{size:,} rows, {features} features", loc="left", fontsize="medium")
figure

# %% [markdown]
# ## When is it too little?
#
# The first of these budgets at which a run is foretold to keep half of the gain. What counts is the product of rows and
# budget: ten times the rows, about a tenth of the epsilon.

# %%
for size, foretold in shares.items():
    enough = next(
        (f"{epsilon:g}" for epsilon, share in zip(epsilons, foretold[:, 1], strict=True) if share >= 0.5), None
    )
    print(f"{size:>9,} rows: epsilon {enough or 'above 10'}")
