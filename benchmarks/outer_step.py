"""Time of an outer step of meta-training by kind of task: to draw tasks with their reference losses, and to update.

    L2P_TABLES=FOLDER python benchmarks/outer_step.py [RECIPE]

Prints a Markdown line for each kind of a recipe's tasks, as a training goes through them: medians over repetitions,
seconds of compilation, and the memory that XLA reports for temporaries of the update. The last line has the means over
all kinds, which add up to the time of a step.
"""

import functools
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from meta_train.compiling import quick_options
from meta_train.config import MetaConfig
from meta_train.evaluation.resolved import Resolved
from meta_train.evaluation.resolved import resolve as resolve_shapes
from meta_train.recipes import resolve
from meta_train.training import gradients
from meta_train.training.starting_points import starting_point

REPETITIONS = 3


def compiled(function: Callable, *arguments: Any) -> tuple[Callable, float]:
    """The function compiled for these arguments, and the seconds that took."""
    began = time.monotonic()
    made = jax.jit(function, compiler_options=quick_options()).lower(*arguments).compile()
    return made, time.monotonic() - began


def seconds(function: Callable, *arguments: Any) -> float:
    """Median seconds of a call."""
    found = []
    for _ in range(REPETITIONS):
        began = time.monotonic()
        jax.block_until_ready(function(*arguments))
        found.append(time.monotonic() - began)
    return statistics.median(found)


def measure(config: MetaConfig, resolved: Resolved, state: gradients.GradientState) -> tuple[float, ...]:
    """Seconds to draw, to update and to compile both, and MiB of temporaries."""
    step, fixed = jnp.array(0), {"learner": config.learner, "outer": config.outer}
    drawn = functools.partial(gradients.draw_tasks, tasks=config.tasks, resolved=resolved, **fixed)
    draw, first = compiled(drawn, step)
    batch = draw(step)
    fixed |= {"floor": config.tasks.excess_floor, "budgets": resolved.budgets, "model": resolved.model}
    update, second = compiled(functools.partial(gradients.update, **fixed), state, step, batch)
    memory = update.memory_analysis().temp_size_in_bytes / 2**20
    return seconds(draw, step), seconds(update, state, step, batch), first + second, memory


def main(recipe: str = "control-universal-narrow") -> None:
    config = resolve.resolve(recipe)
    start = starting_point(config)
    state = gradients.init(start)
    print(f"{recipe} on {platform.machine()}, {os.cpu_count()} cores\n")
    print("| model | features | draw s | update s | compile s | MiB |\n|---|---|---|---|---|---|")
    lines = []
    for shape, resolved in resolve_shapes(config.tasks, config.simulated, start).items():
        lines.append(measure(config, resolved, state))
        draw, update, first, memory = lines[-1]
        print(
            f"| {resolved.model} | {shape.num_features} | {draw:.2f} | {update:.2f} | {first:.0f} | {memory:.0f} |",
            flush=True,
        )
    draw, update, first, _ = (sum(values) for values in zip(*lines, strict=True))
    print(f"| mean | | {draw / len(lines):.2f} | {update / len(lines):.2f} | {first / len(lines):.0f} | |")


if __name__ == "__main__":
    main(*sys.argv[1:])
