"""`l2p meta-train`: one meta-training, by tables, a recipe, a checkpoint's card or a config file, and its meta-test."""

import json
from collections.abc import Sequence
from pathlib import Path

from l2p.base.errors import InputError
from l2p.base.kept_programs import kept_programs
from l2p.checkpoints.defaults import UNIVERSAL
from l2p.tables.reading import Format
from meta_train.config import MetaConfig
from meta_train.config.one_source import OneSource
from meta_train.fine_tuning import fine_tune, train
from meta_train.fold_training import train_with_folds
from meta_train.recipes import files, resolve, tuned
from meta_train.recipes.remembered import resumed
from meta_train.training.watch import Watch


@kept_programs()
def main(
    out: Path,
    recipe: str | None = None,
    without: str | None = None,
    fold: int | None = None,
    folds: bool = False,
    method: str | None = None,
    model: str | None = None,
    source: str | None = None,
    like: str | None = None,
    config: Path | None = None,
    data: Sequence[Path] = (),
    schema: Sequence[Path] = (),
    start: str | None = None,
    minutes: float | None = None,
    show: bool = False,
    resume: bool = False,
    format: Format | None = None,
) -> None:
    """Meta-train into `out`, or resume the training there; prints the path of the checkpoint, or with `show` the fields
    of the config and trains nothing.

    With `folds` there are several trainings, in folders below `out`.

    Its card then has the results of the meta-test, if there is one for its model.
    """
    choices = {
        "--data TABLE": tuple(data) or None,
        "--recipe NAME": recipe,
        "--like CHECKPOINT": like,
        "--config FILE": config,
    }
    selected = [option for option, value in choices.items() if value is not None]
    if len(selected) > 1 or not (selected or resume):
        raise InputError(f"say what to train with one of {', '.join(choices)}; or go on with --resume.")
    if not data and (schema or start is not None):
        raise InputError("--schema and --start go with tables to train on; name these with --data.")
    if show and (data or folds):
        raise InputError("--show prints one training, whose fields are known before it; leave --data and --folds out.")
    _check_left_out(recipe, without, fold, folds, minutes)
    if recipe != tuned.RECIPE and (method or model or source):
        raise InputError(
            "--method, --model and --source say which hand-designed method is tuned, and on what; they need --recipe "
            f"{tuned.RECIPE}."
        )
    if folds:
        train_with_folds(recipe or "", out)
        return
    if data:
        print(fine_tune(data, schema, out, start or UNIVERSAL, minutes, format))
        return
    if not selected:
        chosen = resumed(out)
    elif config is not None:
        chosen = files.read(config)
    elif like is not None:
        chosen = resolve.like(like)
    elif recipe == tuned.RECIPE:
        chosen = _tuned(method, model, source, without)
    else:
        chosen = resolve.resolve(recipe or "", without, fold)
    print(json.dumps(chosen.flat(), indent=1) if show else train(chosen, out, Watch(minutes)))


def _check_left_out(
    recipe: str | None, without: str | None, fold: int | None, folds: bool, minutes: float | None
) -> None:
    """Refuse options on what is left out of a recipe that have none, or exclude each other."""
    if recipe is None and (without is not None or fold is not None or folds):
        raise InputError("--without, --fold and --folds leave sets out of a recipe; name the recipe with --recipe.")
    if (without is not None) + (fold is not None) + folds > 1:
        raise InputError("--without, --fold and --folds exclude each other; choose one of them.")
    if recipe == tuned.RECIPE and (fold is not None or folds):
        raise InputError(
            "a tuned method is made from one set, which --source names, so it has no folds; leave --fold and --folds "
            "out."
        )
    if folds and minutes is not None:
        raise InputError("--minutes bounds one training, and --folds makes several; leave one of the two out.")


def _tuned(method: str | None, model: str | None, source: str | None, without: str | None) -> MetaConfig:
    if method is None or without is not None:
        raise InputError(
            "a tuned method is named with --method, and is made from one set, which --source names; name the method, "
            "and leave --without out."
        )
    return tuned.config_for(method, model or OneSource.model, source or OneSource.source)


if __name__ == "__main__":
    import tyro

    tyro.cli(main)
