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
# # Audit a protector
#
# A theorem promises that no attack does better than the budget allows. Here is an attack, with the ceiling beside
# it: many runs on a table with a row and on the same table without it, told apart by what was released. It bounds
# epsilon from below, for this row and this attack; the card's epsilon bounds it from above, for all of them. An
# audit that crosses the card has found a fault; one that stays below has proved nothing.

# %%
# %matplotlib inline
import os

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import l2p
from l2p.base import drawing
from l2p.base.drawing import COLOURS
from l2p.compare.audit.membership import auc_ceiling, threshold_attack
from l2p.models import MODELS
from l2p.oracle.setup import Setup
from l2p.privacy import Filter
from l2p.privacy.cost.convert import gdp_mu
from l2p.run.run import run

BUDGET, N, D = l2p.Budget(2.0, 1e-5), 40, 20
runs = 100 * int(os.environ.get("L2P_NOTEBOOK_SEEDS", "10"))
protector = l2p.load("noisygd", BUDGET).replace(num_steps=10)

# %% [markdown]
# The row that an attacker would choose: features on a direction that no other row has, so that its part of the
# answer stands alone. Under `zero_out`, "without it" means that its mask is zero.

# %%
x = np.random.default_rng(0).uniform(size=(N, D)).astype(np.float32)
x[:, -1] = 0.0
x[0] = np.eye(D, dtype=np.float32)[-1]
tables = {
    with_row: l2p.Rows(jnp.asarray(x), jnp.asarray(np.arange(N) % 2, jnp.float32), jnp.ones(N).at[0].set(with_row))
    for with_row in (1.0, 0.0)
}
setup = Setup.create(MODELS["logistic"], BUDGET.adjacency, Filter("gdp", BUDGET).price_list(), N)


def released(rows, key):
    params, *_ = run(protector, jnp.zeros(D + 1), rows, setup, key)
    return params[D - 1]  # the weight of the direction that this row alone has


many = jax.jit(jax.vmap(released, (None, 0)))
weights = {
    with_row: np.asarray(many(rows, jax.random.split(jax.random.key(int(with_row)), runs)))
    for with_row, rows in tables.items()
}
attack = threshold_attack(weights[1.0], weights[0.0])
attack, auc_ceiling(gdp_mu(BUDGET.epsilon, BUDGET.delta))

# %% [markdown]
# The mu that explains this AUC, and the one that was paid for. In brackets, two standard
# errors less and more.

# %%
by_attack = {shift: np.sqrt(2) * stats.norm.ppf(attack.auc + shift * attack.standard_error) for shift in (-2, 0, 2)}
paid = gdp_mu(BUDGET.epsilon, BUDGET.delta)
print(f"mu by the attack {by_attack[0]:.2f} ({by_attack[-2]:.2f} to {by_attack[2]:.2f}), paid for {paid:.2f}")
assert by_attack[-2] <= paid

# %%
figure, (axis,) = drawing.panels(1)
for colour, (with_row, values) in zip(COLOURS, weights.items(), strict=False):
    axis.hist(values, bins=40, histtype="step", color=colour, density=True)
    axis.annotate(
        "with the row" if with_row else "without it",
        (values.mean(), 0),
        (0, 8 + 14 * with_row),
        textcoords="offset points",
        color=colour,
        ha="center",
    )
axis.set(xlabel="released weight", ylabel="density over runs")
figure

# %% [markdown]
# ## An attack on a real use
#
# Few attackers choose the row. The usual test is milder: are the losses of training rows smaller than those of rows
# that the run did not read? Labels below are coins, so that a model can only memorise.

# %%
rng = np.random.default_rng(1)
labels = rng.integers(0, 2, (2, N)).astype(np.float32)
inputs = rng.uniform(size=(2, N, D)).astype(np.float32)
members, others = (l2p.Rows(*(jnp.asarray(part) for part in (inputs[i], labels[i], np.ones(N)))) for i in (0, 1))
model = MODELS["logistic"]


def row_losses(key):
    params, *_ = run(protector, jnp.zeros(D + 1), members, setup, key)
    return [jax.vmap(model.loss, (None, 0, 0))(params, rows.x, rows.y) for rows in (members, others)]


inside, outside = (np.ravel(values) for values in jax.vmap(row_losses)(jax.random.split(jax.random.key(2), 50)))
threshold_attack(inside, outside)
