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
# # Public rows beside private ones
#
# A few rows that anybody may see (volunteers, last year's sample) cost no budget. `METHOD:pretrained` starts from
# them. When are they worth it? Below on scikit-learn's digits, odd against even, with 8 and with 128 public rows.

# %%
# %matplotlib inline
# %config InlineBackend.print_figure_kwargs = {"bbox_inches": "tight", "dpi": 80}
import os
import tempfile
from pathlib import Path

from l2p.base import drawing
from l2p.compare.config import CompareConfig
from l2p.compare.figures import draw_lines
from l2p.compare.results import by_method
from l2p.compare.runner import compare

METHODS = ("universal", "universal:pretrained", "onlypub")
seeds = int(os.environ.get("L2P_NOTEBOOK_SEEDS", "10"))

# %% [markdown]
# `public_per_class` draws public rows from each split's training rows; methods that read none get them among their
# private rows. `onlypub` learns from the public rows alone: the line that privacy has to beat.

# %%
losses = {}
for number in (4, 64):
    config = CompareConfig(
        "digits:odd",
        Path(tempfile.mkdtemp()),
        methods=METHODS,
        epsilon=(0.1, 0.3, 1.0),
        delta=1e-5,
        seeds=seeds,
        public_per_class=number,
    )
    losses[2 * number] = by_method(compare(config), "test_loss")

# %%
figure, panels = drawing.panels(2)
drawing.title(figure, f"digits:odd, target digit, model logistic, delta 1e-05, {seeds} seeds")
for axis, (number, table) in zip(panels, losses.items(), strict=True):
    axis.set(xscale="log", xlabel="epsilon", ylabel="test loss")
    axis.set_title(f"{number} public rows", loc="left", fontsize="medium")
    drawing.name_lines(axis, draw_lines(axis, table, METHODS))
figure

# %% [markdown]
# Eight public rows change little at any epsilon. 128 carry the run where the budget is small: at epsilon .1 they alone
# do better than the private rows alone, and the warm start does better than both. At epsilon 1 private rows know more,
# and the warm start gains nothing. A private row that equals a public one counts as a null row, so the guarantee for
# the private table is the same with and without them: see docs/public_rows.md.
