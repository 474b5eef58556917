"""`l2p meta-train`: one meta-training from a config file."""

import sys
from pathlib import Path

from meta_train.config import MetaConfig
from meta_train.train import meta_train


def main(config: Path, out: Path, resume: bool = False) -> None:
    """Meta-train as `config` says, into `out`; prints the path of the checkpoint."""
    path = meta_train(MetaConfig.read(config), out, resume, progress=sys.stderr.isatty())
    print(path)


if __name__ == "__main__":
    import tyro

    tyro.cli(main)
