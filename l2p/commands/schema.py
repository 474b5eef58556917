"""`l2p schema`: declare a table, so that its rows can be encoded without looking at them."""

import dataclasses
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from l2p.base.errors import InputError
from l2p.tables.table_options import TableOptions

if TYPE_CHECKING:
    from l2p.tables.reading import RawSource
    from l2p.tables.schema import Schema
    from l2p.tables.schema.curve_choice import Allowance
    from l2p.tables.schema.template import Sampled

_WIDTH = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class MakeSchema(TableOptions):
    """Write a schema for `l2p apply --schema`: a template, or all from public data.

    Only the header of DATA is declared: names, and types where it has them.

    With --from its rows are compared with the sample's, which must be others.
    """

    data: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[DATA]")] = None
    """The private table: a file, or duckdb://FILE?table=T or postgresql://HOST/DATABASE?table=T.
    Leave it out where only --from is given because the table to train on is public, too."""
    target: str
    """The column to predict."""
    out: Path
    """File to write to; must be new."""
    public: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """A public sample of such a table.
    Types, bounds, categories, the filling of missing cells and classes are read from it."""
    target_type: Literal["number", "classes"] | None = None
    """With --from: whether the target is a number or classes; by default whole numbers with up to 20 values are
    classes, and all other numbers are a number."""
    curve: int | None = None
    """With --from: how many knots the curves of numbers with more than 20 values have at most, 3 to 64; 0 for lines.
    They lie at the sample's quantiles. Default: 4 where the target has classes and values crowd between their bounds,
    or where the budget carries them (--epsilon)."""
    epsilon: float | None = None
    """With --from: the budget of the run, with --delta and --rows; numbers are curves if it carries them."""
    delta: float | None = None
    """Of that budget."""
    adjacency: Literal["zero_out", "add_remove", "replace_one"] | None = None
    """Of that budget: which tables are neighbours, as in `l2p apply`, by default zero_out."""
    rows: int | None = None
    """The number of rows N of the private table, with --epsilon."""

    def run(self) -> int:
        """Write it."""
        from l2p.tables.header import complaint_of_missing
        from l2p.tables.reading import open_table
        from l2p.tables.same_table import SAMPLE, refuse_same
        from l2p.tables.schema.file import as_text, to_json
        from l2p.tables.schema.template import sampled, template

        if self.out.exists():
            raise InputError(f"the file {self.out} is there already, and may hold what you declared; name a new --out.")
        if self.data is None and self.public is None:
            raise InputError(
                "neither a private table nor a public sample is named, so there is nothing to declare; write l2p "
                "schema DATA, or l2p schema --from FILE where FILE is public."
            )
        if self.curve is not None and self.public is None:
            raise InputError(
                "--curve bends what a public sample shows to be numbers, and there is none; name one by --from, or "
                'write "curve" into the template.'
            )
        allowance = self._allowance()
        source = open_table(self.data or self.public, dataclasses.replace(self.format, ignore=()))
        if fault := complaint_of_missing(source.names, self.ignore):
            raise InputError(f"--ignore names columns, and {source.title} {fault}")
        if self.public is None:
            text, report = as_text(template(source, self.target, self.format)), []
            summary = f"fill in every null, then l2p apply --schema {self.out}"
        else:
            source.check_columns((self.target,))
            if self.data is not None:
                refuse_same([self.data], [self.public], SAMPLE)
            public = open_table(self.public, self.format)
            sample = sampled(public, self.target, source.names, self.target_type, self.format, self.curve, allowance)
            if self.data is not None:
                _refuse_own_rows(source, public, sample.schema)
            text, report = as_text(to_json(sample.schema)), _report(sample)
            summary = f"{_counted(sample)}; all of it is public, so read it through, then l2p apply --schema {self.out}"
        try:
            self.out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"the file {self.out} cannot be written ({error.strerror}); name another --out."
            ) from error
        print(*report, f"written to {self.out}: {summary}", sep="\n")
        return 0

    def _allowance(self) -> "Allowance | None":
        """What the run may spend and on how many rows, if that was said."""
        from l2p.privacy.budget import Adjacency, Budget
        from l2p.tables.schema.curve_choice import Allowance

        if (self.epsilon, self.delta, self.rows, self.adjacency) == (None,) * 4:
            return None
        if self.epsilon is None or self.delta is None or self.rows is None:
            raise InputError(
                "--epsilon, --delta and --rows together say whether curves pay, and --adjacency belongs to them; write "
                "all three, or none of them."
            )
        if self.public is None or self.curve is not None:
            reason = "there is no public sample (--from)" if self.public is None else "--curve has chosen already"
            raise InputError(
                f"--epsilon, --delta and --rows choose between curves and straight lines, but {reason}; leave them out."
            )
        return Allowance(Budget(self.epsilon, self.delta, Adjacency(self.adjacency or "zero_out")), self.rows)


def _refuse_own_rows(source: "RawSource", sample: "RawSource", schema: "Schema") -> None:
    """Refuse a sample that holds rows of the private table, both encoded by the schema that was made of it."""
    from l2p.tables.same_table import SAMPLE, refuse_shared
    from l2p.tables.schema import Encoding, read_rows

    encoding = Encoding(schema)
    private = map(encoding.rows, source.blocks((*schema.features, schema.target.column)))
    refuse_shared(private, read_rows(sample, encoding, "null", exact=False), SAMPLE)


def _report(sample: "Sampled") -> list[str]:
    """A line for each column: its name, its type, and what was taken from the sample or why nothing was; and for what
    the budget carries."""
    width = min(30, max(map(len, sample.why)))
    curves = [] if sample.curves is None else [textwrap.fill(sample.curves, _WIDTH)]
    return curves + [
        textwrap.fill(
            f"{name:<{width}}  {kind:<8}  {reason}",
            _WIDTH,
            subsequent_indent=" " * (width + 12),
            break_on_hyphens=False,
            break_long_words=False,
        )
        for name, (kind, reason) in sample.why.items()
    ]


def _counted(sample: "Sampled") -> str:
    """The number of columns to learn from and of their features, and the names of those that are ignored, in words."""
    from l2p.tables.schema import Encoding

    ignored = [name for name, (kind, _) in sample.why.items() if kind == "ignored"]
    names = f" ({', '.join(ignored)})" if ignored else ""
    features = len(Encoding(sample.schema).names)
    return f"{len(sample.schema.features)} columns to learn from, as {features} features; {len(ignored)} ignored{names}"
