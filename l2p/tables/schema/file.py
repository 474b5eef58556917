"""A schema as JSON, read strictly, and templates that are still to be filled."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError, alone
from l2p.base.json_fields import strict, violation
from l2p.tables.header import listed
from l2p.tables.reading.format import DECIMALS
from l2p.tables.schema.columns import Category, Column, Ignore, Missing, Number
from l2p.tables.schema.schema import MISSING_WORDS, Schema
from l2p.tables.schema.target import Target, Unit

FORMAT = "l2p-schema-1"

_VALUE = {"type": ["string", "number", "boolean"]}
_LIST = {"type": ["array", "null"], "items": _VALUE}
_PAIR = {"type": ["array", "null"], "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
_MISSING = {
    "type": ["object", "null"],
    "properties": {"fill": {"type": ["string", "number", "boolean", "null"]}, "indicator": {"type": "boolean"}},
    "additionalProperties": False,
}
_TYPE = {"type": "string"}


def _object(properties: Mapping[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False, "required": list(required)}


_COLUMNS = {
    "number": _object(
        {
            "type": _TYPE,
            "bounds": {"anyOf": [_PAIR, {"const": "private"}]},
            "curve": {"type": ["integer", "array", "null"], "items": {"type": "number"}},
            "missing": _MISSING,
        },
        ("bounds",),
    ),
    "category": _object(
        {
            "type": _TYPE,
            "values": _LIST,
            "shares": {"type": ["array", "null"], "items": {"type": "number"}},
            "ordered": {"type": "boolean"},
            "other": {"type": "boolean"},
            "missing": _MISSING,
        },
        ("values",),
    ),
    "ignore": _object({"type": _TYPE}),
}
_TARGET = _object(
    {
        "column": {"type": "string"},
        "classes": _LIST,
        "bounds": _PAIR,
        "aliases": {"type": "object", "additionalProperties": _VALUE},
        "weights": {"type": ["array", "null"], "items": {"type": "number"}},
    },
    ("column",),
)
_UNIT = _object({"column": {"type": "string"}, "max_rows": {"type": "integer"}}, ("column", "max_rows"))
_TOP = _object(
    {
        "format": {"const": FORMAT},
        "about": {"type": "string"},
        "columns": {"type": "object"},
        "target": {"type": "object"},
        "unit": {"type": ["object", "null"]},
        "missing_words": {"type": "array", "items": {"type": "string"}},
        "encoding": {"type": ["string", "null"]},
        "decimal": {"enum": [*DECIMALS, None]},
    },
    ("format", "columns", "target"),
)


@alone()  # JSON's own error holds the whole text, which may be a table by mistake
def read(path: Path) -> Schema:
    """The schema in a file; see `Schema.read`."""
    try:
        content = strict(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"the schema {path} cannot be read ({error.strerror}); check the path.") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(
            f"the schema {path} cannot be read as JSON: {error.msg} in {where}; correct it there."
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"the schema {path} is no text in UTF-8; name the file that l2p schema wrote.") from None
    except ValueError as error:
        if f'"{FORMAT}"' not in path.read_text(
            encoding="utf-8-sig"
        ):  # not to quote a table that was taken for a schema
            raise InputError(f"the schema {path} is no schema of this version; {_start_from()}") from None
        raise InputError(f"the schema {path} cannot be read as JSON: {error}; correct it there.") from None
    try:
        return from_json(content)
    except InputError as error:
        raise InputError(f"in the schema {path}, {error}") from None


def write(schema: Schema, path: Path) -> None:
    """Write the file; see `Schema.write`."""
    path.write_text(as_text(to_json(schema)), encoding="utf-8")


def as_text(content: Mapping[str, Any]) -> str:
    """JSON with a line for every column, for people to edit.

    >>> print(as_text({"format": "l2p-schema-1", "columns": {"id": {"type": "ignore"}}}), end="")
    {
      "format": "l2p-schema-1",
      "columns": {
        "id": {"type": "ignore"}
      }
    }
    """
    columns = ",\n".join(f"    {_line(name)}: {_line(column)}" for name, column in content["columns"].items())
    others = "".join(f"  {_line(key)}: {_line(value)},\n" for key, value in content.items() if key != "columns")
    return f'{{\n{others}  "columns": {{\n{columns}\n  }}\n}}\n'


def _line(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False)


def from_json(content: Any) -> Schema:
    """The schema that a JSON value stands for.

    Raises:
      InputError: it is not a schema; the message starts with the part that is wrong.
    """
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f'the key "format" must be "{FORMAT}", the only version known here; {_start_from()}')
    _check_fields("the whole", content, _TOP)
    _refuse_unfinished(content)
    columns = {
        name: _named(f"column {name!r}", lambda declaration=declaration: _column(declaration))
        for name, declaration in content["columns"].items()
    }
    target = _named("the target", lambda: _target(content["target"]))
    unit = None if content.get("unit") is None else _named("the unit", lambda: _unit(content["unit"]))
    words = tuple(content.get("missing_words", MISSING_WORDS))
    return Schema(columns, target, unit, words, content.get("encoding"), content.get("decimal"))


def to_json(schema: Schema) -> dict[str, Any]:
    """The JSON value that `from_json` takes."""
    target, unit = schema.target, schema.unit
    written: dict[str, Any] = {"column": target.column}
    written |= {} if target.classes is None else {"classes": list(target.classes)}
    written |= {} if target.bounds is None else {"bounds": list(target.bounds)}
    written |= {"aliases": dict(target.aliases)} if target.aliases else {}
    written |= {} if target.weights is None else {"weights": list(target.weights)}
    content: dict[str, Any] = {"format": FORMAT}
    content |= {} if unit is None else {"unit": {"column": unit.column, "max_rows": unit.max_rows}}
    content |= {"target": written, "missing_words": list(schema.missing_words)}
    content |= format_fields(schema.encoding, schema.decimal)
    return content | {"columns": {name: _written(column) for name, column in schema.columns.items()}}


def format_fields(encoding: str | None, decimal: str | None) -> dict[str, str]:
    """Encoding and decimal mark as fields of a schema file; those that are None are left out."""
    return {name: value for name, value in (("encoding", encoding), ("decimal", decimal)) if value is not None}


def unfinished(content: Mapping[str, Any]) -> list[str]:
    """Names of what a template still lacks: columns without a type, bounds or values, and the target."""
    lacking = []
    for name, column in content["columns"].items():
        if isinstance(column, dict):
            kind = column.get("type", "")
            value = {"number": column.get("bounds", ""), "category": column.get("values", "")}.get(kind, "")
            if kind is None or value is None:
                lacking.append(name)
    target = content["target"]
    if target.get("classes") is None and target.get("bounds") is None and {"classes", "bounds"} & set(target):
        lacking.append(str(target.get("column")))
    return lacking


def _refuse_unfinished(content: Mapping[str, Any]) -> None:
    if lacking := unfinished(content):
        raise InputError(
            f"column {listed(lacking)} is not declared yet (null): fill in its type, its bounds [low, high] or its "
            "values, from public knowledge, or let l2p schema --from PUBLIC do so from a public sample."
        )


def _column(declaration: Any) -> Column:
    kind = declaration.get("type") if isinstance(declaration, dict) else None
    if kind not in _COLUMNS:
        raise InputError(
            'it must say what it holds; write {"type": "number"}, {"type": "category"} or {"type": "ignore"}.'
        )
    _check_fields("it", declaration, _COLUMNS[kind])
    if kind == "ignore":
        return Ignore()
    missing = None if declaration.get("missing") is None else Missing(**declaration["missing"])
    if kind == "category":
        others = {key: declaration[key] for key in ("ordered", "shares", "other") if key in declaration}
        return Category(declaration["values"], missing=missing, **others)
    low, high = (None, None) if declaration["bounds"] == "private" else declaration["bounds"]
    return Number(low, high, missing, declaration.get("curve"))


def _target(declaration: Any) -> Target:
    _check_fields("it", declaration, _TARGET)
    bounds = declaration.get("bounds")
    return Target(**(declaration | {"bounds": None if bounds is None else tuple(bounds)}))


def _unit(declaration: Any) -> Unit:
    _check_fields("it", declaration, _UNIT)
    return Unit(**declaration)


def _written(column: Column) -> dict[str, Any]:
    if isinstance(column, Ignore):
        return {"type": "ignore"}
    if isinstance(column, Number):
        bounds = column.bounds
        written: dict[str, Any] = {"type": "number", "bounds": bounds if bounds == "private" else list(bounds)}
        if (curve := column.curve) is not None:
            written["curve"] = curve if isinstance(curve, int) else list(curve)
    else:
        written = {"type": "category", "values": list(column.values)}
        written |= {} if column.shares is None else {"shares": list(column.shares)}
        written |= {"ordered": True} if column.ordered else {}
        written |= {"other": True} if column.other else {}
    if (missing := column.missing) is not None:
        fill = {} if missing.fill is None else {"fill": missing.fill}
        written["missing"] = fill | ({"indicator": True} if missing.indicator else {})
    return written


def _check_fields(part: str, content: Any, schema: Mapping[str, Any]) -> None:
    if wrong := violation(content, schema):
        field, how = wrong
        keys = ", ".join(schema["properties"])
        raise InputError(
            f"{f'{field!r} of ' if field else ''}{part} is not as it should be: {how}; the keys are {keys}."
        )


def _named(part: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except InputError as error:
        raise InputError(f"{part}: {error}") from None


def _start_from() -> str:
    return "write one with l2p schema DATA --target COLUMN --out schema.json."
