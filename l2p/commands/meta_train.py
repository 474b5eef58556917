"""`l2p meta-train`: make a protector."""

import dataclasses
import os
from pathlib import Path

from tyro.conf import OmitArgPrefixes

from l2p.tables.table_options import TableOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTables:
    """Fine-tune a shipped protector on public tables of your own."""

    data: tuple[Path, ...] = ()
    """Public tables of your own to fine-tune a shipped protector on."""
    schema: tuple[Path, ...] = ()
    """With `--data`: the schema of each table, in the same order; `l2p schema --from` writes one."""
    start: str | None = None
    """With `--data`: the shipped protector to fine-tune, universal by default; control-universal trains its networks
    anew, on top of its constants."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FromRecipe:
    """Train as a shipped checkpoint was, or leave sets out of what it was trained on."""

    recipe: str | None = None
    """Name of the shipped checkpoint whose recipe to follow, or `tuned` for a hand-designed method."""
    without: str | None = None
    """A public data set to leave out of the recipe, so that the protector may be scored on it."""
    fold: int | None = None
    """Number of a fold of the recipe: what it makes may be scored on the public sets that this fold leaves out."""
    folds: bool = False
    """Train the recipe and all of its folds, and before each what it starts from if that is in the same file, in
    folders below OUT; the same command goes on where it was interrupted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedMethod:
    """Tune the constants of a hand-designed method, with `--recipe tuned`."""

    method: str | None = None
    """With `--recipe tuned`: the hand-designed method whose constants are tuned."""
    model: str | None = None
    """With `--recipe tuned`: the model that it trains; logistic by default."""
    source: str | None = None
    """With `--recipe tuned`: the public data set that it is tuned on; adult by default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CardOrFile:
    """Train what a checkpoint's card or a file says."""

    like: str | None = None
    """A checkpoint, by name or file, whose training to repeat as its card describes it."""
    config: Path | None = None
    """A JSON or TOML file of what to train."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetaTrain:
    """Meta-train a protector on public tasks, or resume a training from its folder.

    What to train comes from public tables of your own, from a recipe, from a checkpoint whose training is repeated, or
    from a file.
    """

    out: Path
    """Folder for the checkpoint and for the state to resume from."""
    minutes: float | None = None
    """The time that everything may take, training and judging, from 3 on: what is trained depends on it; by default as
    long as all steps take."""
    show: bool = False
    """Print every field of what a recipe, card or file says to train, as a file for `--config`, and train nothing."""
    resume: bool = False
    """Go on with the training in the folder, even if nothing else says what it is; one that is found there is resumed
    without this option, too."""
    own_tables: OmitArgPrefixes[OwnTables] = OwnTables()
    table_layout: OmitArgPrefixes[TableOptions] = dataclasses.field(default_factory=TableOptions)
    recipe: OmitArgPrefixes[FromRecipe] = FromRecipe()
    tuned_method: OmitArgPrefixes[TunedMethod] = TunedMethod()
    card_or_file: OmitArgPrefixes[CardOrFile] = CardOrFile()

    def run(self) -> int:
        """Train."""
        # Else every program that comes from the cache brings a wrong alarm about the processor's features.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        from meta_train.__main__ import main

        groups = (self.own_tables, self.recipe, self.tuned_method, self.card_or_file)
        options = {name: value for group in groups for name, value in dataclasses.asdict(group).items()}
        common = {"minutes": self.minutes, "show": self.show, "resume": self.resume}
        main(self.out, **options, **common, format=self.table_layout.format)
        return 0
