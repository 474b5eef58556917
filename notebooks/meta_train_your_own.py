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
# # Meta-train your own, and look inside
#
# Meta-training differentiates whole private runs on public tasks, and moves a protector's parameters downhill.
# First a training that is small enough for a notebook: the constants of noisy gradient descent. Then a look at what
# trained protectors do: `paper-adult`, the pair of LSTMs of Hong et al. (AAAI 2021), and `universal`.

# %%
# %matplotlib inline
# %config InlineBackend.print_figure_kwargs = {"bbox_inches": "tight", "dpi": 80}
import json
import os
import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import l2p
from l2p.base import drawing
from l2p.base.drawing import COLOURS, End
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import load_rows, resolve_methods, title_of
from l2p.models import MODELS
from l2p.protectors.stepwise.schedulers import Observation
from l2p.run.simulate import simulate
from meta_train.config import Plain
from meta_train.training.loop import meta_train
from meta_train.training.watch import Watch

seeds = int(os.environ.get("L2P_NOTEBOOK_SEEDS", "10"))

# %% [markdown]
# ## A training
#
# Tasks are drawn from a public table; a task's score is the log of the excess loss at the end of a private run. On
# tables of your own, `l2p meta-train --data a.csv --schema a.json --minutes 10 --out mine/` does all of this for
# `universal`.

# %%
config = Plain.of(
    "mine",
    "noisygd",
    source="breast_cancer",
    num_features=(8,),
    steps=12 * seeds,
    tasks=8,
    rows=128,
    eval_every=2 * seeds,
    eval_tasks=32,
    learning_rate=0.03,
)
folder = Path(tempfile.mkdtemp())
progress = []  # what a terminal would show
checkpoint = meta_train(config, folder, Watch(say=progress.append))
log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]

# %%
figure, (axis,) = drawing.panels(1)
steps, scores = ([line[name] for line in log] for name in ("step", "score"))
held_out = {line["step"]: line["held_out_score"] for line in log if "held_out_score" in line}
axis.plot(steps, scores, color=COLOURS[0], alpha=0.5)
axis.plot(list(held_out), list(held_out.values()), color=COLOURS[1], marker="s")
axis.set(xlabel="outer step", ylabel="log excess loss")
ends = {"training tasks": (steps, scores, COLOURS[0])}
ends["held-out tasks"] = (list(held_out), list(held_out.values()), COLOURS[1])
drawing.name_lines(axis, {name: End(x[-1], y[-1], colour) for name, (x, y, colour) in ends.items()})
figure

# %% [markdown]
# The checkpoint is a protector like any other: `l2p.private_train(data, str(checkpoint), budget)`.

# %%
trained = l2p.load(str(checkpoint), l2p.Budget(1.0, 1e-5))
{
    "clip norm, middle of the range of budgets": float(jnp.exp(trained.scheduler.log_clip_norm[0])),
    "steps": trained.num_steps,
}

# %% [markdown]
# ## The schedule, against step and budget
#
# Noise multipliers of a run, relative to the one that spends the budget evenly, as plain noisy gradient descent does
# at every step. The pair's LSTM sees the gradients and could answer to them: it hardly does, as the bands over splits
# are no wider than their lines, and it stays within a few percent of even. The last step takes what is left of the
# budget. `universal` saves its budget for the last steps where there is much of it, and spends evenly where there
# is little.

# %%
config = CompareConfig(
    "digits:odd",
    folder,
    methods=("paper-adult", "universal"),
    epsilon=(0.3, 1.0, 3.0),
    delta=1e-5,
    seeds=seeds,
)
rows = load_rows(config)
figure, panels = drawing.panels(len(config.methods))
drawing.title(figure, f"{title_of(config, config.model)}: noise over the steps")
for axis, method in zip(panels, resolve_methods(config, rows), strict=True):
    ends = {}
    for colour, budget in zip(COLOURS, method.protectors, strict=False):
        prepared = method.prepare(budget, MODELS["logistic"], rows, "binary")
        record = simulate([prepared.protector], [prepared.setup], rows, range(seeds)).later[-1]
        noise = np.where(np.asarray(record.granted), np.asarray(record.noise_multiplier), np.nan)[:, 0]
        noise = noise[:, np.isfinite(noise).all(0)]
        noise = noise / np.sqrt(1 / np.square(1 / noise).mean(1, keepdims=True))
        step = 1 + np.arange(noise.shape[1])
        drawing.band(axis, step, noise.mean(0), noise.std(0), color=colour)
        ends[f"epsilon {budget.epsilon:g}"] = End(step[-1], noise.mean(0)[-1], colour)
    axis.set(xlabel="step", ylabel="noise, relative to an even one", ylim=(0.75, 1.3))
    axis.set_title(method.name, loc="left", fontsize="medium")
    drawing.name_lines(axis, ends)
figure

# %% [markdown]
# ## What the LSTM answers to signal and noise
#
# The projector sees each coordinate's noised gradients and their (public) noise. Here it is fed the same gradient
# ten times, at three levels of noise. Where the noise is larger than the gradient it hardly moves, and where it is
# much smaller every gradient gets a step of one length: that is what "learned to denoise" comes to, in one coordinate.

# %%
projector = l2p.load("paper-adult", l2p.Budget(1.0, 1e-5)).projector
gradients = jnp.asarray(np.concatenate([-np.geomspace(1, 1e-4, 60), np.geomspace(1e-4, 1, 60)]), jnp.float32)
figure, (axis,) = drawing.panels(1)
ends = {}
for colour, noise_std in zip(COLOURS, (1e-3, 1e-2, 1e-1), strict=False):
    state = projector.init(gradients, None)
    observation = Observation(gradients, jnp.float32(noise_std), jnp.linalg.norm(gradients))
    for step in range(10):
        update, state = projector(state, observation, gradients, jnp.float32(step / 50), None)
    axis.plot(gradients, update, color=colour)
    ends[f"noise {noise_std:g}"] = End(1.0, float(update[-1]), colour)
axis.set_xscale("symlog", linthresh=1e-3)
axis.set(xlabel="gradient of the coordinate", ylabel="update of the coordinate")
drawing.name_lines(axis, ends)
figure
