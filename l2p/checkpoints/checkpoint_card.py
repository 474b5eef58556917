"""The checkpoint card: names, ranges and figures on a checkpoint, checked before they are used (for the privacy card of
a run see `l2p.privacy.card.card`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError
from l2p.base.json_fields import violation
from l2p.privacy.accountants import run_names
from l2p.protectors.fields import MAX_STEPS

_NUMBER, _NUMBERS = {"type": "number"}, {"type": "array", "items": {"type": "number"}}
#: Without characters that a terminal takes for commands.
_TEXT = {"type": "string", "pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"}
_TEXTS = {"type": "array", "items": _TEXT}
#: Names of public data, which a run's privacy card quotes.
_NAMES = {"type": "array", "items": {"type": "string", "pattern": r"^[\w.,:/@+-]{1,200}$"}}
_PAIR = _NUMBERS | {"minItems": 2, "maxItems": 2}
_QUANTILES = _NUMBERS | {"minItems": 3, "maxItems": 3}


def _object(required: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


#: Gains of networks over their constants: a mean and its standard error for each band of log(mu N).
_GAINS = {"mean": _NUMBERS, "standard_error": _NUMBERS}
#: The same for parts of the tasks.
_PARTS = ("by_source", "by_model")
_BAND = {"log_signal": _PAIR, "accuracy": _QUANTILES, "gain": _QUANTILES, "share_of_gap": _QUANTILES}
_META_TEST = _object(
    {
        "data": _TEXT,
        "tasks": {"type": "integer"},
        "train_rows": _NUMBER,
        "least_gain": _NUMBER,
        "bands": {"type": "array", "minItems": 1, "items": _object({**_BAND, "beat_trivial": _NUMBER})},
    }
)
#: The fields that l2p reads; there may be others, for people.
SCHEMA: dict[str, Any] = _object(
    {"name": _TEXT, "models": _TEXTS, "sources": _NAMES},
    accountant={"enum": [*run_names(), None]},
    range=_or_null({"type": "object", "propertyNames": {"pattern": "^[a-z_]{1,50}$"}, "additionalProperties": _PAIR}),
    config=_object(
        {},
        model={"type": "string", "pattern": r"^[a-z_]+(:[0-9]{1,6})?$"},
        coefficients=_or_null({"type": "integer"}),
        num_steps=_or_null({"type": "integer", "minimum": 1, "maximum": MAX_STEPS}),
        warm_start=_or_null(_TEXT),
    ),
    warm_start_arrays_sha256=_or_null(_TEXT),
    held_out=_object(
        {},
        gains=_object(
            {"log_signal": _NUMBERS, **_GAINS},
            **{name: {"type": "object", "additionalProperties": _object(_GAINS)} for name in _PARTS},
        ),
    ),
    #: Of a protector that was fine-tuned on users' own tables: these.
    tables={
        "type": "array",
        "items": _object({"features": {"type": "integer"}, "kind": _TEXT, "columns_sha256": _TEXT}),
    },
    meta_test=_META_TEST,
    #: Of what was trained for several models: by the plain name of one.
    meta_tests={"type": "object", "additionalProperties": _META_TEST},
)


def check_checkpoint_card(card: Any, path: Path) -> dict[str, Any]:
    """The checkpoint card of the file at `path`, unchanged.

    Raises:
      InputError: a field that l2p reads has a wrong value, or there is no structure.
    """
    if not isinstance(card, dict) or "structure" not in card:
        raise InputError(
            f"{path} is not an l2p checkpoint, because it has no checkpoint card; pass one that l2p wrote."
        )
    broken = violation(card, SCHEMA) or _uneven(card.get("held_out", {}).get("gains"))
    if broken is not None:
        field, problem = broken
        raise InputError(
            f"the checkpoint card of {path} cannot be read: in {field or 'it as a whole'}, {problem}; fetch the file "
            "again or update l2p."
        )
    return card


def _uneven(gains: Mapping[str, Any] | None) -> tuple[str, str] | None:
    """Field and problem if there is not one gain per band."""
    if gains is None:
        return None
    count = len(gains["log_signal"]) - 1
    parts = [(f".{part}.{name[:40]}", figures) for part in _PARTS for name, figures in gains.get(part, {}).items()]
    for place, figures in [("", gains), *parts]:
        for name in _GAINS:
            if len(figures[name]) != count:
                return f"held_out.gains{place}.{name}", f"{len(figures[name])} numbers for {count} bands"
    return None
