"""Training of a recipe with its folds and their starts, all that comparisons on public sets need of it."""

from collections.abc import Callable
from pathlib import Path

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.checkpoints.folds import MOST_FOLDS, fold_name, is_fold
from l2p.checkpoints.method_name import SUFFIX
from meta_train.config import MetaConfig
from meta_train.evaluation import meta_test
from meta_train.fine_tuning import train
from meta_train.recipes import resolve
from meta_train.training.watch import Watch


def train_with_folds(recipe: str, out: Path, say: Callable[[str], None] = print) -> list[Path]:
    """Train a recipe and each of its folds into `out/NAME`, and before each of them its warm start, if that is a recipe
    of the same file; what is there from an earlier call is kept, and a training that was interrupted goes on.

    Returns:
      Paths of the checkpoints, in the order in which they are trained.

    Raises:
      InputError: the recipe has no folds, or a folder holds something else.
    """
    configs = _configs(recipe)
    folders = {config.name: out / config.name for config in configs}
    paths = [folders[config.name] / f"{config.name}{SUFFIX}" for config in configs]
    # A recipe names its warm start, which has to be the checkpoint trained here and no other of that name.
    with checkpoint.looking_in(list(folders.values())):
        for number, (config, path) in enumerate(zip(configs, paths, strict=True), 1):
            where = f"{number} of {len(configs)}: {config.name}"
            if path.exists():
                _keep(config, path)
                say(f"{where} is in {path}")
                continue
            say(f"{where}, {_described(config, configs)}")
            try:
                say(str(train(config, path.parent, Watch(None))))
            except KeyboardInterrupt as interrupt:
                interrupt.__notes__ = [f"What was trained is kept in {out}; the same command goes on from there."]
                raise
    return paths


def _configs(recipe: str) -> list[MetaConfig]:
    """The configs to train, in order."""
    count = resolve.num_folds(recipe)
    if count == 0:
        raise InputError(
            f"the file of recipe {recipe!r} lists no [folds], so there are none to train; leave out --folds, or leave "
            "one set out with --without."
        )
    full = resolve.resolve(recipe)
    folds = [full, *(resolve.resolve(recipe, fold=number) for number in range(1, count + 1))]
    return list({config.name: config for fold in folds for config in _from_start(fold)}.values())


def _from_start(config: MetaConfig) -> list[MetaConfig]:
    """The recipes of the same file that one starts from, and itself."""
    start = config.start.warm_start
    if start is None or not resolve.is_in_same_file(config.name, start):
        return [config]
    return [*_from_start(resolve.resolve(start)), config]


def _keep(config: MetaConfig, path: Path) -> None:
    """Check that a checkpoint is of this recipe, and meta-test it if that was interrupted."""
    if resolve.like(str(path)) != config:
        raise InputError(f"{path} was trained with another config; choose another folder, or delete it.")
    if not (is_fold(config.name) or {"meta_test", "meta_tests"} & checkpoint.read_checkpoint_card(path).keys()):
        meta_test.update_where_possible(path)


def _described(config: MetaConfig, configs: list[MetaConfig]) -> str:
    """The start of a training, and the sources that a fold leaves out, in words."""
    start = f"from {config.start.warm_start or config.start.protector}"
    numbers = range(1, MOST_FOLDS + 1)
    full = next(
        (candidate for candidate in configs if config.name in [fold_name(candidate.name, k) for k in numbers]), config
    )
    out = [source for source in full.tasks.all_sources if source not in config.tasks.all_sources]
    return f"{start}, without {', '.join(out)}" if out else start
