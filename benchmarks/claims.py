"""Tests of two claims of Hong et al. (2021) on IPUMS-BR at epsilon 0.05, delta 1e-8, over 20 seeds.

    python -m benchmarks.claims [--out FOLDER]

"A decaying sigma is preferred": `noisygd:tuned` as tuned on Adult, except that the growth rate of its spending is set
to constants from rising to falling noise; and the noise that `paper-adult` has learned.

"The projector denoises": at every step of `paper-adult`, how close its update direction is to the gradient without
noise, compared with the noised gradient itself and with an exponential average of the noised gradients so far, which
needs no learning. This reads private rows without any guarantee: these are simulations.

Prints tables; with --out also writes claims.svg. Needs the IPUMS-BR data set (`L2P_DATA_DIR`, or a download).
"""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from matplotlib.figure import Figure

from l2p.base import drawing, struct
from l2p.base.drawing import COLOURS, End
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import load_rows, resolve_methods
from l2p.compare.methods import PreparedMethod
from l2p.compare.results import Estimate
from l2p.models import MODELS, Model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors import Centering, Stepwise
from l2p.protectors.conditioning import value
from l2p.run.protector import Protector
from l2p.run.simulate import mean_loss, score, simulate, split
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows

CONFIG = CompareConfig(
    "ipums_br", Path(), methods=("noisygd:tuned", "paper-adult"), epsilon=(0.05,), aux="adult", seeds=20
)
MODEL = MODELS["logistic"]
#: Spending grows by exp(rate) over the run, so the noise multiplier falls by exp(rate / 2).
RATES = (-6.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 6.0)
MOMENTUM = 0.9
#: Steps, from 1, over which directions are averaged in the tables.
SPANS = ((1, 1), (2, 5), (6, 10), (11, 20), (21, 50), (1, 50))


@struct.dataclass
class WatchedState:
    """State of `Watched`: params f32[p] before the last step, and the inner protector's state."""

    before: jax.Array
    inner: Any


@struct.dataclass
class Watched(Protector):
    """`inner` unchanged, except that `finish` returns the last step: f32[3, p] of params before, after, and the answer.

    Only for protectors that neither centre nor average: their params are those for raw rows.
    """

    inner: Stepwise
    num_steps: int = struct.field(pytree_node=False)

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, WatchedState]:
        params, state = self.inner.init(params, oracle)
        return params, WatchedState(params, state)

    def step(self, params: jax.Array, state: WatchedState, oracle: Oracle) -> tuple[jax.Array, WatchedState]:
        after, inner = self.inner.step(params, state.inner, oracle)
        return after, WatchedState(params, inner)

    def finish(self, params: jax.Array, state: WatchedState, setup: Setup) -> jax.Array:
        return jnp.stack([state.before, params, state.inner.observation.gradient])


def compare_rates(
    prepared: PreparedMethod, rows: Rows, seeds: Sequence[int]
) -> tuple[dict[float, list[np.ndarray]], np.ndarray]:
    """Train loss and test accuracy f[S] and noise multipliers f[T] by rate; and the learned rate, which is the last."""
    learned = prepared.protector.scheduler.rate
    rates = [*RATES, float(value(learned, prepared.setup.log_signal))]
    protectors = [
        prepared.protector.replace(
            scheduler=prepared.protector.scheduler.replace(rate=jnp.zeros_like(learned).at[0].set(rate))
        )
        for rate in rates
    ]
    outcome = simulate(protectors, [prepared.setup] * len(rates), rows, seeds)
    loss, accuracy = np.empty((2, len(seeds), len(rates)))
    for i, seed in enumerate(seeds):
        task = split(rows, seed)
        loss[i] = jax.vmap(mean_loss, (0, None, None))(outcome.params[i], MODEL, task.private)
        accuracy[i] = jax.vmap(score, (0, None, None, None))(outcome.params[i], MODEL, task.test, "binary")
    noise = np.asarray(outcome.later[0].noise_multiplier)[0]
    return {rate: [loss[:, j], accuracy[:, j], noise[j]] for j, rate in enumerate(rates)}, rates[-1]


