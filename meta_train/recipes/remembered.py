"""Addresses of the tables of a training on a user's own, kept in its folder, so that it can go on from there alone."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError
from l2p.tables.reading import Format
from l2p.tables.schema import Schema
from meta_train.config import MetaConfig
from meta_train.recipes import files
from meta_train.tasks import own_tables
from meta_train.training.saved import CONFIG

#: In a training's folder: the file with the paths of its tables and their schemas.
TABLES = "tables.json"


def remember(
    out: Path,
    tables: Sequence[own_tables.OwnTable],
    data: Sequence[Any],
    schema: Sequence[Any],
    format: Format | None,
    start: str,
) -> None:
    """Note in the folder where the tables are, for `resumed`, and what the training starts from."""
    entries = [
        {
            "data": str(Path(table_source).resolve()) if isinstance(table_source, (str, Path)) else None,
            "schema": str((out / f"{place}-{table.name}.schema.json").resolve()),
            "encoded_sha256": table.encoded_sha256,
        }
        for place, (table_source, table) in enumerate(zip(data, tables, strict=True), 1)
    ]
    out.mkdir(parents=True, exist_ok=True)
    for declared, entry in zip(schema, entries, strict=True):
        read = declared if isinstance(declared, Schema) else Schema.read(declared)
        read.write(entry["schema"])
    content = {"tables": entries, "format": dataclasses.asdict(format or Format()), "start": start}
    (out / TABLES).write_text(json.dumps(content, indent=1))


def check_same(out: Path, tables: Sequence[own_tables.OwnTable], start: str) -> None:
    """Refuse a folder with a training on other tables, or from another start; `InputError`."""
    if not (out / CONFIG).exists():
        return
    try:
        content = json.loads((out / TABLES).read_text(encoding="utf-8"))
        same = [table.encoded_sha256 for table in tables] == [entry["encoded_sha256"] for entry in content["tables"]]
        same &= start == content["start"]
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise InputError(
            f"{out} holds a training on other tables or schemas, or from another start, and one folder holds one; "
            "name another."
        )


def resumed(out: Path) -> MetaConfig:
    """The config of the training in a folder, whose tables, if it has any of a user's own, are read again.

    Raises:
      InputError: there is none, or its tables came as no files, or are no longer what they were.
    """
    out = Path(out)
    if not (out / CONFIG).is_file():
        raise InputError(f"there is no training in {out} to resume; say what to train, or name another folder.")
    config = files.read(out / CONFIG)
    if not config.tasks.are_own:
        return config
    try:
        content = json.loads((out / TABLES).read_text(encoding="utf-8"))
        layout = content["format"]
        columns = layout["columns"] and tuple(layout["columns"])
        format = Format(**(layout | {"columns": columns}))
        entries = [(entry["data"], entry["schema"], entry["encoded_sha256"]) for entry in content["tables"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"the tables of the training in {out} are not known ({TABLES} cannot be read); pass them with --data and "
            "--schema."
        ) from error
    for data, schema, encoded in entries:
        if data is None:
            raise InputError(
                f"the training in {out} was given tables that are in no file; call meta_train.fine_tune with them "
                "again."
            )
        table = own_tables.read(data, schema, format=format)
        own_tables.keep(table)
        if table.encoded_sha256 != encoded:
            raise InputError(
                f"{data} is not what it was when the training in {out} began; begin anew in another folder."
            )
    return config
