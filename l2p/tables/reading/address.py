"""Addresses of tables in databases: `duckdb://FILE?table=T` and `postgresql://HOST/DATABASE?table=T`.

An address may hold a password, so nothing prints one but by `Address.shown` or through `l2p.base.errors.redacted`.
"""

import dataclasses
import re
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from l2p.base.errors import InputError

_SCHEMES = {"duckdb": "duckdb", "postgresql": "postgresql", "postgres": "postgresql"}
_STARTS = re.compile(rf"({'|'.join(_SCHEMES)}):/", re.IGNORECASE)
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


@dataclasses.dataclass(frozen=True, repr=False)
class Address:
    """Address of a table in a database.

    Attributes:
      kind: "duckdb" or "postgresql".
      location: a file, or what libpq connects to; it may hold a password.
      table: its name, each of its parts alone: ("ward",) or ("hospital", "ward").
      key: the column that rows are ordered by, if one is named.
      place: name of the database in messages.
    """

    kind: str
    location: str
    table: tuple[str, ...]
    key: str | None
    place: str

    @property
    def shown(self) -> str:
        """Name of the table in messages."""
        return f"{'.'.join(self.table)} in {self.place}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address that a text is.

        Raises:
          InputError: it is none, or names no table. The message quotes nothing of it.

        >>> ward = Address.parse("postgresql://ann:secret@db/hospital?table=public.ward&key=id&sslmode=require")
        >>> ward.shown, ward.key
        ('public.ward in postgresql://db/hospital', 'id')
        >>> Address.parse("postgresql:///hospital?host=/tmp&table=ward").location
        'postgresql:///hospital?host=%2Ftmp&connect_timeout=10'
        >>> Address.parse("duckdb://rows/ward.db?table=ward").location
        'rows/ward.db'
        """
        try:
            parts = urlsplit(text)
            kind = _SCHEMES[parts.scheme.lower()]
            parameters = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except (ValueError, KeyError):
            raise InputError(f"the address of a table cannot be read; write {_FORMS}.") from None
        table, key = parameters.pop("table", ""), parameters.pop("key", None)
        if not table:
            raise InputError(f"the address of a table names none, so there is nothing to read; write {_FORMS}.")
        if kind == "duckdb":
            file = unquote(parts.netloc + parts.path)
            if parameters or not file:
                fault = f"{sorted(parameters)[0]!r}, which is no part of one" if parameters else "no file"
                raise InputError(f"the address of a DuckDB table has {fault}; write {_FORMS}.")
            return cls(kind, file, _parts(table), key or None, file)
        parameters.setdefault("connect_timeout", "10")
        # Not by urlunsplit, which leaves the // out where no host follows.
        location = f"{kind}://{parts.netloc}{parts.path}?{urlencode(parameters, quote_via=quote)}"
        place = f"{kind}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return cls(kind, location, _parts(table), key or None, place)


_FORMS = "duckdb://FILE?table=T or postgresql://HOST/DATABASE?table=T, with &key=COLUMN for the order of its rows"


def is_address(data: Any) -> bool:
    """True if `data` is a text that starts as an address does.

    >>> is_address("duckdb://ward.db?table=ward"), is_address("ward.csv")
    (True, False)
    """
    return isinstance(data, str) and _STARTS.match(data) is not None


def _parts(table: str) -> tuple[str, ...]:
    """The parts of a name, at its points but for those between double quotes.

    >>> _parts('hospital."ward.2026"')
    ('hospital', 'ward.2026')
    """
    names = [(quoted or bare).replace('""', '"') for quoted, bare in _PART.findall(table)]
    if not 1 <= len(names) <= 3:
        raise InputError(f"the name of a table is not one that a database can have; write {_FORMS}.")
    return tuple(names)
