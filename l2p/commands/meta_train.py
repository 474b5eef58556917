"""`l2p meta-train`: make a protector."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class MetaTrain:
    """Meta-train a protector on public tasks, or go on with the training that a folder holds.

    What to train is said by a recipe, by a checkpoint whose training is to be repeated, or by a file.
    """

    out: Path
    """Folder for the checkpoint, and for what a resumed training needs."""
    recipe: str | None = None
    """The recipe of a shipped checkpoint, by the checkpoint's name; or `tuned`, for a hand-designed method."""
    without: str | None = None
    """A public data set to leave out of the recipe, so that what comes out may be scored on it."""
    method: str | None = None
    """With `--recipe tuned`: the hand-designed method whose constants are tuned."""
    model: str | None = None
    """With `--recipe tuned`: the model that it trains; logistic by default."""
    source: str | None = None
    """With `--recipe tuned`: the public data set that it is tuned on; adult by default."""
    like: str | None = None
    """A checkpoint, by name or file: trains as its card says that it was."""
    config: Path | None = None
    """A JSON or TOML file of what to train."""
    resume: bool = False
    """Says in a script that going on is meant; a training found in the folder goes on with or without it."""

    def run(self) -> int:
        """Train."""
        from meta_train.__main__ import main

        main(self.out, self.recipe, self.without, self.method, self.model, self.source, self.like, self.config)
        return 0
