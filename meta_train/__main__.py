"""`l2p meta-train`: one meta-training from a config file, and the meta-test of what it made."""

import sys
from pathlib import Path

from meta_train.config import MetaConfig
from meta_train.evaluation import meta_test
from meta_train.training.loop import meta_train


def main(config: Path, out: Path) -> None:
    """Meta-train as `config` says into `out`, or go on with what is there; prints the path of the checkpoint.

    Its card then holds what it achieved in the meta-test, if there is one for its model; `l2p plan` reads it.
    """
    path = meta_train(MetaConfig.read(config), out, progress=sys.stderr.isatty())
    meta_test.update_where_possible(path)
    print(path)


if __name__ == "__main__":
    import tyro

    tyro.cli(main)
