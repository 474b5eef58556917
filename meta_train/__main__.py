"""`l2p meta-train`: one meta-training, by a recipe, a checkpoint's card or a config file, and its meta-test."""

import sys
from pathlib import Path

from l2p.errors import InputError
from meta_train.config import MetaConfig
from meta_train.evaluation import meta_test
from meta_train.recipes import files, resolve, tuned
from meta_train.training.loop import meta_train


def main(
    out: Path,
    recipe: str | None = None,
    without: str | None = None,
    method: str | None = None,
    model: str | None = None,
    source: str | None = None,
    like: str | None = None,
    config: Path | None = None,
) -> None:
    """Meta-train into `out`, or resume the training there; prints the path of the checkpoint.

    Its card then has the results of the meta-test, if there is one for its model; `l2p plan` reads them.
    """
    if [recipe, like, config].count(None) != 2:
        raise InputError("say what to train with one of --recipe NAME, --like CHECKPOINT and --config FILE.")
    if recipe is None and without is not None:
        raise InputError("--without leaves a set out of a recipe; name the recipe with --recipe.")
    if recipe != tuned.RECIPE and (method or model or source):
        raise InputError(
            "--method, --model and --source say which hand-designed method is tuned, and on what; they need --recipe "
            f"{tuned.RECIPE}."
        )
    if config is not None:
        chosen = files.read(config)
    elif like is not None:
        chosen = resolve.like(like)
    elif recipe == tuned.RECIPE:
        chosen = _tuned(method, model, source, without)
    else:
        chosen = resolve.resolve(recipe or "", without)
    path = meta_train(chosen, out, progress=sys.stderr.isatty())
    meta_test.update_where_possible(path)
    print(path)


def _tuned(method: str | None, model: str | None, source: str | None, without: str | None) -> MetaConfig:
    if method is None or without is not None:
        raise InputError("a tuned method is named with --method, and is made from one set, which --source names.")
    return tuned.config_for(method, model or MetaConfig.model, source or MetaConfig.source)


if __name__ == "__main__":
    import tyro

    tyro.cli(main)
