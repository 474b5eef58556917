"""`l2p apply --in-database`: the server takes the passes over its rows, and none of them comes here."""

import contextlib
from typing import TYPE_CHECKING

from l2p.base.errors import InputError
from l2p.checkpoints.method_name import PRIVATE
from l2p.commands.declared import DeclaredTable
from l2p.estimators.database.rows import TableRows, check_address, check_method, held_rows
from l2p.tables.reading.address import Address, is_address
from l2p.tables.schema import Encoding

if TYPE_CHECKING:
    from l2p.checkpoints.named import NamedProtector
    from l2p.commands.apply import Apply


def check(options: "Apply", declared: DeclaredTable, named: "NamedProtector", chooses: bool) -> None:
    """Refuse what would bring rows here, and methods of which the server takes no passes; connects to nothing.

    Raises:
      InputError: an option, the method or the model does not fit.
    """
    reading_here = {
        "--public": options.public is not None,
        "--test": options.test is not None,
        "--stream yes": options.stream == "yes",
        f"METHOD{PRIVATE}": chooses,
    }
    if unfit := [option for option, is_set in reading_here.items() if is_set]:
        raise InputError(
            f"with --in-database no row leaves the server, but {unfit[0]} compares or reads them here; leave one of "
            "the two out (l2p predict scores rows of another table)."
        )
    check_method(named.protector, declared.model, len(Encoding(declared.schema).names))
    _address(declared)


def rows_of(declared: DeclaredTable) -> contextlib.AbstractContextManager[TableRows]:
    """The table's rows, which the server encodes and counts."""
    return held_rows(_address(declared), declared.schema, declared.on_invalid)


def _address(declared: DeclaredTable) -> Address:
    (file, *more) = declared.files
    if more or not is_address(file):
        raise InputError(
            "--in-database needs one table in PostgreSQL, which alone takes passes; write --data "
            "'postgresql://HOST/DATABASE?table=T&key=COLUMN', or leave the option out."
        )
    address = Address.parse(file)
    check_address(address)
    return address
