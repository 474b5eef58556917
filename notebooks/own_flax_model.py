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
# # Your own flax model
#
# Any loss of one row can be trained: `l2p.private_train` clips its gradient row by row, adds noise, keeps the
# ledger and writes the card. Here a small network in flax, on scikit-learn's digits.

# %%
import warnings

import jax
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import l2p

digits = load_digits()
images, labels = digits.data.astype(np.float32) / 16, digits.target
train, test = slice(0, 1400), slice(1400, None)


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(64, 32, rngs=rngs)
        self.out = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.tanh(self.hidden(x)))


graph, start = nnx.split(Network(nnx.Rngs(0)), nnx.Param)
jax.tree.map(np.shape, nnx.to_pure_dict(start))


# %% [markdown]
# A loss takes the params and one row, a pytree of that row's arrays. What it closes over is public.


# %%
def logits(params, row):
    return nnx.merge(graph, params)(row["image"])


def loss(params, row):
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, row), row["digit"])


def rows(part):
    return {"image": images[part], "digit": labels[part]}


# %% [markdown]
# ## Accuracy by budget
#
# With a `key` the noise is reproducible and the card says that it is no private release; leave it out for a
# release. Last, for comparison, the same network trained without privacy.

# %%
accuracies = {}
for epsilon in (1.0, 3.0, 10.0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is a simulation
        result = l2p.private_train(
            rows(train),
            budget=l2p.Budget(epsilon, 1e-5),
            model=loss,
            params=start,
            predict=logits,
            key=jax.random.key(0),
        )
    predicted = np.asarray(result.predict(rows(test))).argmax(1)
    accuracies[f"epsilon {epsilon:g}"] = round(float((predicted == labels[test]).mean()), 3)
network = MLPClassifier((32,), activation="tanh", max_iter=1000, random_state=0).fit(images[train], labels[train])
accuracies["without privacy"] = round(network.score(images[test], labels[test]), 3)
accuracies

# %% [markdown]
# ## The same guarantee as for the built-in models

# %%
print("\n\n".join(result.card.to_text().split("\n\n")[:4]))
