"""`l2p leaderboard`: a page of standings from committed results."""

import dataclasses
from pathlib import Path

import tyro


@dataclasses.dataclass(frozen=True)
class Leaderboard:
    """Check the comparisons in a folder, and write a page of standings."""

    results: tyro.conf.Positional[Path]
    """A folder of folders, each with the results.csv and inputs.json of a comparison."""
    out: Path | None = None
    """The page to write; default the terminal."""

    def run(self) -> int:
        """Write it."""
        from l2p.compare.leaderboard import page

        text = page(self.results, self.out)
        if self.out is None:
            print(text, end="")
        else:
            self.out.write_text(text, encoding="utf-8")
        return 0
