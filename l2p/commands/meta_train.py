"""`l2p meta-train`: make a protector."""

import dataclasses
import os
from pathlib import Path

from l2p.tables.table_options import TableOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetaTrain(TableOptions):
    """Meta-train a protector on public tasks, or resume a training from its folder.

    What to train comes from public tables of your own, from a recipe, from a checkpoint whose training is repeated, or
    from a file.
    """

    out: Path
    """Folder for the checkpoint and for the state to resume from."""
    data: tuple[Path, ...] = ()
    """Public tables of your own to fine-tune a shipped protector on."""
    schema: tuple[Path, ...] = ()
    """With `--data`: the schema of each table, in the same order; `l2p schema --from` writes one."""
    start: str | None = None
    """With `--data`: the shipped protector to fine-tune, universal by default; control-universal trains its networks
    anew, on top of its constants."""
    minutes: float | None = None
    """The time that everything may take, training and judging, from 3 on: what is trained depends on it; by default as
    long as all steps take."""
    recipe: str | None = None
    """Name of the shipped checkpoint whose recipe to follow, or `tuned` for a hand-designed method."""
    without: str | None = None
    """A public data set to leave out of the recipe, so that the protector may be scored on it."""
    fold: int | None = None
    """Number of a fold of the recipe: what it makes may be scored on the public sets that this fold leaves out."""
    folds: bool = False
    """Train the recipe and all of its folds, and before each what it starts from if that is in the same file, in
    folders below OUT; the same command goes on where it was interrupted."""
    method: str | None = None
    """With `--recipe tuned`: the hand-designed method whose constants are tuned."""
    model: str | None = None
    """With `--recipe tuned`: the model that it trains; logistic by default."""
    source: str | None = None
    """With `--recipe tuned`: the public data set that it is tuned on; adult by default."""
    like: str | None = None
    """A checkpoint, by name or file, whose training to repeat as its card describes it."""
    config: Path | None = None
    """A JSON or TOML file of what to train."""
    show: bool = False
    """Print every field of what a recipe, card or file says to train, as a file for `--config`, and train nothing."""
    resume: bool = False
    """Go on with the training in the folder, even if nothing else says what it is; one that is found there is resumed
    without this option, too."""

    def run(self) -> int:
        """Train."""
        # Else every program that comes from the cache brings a wrong alarm about the processor's features.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        from meta_train.__main__ import main

        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(MetaTrain)}
        layout = [field.name for field in dataclasses.fields(TableOptions)]
        main(**{name: value for name, value in options.items() if name not in layout}, format=self.format)
        return 0
