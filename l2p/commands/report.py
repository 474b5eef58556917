"""`l2p report`: everything of a run on one page."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from l2p.base.errors import InputError


@dataclasses.dataclass(frozen=True)
class Report:
    """Put all of a run on one page: card, trace, model, encoding, forecast, ledger.

    It reads the folder of the run alone, and no private row."""

    run_folder: tyro.conf.Positional[Path]
    """Folder that `l2p apply` wrote."""
    ledger: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """Ledger of the run's data set: all of its runs are then listed."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """The page to write; default report.html in the run's folder. An older one is replaced."""
    open: tyro.conf.FlagCreatePairsOff[bool] = False
    """Open it in a browser."""

    def run(self) -> int:
        """Write it."""
        from l2p.privacy.ledger.ledger import Ledger
        from l2p.release import report

        ledger = None if self.ledger is None else Ledger.open(self.ledger)
        page, out = report.render(self.run_folder, ledger), self.out or self.run_folder / "report.html"
        try:
            out.write_text(page, encoding="utf-8")
        except OSError as error:
            raise InputError(f"{out} cannot be written ({error.strerror}); name another --out.") from None
        print(f"written to {out}")
        if self.open:
            import webbrowser

            if not webbrowser.open(out.resolve().as_uri()):
                print("No browser was found to open it in.")
        return 0
