"""Cost of an outer step of meta-training as the unroll grows: time, compile time and memory.

    python benchmarks/unroll.py [--out FOLDER]

The paper's LSTM pair (augmented Lagrangian, ctCDP) and `control`, differentiated through whole runs of T steps, and
through segments of 10 of a run of 200; 16 tasks of 1,024 rows and 24 features drawn from Adult. Memory is what XLA
reports for temporaries of the compiled outer step; arguments, such as the table, are not included. Times are medians
over repetitions after a warm-up; compile time is tracing, lowering and XLA's, from scratch.

Prints a table; with --out also writes unroll.csv and unroll.png. Needs the Adult data set (`L2P_DATA_DIR`, or a
download).
"""

import csv
import functools
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import tyro
from matplotlib.figure import Figure

from meta_train.config import Constrained, Plain
from meta_train.evaluation.resolved import resolve
from meta_train.training import gradients
from meta_train.training.starting_points import starting_point

PROTECTORS: dict[str, Plain | Constrained] = {
    "paper": Constrained.of("unroll", "paper", alternate=(1, 5), accountant="ctcdp"),
    "control": Plain.of("unroll", "control"),
}
LENGTHS, SEGMENT, REPETITIONS, NUM_FEATURES = (10, 25, 50, 100, 200), 10, 3, 24
UNROLLS: list[tuple[int, int | None]] = [*((length, None) for length in LENGTHS), (LENGTHS[-1], SEGMENT)]
QUANTITIES = {
    "seconds": "seconds per outer step",
    "compile_seconds": "compile time (s)",
    "temporary_mib": "temporaries (MiB)",
}


def measure(config: Plain | Constrained) -> dict[str, float]:
    """Measurements of one outer step."""
    start, learned = starting_point(config), {"learner": config.learner, "outer": config.outer}
    (resolved,) = resolve(config.tasks, config.simulated, start).values()
    state = gradients.init(start, config.learner.unroll)
    batch = gradients.draw_tasks(jnp.array(0), config.tasks, resolved, **learned)
    fixed = learned | {"floor": config.tasks.excess_floor, "budgets": resolved.budgets, "model": resolved.model}
    began = time.perf_counter()
    compiled = jax.jit(functools.partial(gradients.update, **fixed)).lower(state, jnp.array(0), batch).compile()
    compile_seconds = time.perf_counter() - began
    jax.block_until_ready(compiled(state, jnp.array(0), batch))
    seconds = []
    for repetition in range(REPETITIONS):
        began = time.perf_counter()
        jax.block_until_ready(compiled(state, jnp.array(1 + repetition), batch))
        seconds.append(time.perf_counter() - began)
    memory = compiled.memory_analysis()
    assert memory is not None
    return {
        "seconds": round(statistics.median(seconds), 4),
        "compile_seconds": round(compile_seconds, 2),
        "temporary_mib": round(memory.temp_size_in_bytes / 2**20, 2),
    }


def draw(rows: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    for axis, (quantity, label) in zip(figure.subplots(1, len(QUANTITIES)), QUANTITIES.items(), strict=True):
        for index, protector in enumerate(PROTECTORS):
            for unroll, style in (("whole", "o-"), (f"segments of {SEGMENT}", "s")):
                found = [row for row in rows if (row["protector"], row["unroll"]) == (protector, unroll)]
                points = [(row["steps"], row[quantity]) for row in found]
                axis.plot(*zip(*points, strict=True), style, color=f"C{index}", label=f"{protector}, {unroll}")
        axis.set(xlabel="steps of the run", ylabel=label)
        axis.set_ylim(bottom=0.0)
        axis.grid(alpha=0.3)
    figure.axes[0].legend(fontsize="x-small")
    return figure


def main(out: Path | None = None) -> None:
    """Measure every unroll.

    Args:
      out: folder for unroll.csv and unroll.png.
    """
    # Compile times are those of a first run.
    jax.config.update("jax_enable_compilation_cache", False)
    print(
        f"16 tasks of 1,024 rows x {NUM_FEATURES} features, median of {REPETITIONS}; jax {jax.__version__} on "
        f"{jax.default_backend()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    rows = []
    for protector, asked in PROTECTORS.items():
        for steps, segment in UNROLLS:
            config = asked.but(num_steps=steps, num_features=(NUM_FEATURES,), unroll=segment)
            unroll = "whole" if segment is None else f"segments of {segment}"
            row = {"protector": protector, "steps": steps, "unroll": unroll, **measure(config)}
            rows.append(row)
            print(
                f"{protector:8s} T={steps:<4d} {unroll:14s} {row['seconds']:8.3f} s/step  compile "
                f"{row['compile_seconds']:7.1f} s  {row['temporary_mib']:9.1f} MiB",
                flush=True,
            )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        with (out / "unroll.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        draw(rows).savefig(out / "unroll.png", dpi=120)


if __name__ == "__main__":
    tyro.cli(main)