def learned_noise(prepared: PreparedMethod, rows: Rows, seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Noise multipliers and clipping norms f[S, T] of a run's gradients, NaN once it has ended."""
    outcome = simulate([prepared.protector], [prepared.setup], rows, seeds)
    record = outcome.later[-1]
    granted = np.asarray(record.granted)
    multiplier, clip_norm = (np.where(granted, leaf, np.nan) for leaf in (record.noise_multiplier, record.clip_norm))
    return multiplier[:, 0], clip_norm[:, 0]


def directions(prepared: PreparedMethod, rows: Rows, seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """Vectors f[S, T, p] at every step, NaN once a run has ended.

    `noised`, the projector's input; `average`, the exponential average of those so far; `projector`, its update with
    the sign of a gradient; `clipped`, the gradient that was noised; `loss`, the gradient of the mean loss.
    """
    inner = prepared.protector
    assert inner.purchase(Centering) is None
    assert inner.averaging is None
    clip_norm = float(jnp.exp(inner.scheduler.log_clip_norm))

    def observe(answers: jax.Array, model: Model, rows: Rows) -> jax.Array:
        before, after, noised = answers
        identity = FeatureMap.identity(rows.x.shape[1])
        clipped = model.clipped_gradient_sum(before, rows, identity, jnp.float32(clip_norm)) / prepared.setup.num_rows
        return jnp.stack([noised, before - after, clipped, jax.grad(mean_loss)(before, model, rows)])

    outcome = simulate([Watched(inner, inner.num_steps)], [prepared.setup], rows, seeds, observe=observe)
    alive = np.arange(inner.num_steps) < outcome.steps
    observations = np.where(alive[:, :, None, None], outcome.observations[:, 0], np.nan).astype(np.float64)
    by_name = dict(zip(("noised", "projector", "clipped", "loss"), np.moveaxis(observations, 2, 0), strict=True))
    return by_name | {"average": exponential_average(by_name["noised"])}


def exponential_average(vectors: np.ndarray) -> np.ndarray:
    """Averages f[S, T, p] of f[S, T, p] over steps so far, without the bias of a start at zero.

    >>> exponential_average(np.ones((1, 3, 1))).round(6).ravel().tolist()
    [1.0, 1.0, 1.0]
    """
    mean, averages = np.zeros_like(vectors[:, 0]), []
    for step in range(vectors.shape[1]):
        mean = MOMENTUM * mean + (1 - MOMENTUM) * vectors[:, step]
        averages.append(mean / (1 - MOMENTUM ** (step + 1)))
    return np.stack(averages, 1)


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """f[S, T] between vectors f[S, T, p]."""
    return (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


def relative_error(estimate: np.ndarray, truth: np.ndarray, scaled: bool) -> np.ndarray:
    """f[S, T], length of the error of `estimate` over that of `truth`; `scaled` by the best constant for each run."""
    scale = (
        np.nansum(estimate * truth, (1, 2)) / np.nansum(np.square(estimate), (1, 2))
        if scaled
        else np.ones(len(estimate))
    )
    return np.linalg.norm(scale[:, None, None] * estimate - truth, axis=-1) / np.linalg.norm(truth, axis=-1)


def table_of_directions(gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of the second table, f[S, T] by label."""
    measured = {}
    for truth, label in (("clipped", "the clipped gradient"), ("loss", "the loss's gradient")):
        for name in ("noised", "average", "projector"):
            measured[f"cosine to {label}, {name}"] = cosine(gradients[name], gradients[truth])
    for name in ("noised", "average"):
        measured[f"relative error, {name}"] = relative_error(gradients[name], gradients["clipped"], scaled=False)
    for name in ("noised", "average", "projector"):
        measured[f"relative error, best scale, {name}"] = relative_error(
            gradients[name], gradients["clipped"], scaled=True
        )
    return measured


def draw(rates: dict[float, list[np.ndarray]], learned: float, measured: dict[str, np.ndarray]) -> Figure:
    figure, (loss_axis, cosine_axis) = drawing.panels(2)
    estimates = [Estimate.of(loss) for loss, *_ in rates.values()]
    order = np.argsort(list(rates))
    means, errors = (np.array([getattr(estimate, name) for estimate in estimates])[order] for name in ("mean", "error"))
    drawing.band(loss_axis, np.array(list(rates))[order], means, errors, color=COLOURS[0], marker="o", markersize=3.5)
    loss_axis.axvline(learned, **drawing.REFERENCE)
    loss_axis.annotate(
        "learned", (learned, 1.0), (3, -2), xycoords=("data", "axes fraction"), textcoords="offset points", va="top"
    )
    loss_axis.set(xlabel="rate: noise rises (< 0), stays, falls (> 0)", ylabel="train loss")
    ends = {}
    for name, colour in zip(("noised", "average", "projector"), COLOURS, strict=False):
        values = measured[f"cosine to the clipped gradient, {name}"]
        step, mean, std = 1 + np.arange(values.shape[1]), np.nanmean(values, 0), np.nanstd(values, 0)
        drawing.band(cosine_axis, step, mean, std, color=colour)
        ends[name] = End(step[-1], mean[-1], colour)
    cosine_axis.set(xlabel="step", ylabel="cosine to the clipped gradient")
    drawing.name_lines(cosine_axis, ends)
    return figure


def print_rates(rates: dict[float, list[np.ndarray]], learned: float) -> None:
    print("\nA decaying sigma is preferred? noisygd:tuned with other rates, all else as tuned")
    print(f"{'rate':>8} {'noise first':>12} {'last':>6} {'train loss':>16} {'less rate 0':>20} {'accuracy %':>14}")
    even = rates[0.0][0]
    for rate in sorted(rates):
        loss, accuracy, noise = rates[rate]
        mark = "*" if rate == learned else " "
        print(
            f"{rate:7.2f}{mark} {noise[0]:12.0f} {noise[-1]:6.0f} {with_error(loss, 4):>16} "
            f"{with_error(loss - even, 5):>20} {with_error(100 * accuracy, 2):>14}"
        )
    print("* the learned rate; noise is the noise multiplier; ± is one standard error over seeds")


def print_learned(name: str, multiplier: np.ndarray, clip_norm: np.ndarray) -> None:
    print("\nA learned schedule, means over seeds; noise on the sum is the noise multiplier times the clipping norm")
    steps = np.isfinite(multiplier).sum(1)
    print(f"{name}, {steps.min()} to {steps.max()} steps")
    for label, values in (("noise multiplier", multiplier), ("noise on the sum", multiplier * clip_norm)):
        first, middle, last = (values[np.arange(len(values)), at] for at in (0 * steps, steps // 2, steps - 1))
        print(
            f"  {label}: first {first.mean():.0f}, middle {middle.mean():.0f}, last {last.mean():.0f}; "
            f"last over first {with_error(last / first, 3)}"
        )


def print_directions(measured: dict[str, np.ndarray]) -> None:
    print(
        "\nThe projector denoises? paper-adult: means over seeds and steps; ± is one standard error over seeds, "
        "all steps"
    )
    print(" " * 44 + " ".join(f"{f'{first}-{last}':>7}" for first, last in SPANS))
    for label, values in measured.items():
        spans = [values[:, first - 1 : last] for first, last in SPANS]
        error = Estimate.of(np.nanmean(values, 1)).error
        print(f"{label:44s}" + " ".join(f"{np.nanmean(span):7.3f}" for span in spans) + f" ± {error:.3f}")
    for truth in ("the clipped gradient", "the loss's gradient"):
        mine, average, noised = (
            np.nanmean(measured[f"cosine to {truth}, {name}"], 1) for name in ("projector", "average", "noised")
        )
        gains = f"projector less noised {with_error(mine - noised, 3)}, less average {with_error(mine - average, 3)}"
        print(f"cosine to {truth}: {gains}")


def with_error(values: np.ndarray, digits: int) -> str:
    estimate = Estimate.of(values)
    return f"{estimate.mean:.{digits}f} ± {estimate.error:.{digits}f}"


def main(out: Path | None = None) -> None:
    """Test the two claims.

    Args:
      out: folder for the figure.
    """
    rows, seeds = load_rows(CONFIG), range(CONFIG.seeds)
    methods = resolve_methods(CONFIG, rows)
    prepared = {method.name: method.prepare(next(iter(method.protectors)), MODEL, rows) for method in methods}
    print(
        f"{CONFIG.data}, epsilon {CONFIG.epsilon[0]:g}, delta {CONFIG.delta:g}, {CONFIG.seeds} seeds; jax "
        f"{jax.__version__} on {jax.default_backend()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    rates, learned = compare_rates(prepared["noisygd:tuned"], rows, seeds)
    print_rates(rates, learned)
    print_learned("paper-adult", *learned_noise(prepared["paper-adult"], rows, seeds))
    measured = table_of_directions(directions(prepared["paper-adult"], rows, seeds))
    print_directions(measured)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        drawing.save(draw(rates, learned, measured), out / "claims.svg")


if __name__ == "__main__":
    tyro.cli(main)
