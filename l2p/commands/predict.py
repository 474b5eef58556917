"""`l2p predict`: predictions of a trained model for new rows."""

import csv
import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from l2p.base.errors import InputError, redacted, withheld
from l2p.base.progress import Progress
from l2p.tables.table_options import TableOptions

if TYPE_CHECKING:
    from l2p.release.prediction.predictor import Predicted, Predictor
    from l2p.tables.reading import RawSource

COLUMN = "prediction"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predict(TableOptions):
    """Predict for new rows, in the words or units of the target.

    Writes one line per row, in order; a row that cannot be read has an empty one.
    """

    model: Path
    """Folder that `l2p apply` wrote."""
    data: tuple[str, ...]
    """The table to predict for: .csv (or .tsv, .txt, .data), .arff or .parquet; several files are one table. Or a table
    in a database: duckdb://FILE?table=T or postgresql://HOST/DATABASE?table=T. It needs the columns that the model
    learned from; all others, the target among them, are left aside."""
    out: str
    """File to write: CSV with the column `prediction`. An older one is replaced. Or a new table in a database, with the
    column that --data names as &key=, or else the number of each line."""
    probabilities: bool = False
    """Also write the probability of each class, in a column that is named by the class."""
    costs: tuple[str, ...] = ()
    """What it costs to predict another class for a row of each class, as in --costs no=1 yes=12: a missed yes costs as
    much as 12 false alarms. The class that is expected to cost least is then predicted, not the likelier one."""
    rate: tuple[str, ...] = ()
    """The share of --data's rows that one of two classes is predicted for at most, those that score highest, as in
    --rate yes=0.1; their scores are read first, so the table is read twice."""

    def run(self) -> int:
        """Check all that can be checked without reading rows, then read, predict and write block by block."""
        from l2p.release.prediction.saved import load_model
        from l2p.tables.reading.address import Address, is_address

        predictor = load_model(self.model)
        header = [COLUMN, *self._classes(predictor)]
        if is_address(self.out):
            from l2p.release.prediction.to_table import write_table

            source, address = predictor.opened(list(self.data), self.format), Address.parse(self.out)
            predictor = self._deciding(predictor, source)
            unread = write_table(predictor, source, address, header, Progress(total=source.about_rows()))
        else:
            self._check_out()
            source = predictor.opened(list(self.data), self.format)
            unread = self._to_file(self._deciding(predictor, source), source, header)
        if unread:
            print(
                "Some rows have no prediction, and an empty cell: a cell is missing where nothing was declared to "
                "stand in for it, infinite, or no number (7,5 is one only with --decimal ,).",
                file=sys.stderr,
            )
        print(f"written to {redacted(self.out)}")
        return 0

    def _deciding(self, predictor: "Predictor", source: "RawSource") -> "Predictor":
        from l2p.release.prediction.decision import declared_in_words

        costs, rate = (
            declared_in_words(words, predictor.classes, name)
            for words, name in ((self.costs, "costs"), (self.rate, "rate"))
        )
        return predictor.deciding(source, costs=costs, rate=rate)

    def _to_file(self, predictor: "Predictor", source: "RawSource", header: Sequence[str]) -> bool:
        """Write a file; returns True if any prediction is missing."""
        from l2p.compare.results import part_of

        out = Path(self.out)
        part = part_of(out)
        text = _of_class if predictor.classes else _of_number
        predictions = _reported(predictor.blocks(source), Progress(total=source.about_rows()))
        try:
            with part.open("w", newline="", encoding="utf-8") as file:
                unread = _write(file, header, predictions, text)
            part.replace(out)
        except OSError as error:
            raise InputError(
                f"{self.out} cannot be written ({error.strerror}), and no predictions were kept; free disk space, "
                "or name another --out."
            ) from None
        finally:
            part.unlink(missing_ok=True)
        return unread

    def _classes(self, predictor: "Predictor") -> list[str]:
        """The names of the columns with probabilities."""
        from l2p.tables.schema.names import text_of

        if not self.probabilities:
            return []
        predictor.check_probabilities()
        names = [text_of(value) for value in predictor.classes]
        if COLUMN in names:
            raise InputError(
                f"a class of the model is called {COLUMN!r}, as the column of predictions is, so two columns would "
                "have one name; leave out --probabilities."
            )
        return names

    def _check_out(self) -> None:
        out = Path(self.out)
        if any(out.resolve() == Path(path).resolve() for path in self.data):
            raise InputError(f"{self.out} is the table to read, which predictions would replace; name another --out.")
        if out.is_dir():
            raise InputError(f"{self.out} is a folder, and predictions go to a file; name one in it.")


def _write(file: TextIO, header: Sequence[str], predictions: Iterator["Predicted"], text: Callable[[Any], str]) -> bool:
    """Write a line per row, predictions as `text` has them; returns True if any is empty."""
    writer, unread = csv.writer(file), False
    writer.writerow(header)
    for predicted in predictions:
        with withheld("writing predictions"):
            columns = [list(map(text, predicted.values.tolist()))]
            unread |= "" in columns[0]
            if len(header) > 1 and predicted.probabilities is not None:
                columns += [list(map(_of_number, column)) for column in predicted.probabilities.T.tolist()]
            rows = list(zip(*columns, strict=True))
        writer.writerows(rows)
    return unread


def _reported(predictions: Iterator["Predicted"], progress: Progress) -> Iterator["Predicted"]:
    for predicted in predictions:
        progress.read(len(predicted.values))
        yield predicted


def _of_class(value: Any) -> str:
    """A class as it was declared; empty for a row that cannot be read."""
    from l2p.tables.schema.names import text_of

    return "" if value is None else text_of(value)


def _of_number(value: float) -> str:
    """A number to single precision; empty for a row that cannot be read."""
    return "" if math.isnan(value) else f"{value:.9g}"
