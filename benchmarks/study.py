"""All of the paper's experiments: every comparison in experiments/, and curves per step of those named `*_steps`.

    python -m benchmarks.study [--out benchmarks/results] [--only ipums_br adult] [--seeds 2] [--jobs 2]

Each has a folder in OUT as `l2p compare` makes it, where log.txt holds its output; a second call resumes where the
first one stopped. Curves are `steps.svg`, and `steps.csv` with mean and standard deviation over seeds. The public data
sets are read from `L2P_DATA_DIR`, or downloaded.
"""

import argparse
import csv
import os
import platform
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context
from pathlib import Path

import jax
import numpy as np

from l2p.base import drawing
from l2p.base.errors import InputError
from l2p.compare.config import CompareConfig, read_config
from l2p.compare.figures import against_step
from l2p.compare.inputs import title_of
from l2p.compare.runner import curves, main

EXPERIMENTS = Path(__file__).with_name("experiments")
STEPS = "_steps"
CURVES = ("train_loss", "share_of_budget")


def read_experiments(only: list[str], out: Path, seeds: int | None) -> dict[str, CompareConfig]:
    """The comparisons by name, sorted; `InputError` if a requested name does not exist."""
    names = only or sorted(path.stem for path in EXPERIMENTS.glob("*.json"))
    changes = {} if seeds is None else {"seeds": seeds}
    return {name: read_config(EXPERIMENTS / f"{name}.json", out=out / name, **changes) for name in names}


def draw_steps(config: CompareConfig) -> None:
    """steps.csv and, last, steps.svg of a comparison's first budget."""
    by_rival = curves(config, config.epsilon[0])
    with (config.out / "steps.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "step", *(f"{name}_{part}" for name in CURVES for part in ("mean", "std"))])
        for method in by_rival[0]:
            columns = [part for values in by_rival for part in (values[method].mean(0), values[method].std(0))]
            writer.writerows([method, t, *map(float, row)] for t, row in enumerate(np.transpose(columns), start=1))
    drawing.save(against_step(*by_rival, title=title_of(config, config.model)), config.out / "steps.svg")


def longest_first(name: str, config: CompareConfig) -> tuple[bool, int]:
    """Sort key that puts experiments with curves or many runs first, so that all processes end at about the same
    time."""
    return not name.endswith(STEPS), -len(config.methods) * len(config.epsilon) * config.seeds


def run_one(name: str, config: CompareConfig) -> tuple[bool, str]:
    """One experiment, in a separate process: whether it ran, and a line on the outcome."""
    began = time.monotonic()
    config.out.mkdir(parents=True, exist_ok=True)
    with (config.out / "log.txt").open("a") as log, redirect_stdout(log), redirect_stderr(log):
        print(f"jax {jax.__version__} on {jax.default_backend()}, Python {platform.python_version()}")
        try:
            main(config)
            if name.endswith(STEPS) and not (config.out / "steps.svg").is_file():
                draw_steps(config)
        except InputError as error:
            return False, f"== {name}: not run: {error}"
        except Exception as error:
            traceback.print_exc()
            return False, f"== {name}: failed: {error!r}; {config.out / 'log.txt'} says where"
    return True, f"== {name}: {time.monotonic() - began:.0f} s"


def run(only: list[str], out: Path, seeds: int | None, jobs: int) -> bool:
    """Run the experiments, `jobs` at a time; whether all of them ran. A failure does not stop the rest."""
    began = time.monotonic()
    experiments = read_experiments(only, out, seeds)
    if jobs > 1:
        # One thread each: threads of several processes on the same cores mostly wait for each other.
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ |= {"XLA_FLAGS": f"{flags} --xla_cpu_multi_thread_eigen=false".strip(), "NPROC": "1"}
    ran = True
    # Fresh interpreters: a process that has started JAX must not be forked.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        order = sorted(experiments.items(), key=lambda item: longest_first(*item))
        for future in as_completed([pool.submit(run_one, name, config) for name, config in order]):
            whether, message = future.result()
            print(message, flush=True)
            ran &= whether
    print(f"== all: {time.monotonic() - began:.0f} s, {jobs} at a time", flush=True)
    return ran


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="names of experiments; all without it")
    parser.add_argument("--out", type=Path, default=Path("runs/study"), help="where folders of results are made")
    parser.add_argument("--seeds", type=int, help="other than each experiment's own")
    parser.add_argument("--jobs", type=int, default=1, help="experiments run at a time, a process each")
    options = parser.parse_args()
    sys.exit(not run(options.only, options.out, options.seeds, options.jobs))
