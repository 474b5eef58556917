"""Public settings of hand-designed methods, as a name or `--set` gives them: `bolt_on[num_passes=5 batch_size=10]`."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from l2p.base.errors import InputError
from l2p.protectors.fields import kinds, misfit
from l2p.run.protector import Protector

#: Fields that follow from the table and the budget, and are not chosen.
_PLANNED = ("num_rows", "planned_noise")
_TRUE, _FALSE, _NONE = "yes", "no", "none"


class Setting(NamedTuple):
    """One setting of a protector.

    Attributes:
      value: that it has.
      kind: of its values, as the field is annotated.
    """

    value: Any
    kind: Any

    @property
    def choices(self) -> str:
        """What it may be, in words."""
        plain, optional = _plain(self.kind)
        if typing.get_origin(plain) is Literal:
            words = " or ".join(typing.get_args(plain))
        else:
            words = {bool: f"{_TRUE} or {_FALSE}", int: "a whole number", float: "a number"}[plain]
        return f"{words} or {_NONE}" if optional else words

    @property
    def text(self) -> str:
        """Its value, as it would be given."""
        if isinstance(self.value, bool):
            return _TRUE if self.value else _FALSE
        return _NONE if self.value is None else str(self.value)


def settings_of(protector: Protector) -> dict[str, Setting]:
    """The settings of a protector by name: its fields that are one number, one word, or yes or no."""
    fields = kinds(type(protector))
    fixed = {*_PLANNED, *(("num_steps",) if protector.asks_once else ())}
    return {
        name: Setting(getattr(protector, name), kind)
        for name, kind in fields.items()
        if name not in fixed
        and (_plain(kind)[0] in (bool, int, float) or typing.get_origin(_plain(kind)[0]) is Literal)
    }


def with_settings(protector: Protector, words: Mapping[str, str], method: str) -> Protector:
    """The protector of `method` with other settings, each given as text.

    Raises:
      InputError: it has no such setting, or the value is none for it.
    """
    settings, values = settings_of(protector), {}
    for name, text in words.items():
        if name not in settings:
            listed = ", ".join(settings) or "none"
            raise InputError(
                f"method {method!r} has no setting {name!r}, so nothing would be changed; it has {listed}: l2p "
                f"protectors {method} says what they may be."
            )
        setting = settings[name]
        try:
            values[name] = _value(text, setting.kind)
            reason = misfit(values[name], setting.kind, {})
        except ValueError:
            reason = "does not fit"
        if reason:
            raise InputError(f"{name}={text[:60]} is no setting of method {method!r}; give {setting.choices}.")
    return dataclasses.replace(typing.cast(Any, protector), **values)


def _plain(kind: Any) -> tuple[Any, bool]:
    """A type without its rules and without None, and whether it allows None."""
    optional = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
    if optional:
        kind = next(part for part in typing.get_args(kind) if part is not types.NoneType)
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    return kind, optional


def _value(text: str, kind: Any) -> Any:
    """A text as a value of its kind; `ValueError` if it is none."""
    plain, optional = _plain(kind)
    if optional and text == _NONE:
        return None
    if plain is bool:
        return {_TRUE: True, _FALSE: False}.get(text, text)
    return plain(text) if plain in (int, float) else text
