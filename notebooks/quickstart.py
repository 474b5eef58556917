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
# # Quickstart: from a raw table to predictions, a card and a ledger
#
# A table, its declaration from public knowledge, one budget. Out come a model, its predictions and a privacy card.
# The table here is scikit-learn's breast cancer set, written as somebody would get it: a CSV file with words for
# the target.

# %%
import tempfile
from pathlib import Path

from sklearn.datasets import load_breast_cancer

import l2p
from l2p.estimators import PrivateClassifier
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.tables.schema import Number, Schema, Target

folder = Path(tempfile.mkdtemp())
frame = load_breast_cancer(as_frame=True).frame.rename(columns=lambda name: name.replace(" ", "_"))
frame = frame[["mean_radius", "mean_texture", "mean_concavity", "worst_area", "target"]]
frame["target"] = frame["target"].map({0: "malignant", 1: "benign"})
private, new = frame[:450].astype(str), frame[450:].astype(str)
private.head()

# %% [markdown]
# ## Declare it
#
# Bounds come from public knowledge, never from the rows: a bound that is read off private rows is a release without
# a price. `l2p schema` writes such a file as a template, or from a public sample.

# %%
schema = Schema(
    {
        "mean_radius": Number(5, 30),
        "mean_texture": Number(5, 40),
        "mean_concavity": Number(0, 0.5),
        "worst_area": Number(150, 4500),
    },
    Target("target", classes=("malignant", "benign")),
)
schema.write(folder / "schema.json")

# %% [markdown]
# ## What does a budget buy?
#
# `plan` reads no row. It foretells the share of the gain over the best constant that training without privacy would
# have.

# %%
from l2p.checkpoints.forecast import plan

{epsilon: plan(450, 4, l2p.Budget(epsilon, 1e-5), majority=0.65).forecasts[0].share for epsilon in (0.5, 1.0, 2.0)}

# %% [markdown]
# ## Train, within a ledger
#
# The ledger adds up what all runs on this table spend, and refuses a run that no longer fits.

# %%
total = l2p.Budget(2.5, 1e-5)
ledger = Ledger.create(folder / "patients.ledger", "patients", total, "gdp", limit_of("gdp", total))
model = PrivateClassifier(epsilon=2.0, delta=1e-5, schema=folder / "schema.json", ledger=ledger)
model.fit(private.drop(columns="target"), private["target"])
accuracy = model.score(new.drop(columns="target"), new["target"])
f"accuracy on {len(new)} new rows: {accuracy:.2f}"

# %%
model.predict_proba(new.drop(columns="target")[:3]).round(2)

# %% [markdown]
# ## The card
#
# Everything on it may be published, and `l2p account --card card.json --verify` computes its figures again. The
# line `Learned` is strict: it asks whether the noised answers alone, without test rows, tell this run from noise.

# %%
print(model.card_.to_text()[:1500])

# %% [markdown]
# ## A second run that does not fit is refused before it reads a row

# %%
try:
    PrivateClassifier(epsilon=2.0, delta=1e-5, schema=folder / "schema.json", ledger=ledger).fit(
        private.drop(columns="target"), private["target"]
    )
except l2p.InputError as refusal:
    print(str(refusal).replace(f"{folder}/", ""))  # whose name is another in every run
