"""`l2p schema`: declare a table, so that its rows can be encoded without looking at them."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from l2p.commands.table_options import TableOptions
from l2p.errors import InputError

if TYPE_CHECKING:
    from l2p.data.reading import RawSource
    from l2p.schema import Schema


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

    def run(self) -> int:
        """Write it."""
        from l2p.data.reading import open_table
        from l2p.data.same_table import SAMPLE, refuse_same
        from l2p.schema.file import as_text, to_json
        from l2p.schema.template import from_public, template

        if self.out.exists():
            raise InputError(f"the file {self.out} is there already, and may hold what you declared; name a new --out.")
        if self.data is None and self.public is None:
            raise InputError(
                "neither a private table nor a public sample is named, so there is nothing to declare; write l2p "
                "schema DATA, or l2p schema --from FILE where FILE is public."
            )
        source = open_table(self.data or self.public, self.format)
        if self.public is None:
            text = as_text(template(source, self.target))
            said = f"fill in every null, then l2p apply --schema {self.out}"
        else:
            source.check((self.target,))
            if self.data is not None:
                refuse_same([self.data], [self.public], SAMPLE)
            sample = open_table(self.public, self.format)
            schema = from_public(sample, self.target, source.names)
            if self.data is not None:
                _refuse_own_rows(source, sample, schema)
            text = as_text(to_json(schema))
            ignored = len(schema.columns) - len(schema.features)
            said = (
                f"{len(schema.features)} columns to learn from, {ignored} ignored; all of it is public, so read it "
                f"through, then l2p apply --schema {self.out}"
            )
        try:
            self.out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"the file {self.out} cannot be written ({error.strerror}); name another --out."
            ) from error
        print(f"written to {self.out}: {said}")
        return 0


def _refuse_own_rows(source: "RawSource", sample: "RawSource", schema: "Schema") -> None:
    """Refuse a sample that holds rows of the private table, both encoded by the schema that was made of it."""
    from l2p.data.same_table import SAMPLE, refuse_shared
    from l2p.schema import Encoding, read_rows
    from l2p.schema.rows import blocks_of

    encoding = Encoding(schema)
    private = (rows for _, rows in blocks_of(source, encoding, "null"))
    refuse_shared(private, read_rows(sample, encoding, "null", exact=False), SAMPLE)
