"""`l2p schema`: declare a table, so that its rows can be encoded without looking at them."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from l2p.commands.table_options import TableOptions
from l2p.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class MakeSchema(TableOptions):
    """Write a schema for `l2p apply --schema`: a template, or all from public data.

    Of DATA only the header is read: names, from ARFF, Parquet and databases types as well.
    """

    data: tyro.conf.Positional[str]
    """The private table: a file, or duckdb://FILE?table=T or postgresql://HOST/DATABASE?table=T."""
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
        from l2p.schema.file import as_text, to_json
        from l2p.schema.template import from_public, template

        if self.out.exists():
            raise InputError(f"the file {self.out} is there already, and may hold what you declared; name a new --out.")
        source = open_table(self.data, self.format)
        if self.public is None:
            text = as_text(template(source, self.target))
            said = f"fill in every null, then l2p apply --schema {self.out}"
        else:
            source.check((self.target,))
            schema = from_public(open_table(self.public, self.format), self.target, source.names)
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
