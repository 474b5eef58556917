"""The paper's experiments, whole: every comparison in experiments/, and curves per step of those named `*_steps`.

    python benchmarks/study.py [--out docs/results] [--only ipums_br adult] [--seeds 2]

Each has a folder in OUT as `l2p compare` makes it; a second call goes on where the first one stopped. Curves are
`steps.png`, and `steps.csv` with mean and standard deviation over seeds. The public data sets are read from
`L2P_DATA_DIR`, or downloaded.
"""

import argparse
import csv
import platform
import time
from pathlib import Path

import jax
import numpy as np

from l2p.compare import curves, main
from l2p.compare_config import CompareConfig, read_config
from l2p.errors import InputError
from l2p.figures import against_step

EXPERIMENTS = Path(__file__).with_name("experiments")
STEPS = "_steps"
CURVES = ("train_loss", "share_of_budget")


def read_experiments(only: list[str], out: Path, seeds: int | None) -> dict[str, CompareConfig]:
    """The comparisons by name, in order of their names; `InputError` if there is none of a name asked for."""
    names = only or sorted(path.stem for path in EXPERIMENTS.glob("*.json"))
    changes = {} if seeds is None else {"seeds": seeds}
    return {name: read_config(EXPERIMENTS / f"{name}.json", out=out / name, **changes) for name in names}


def draw_steps(config: CompareConfig) -> None:
    """steps.csv and steps.png of a comparison's first budget."""
    found = curves(config, config.epsilon[0])
    against_step(*found).savefig(config.out / "steps.png", dpi=150)
    with (config.out / "steps.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "step", *(f"{name}_{part}" for name in CURVES for part in ("mean", "std"))])
        for method in found[0]:
            columns = [part for values in found for part in (values[method].mean(0), values[method].std(0))]
            writer.writerows([method, t, *map(float, row)] for t, row in enumerate(np.transpose(columns), start=1))


def run(only: list[str], out: Path, seeds: int | None) -> None:
    """Run them one after another; what one of them lacks does not stop the others."""
    print(f"jax {jax.__version__} on {jax.default_backend()}, Python {platform.python_version()}, {platform.machine()}")
    for name, config in read_experiments(only, out, seeds).items():
        began = time.monotonic()
        try:
            main(config)
            if name.endswith(STEPS):
                draw_steps(config)
            said = f"{time.monotonic() - began:.0f} s"
        except InputError as error:
            said = f"not run: {error}"
        print(f"== {name}: {said}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="names of experiments; all without it")
    parser.add_argument("--out", type=Path, default=Path("runs/study"), help="where folders of results are made")
    parser.add_argument("--seeds", type=int, help="other than each experiment's own")
    given = parser.parse_args()
    run(given.only, given.out, given.seeds)
