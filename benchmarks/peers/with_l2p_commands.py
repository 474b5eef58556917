"""l2p on the command line: runs with_l2p_commands.sh, which is what a user types, and hands on what it predicts."""
# requires: -e {checkout} pandas==3.1.1

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import harness
import numpy as np
import pandas as pd


def train(private, public, test, epsilon, seed) -> np.ndarray:
    script, here = Path(__file__).with_suffix(".sh"), Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        tables = [str(Path(path).resolve()) for path in (private, public, test)]
        path = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
        command = ["bash", str(script), *tables, str(epsilon)]
        subprocess.run(command, cwd=folder, env=path, check=True, stdout=subprocess.DEVNULL)
        return pd.read_csv(Path(folder) / "predictions.csv")[">50K"].to_numpy()


if __name__ == "__main__":
    harness.main(train)
