"""`l2p meta-train`: make a protector."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class MetaTrain:
    """Meta-train a protector on public tasks, or resume a training from its folder.

    What to train comes from a recipe, from a checkpoint whose training is repeated, or from a file.
    """

    out: Path
    """Folder for the checkpoint and for the state to resume from."""
    recipe: str | None = None
    """Name of the shipped checkpoint whose recipe to follow, or `tuned` for a hand-designed method."""
    without: str | None = None
    """A public data set to leave out of the recipe, so that the protector may be scored on it."""
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
    resume: bool = False
    """States in a script that resuming is intended; a training found in the folder is resumed with or without it."""

    def run(self) -> int:
        """Train."""
        from meta_train.__main__ import main

        main(self.out, self.recipe, self.without, self.method, self.model, self.source, self.like, self.config)
        return 0
