"""Names of methods and the suffixes that may follow them, as in `minibatch@0.02:tuned:projected`. Free of JAX.

The only place that knows how a suffix is written.
"""

import dataclasses
import importlib.machinery
import itertools
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Final

from l2p.base.errors import InputError

#: Suffix of a checkpoint's file, whose path may be given in place of a method's name.
SUFFIX: Final = ".safetensors"
#: The method's settings, tuned on public data.
TUNED: Final = ":tuned"
#: Variants of a method in comparisons: its start, the directions it works in, or who chooses its settings.
PRETRAINED: Final = ":pretrained"
PROJECTED: Final = ":projected"
ORACLE: Final = ":oracle"
PRIVATE: Final = ":private"
VARIANTS: Final = (PRETRAINED, PROJECTED, ORACLE, PRIVATE)
#: Precedes a sampling rate.
_AT: Final = "@"
#: Settings of a hand-designed method, NAME=VALUE with blanks between them.
_SETTINGS: Final = re.compile(r"\[(\w+=[^\s\[\]=]+(?: \w+=[^\s\[\]=]+)*)\]")
_RATE: Final = rf"{_AT}\d*\.?\d+(?:e-?\d+)?"
_LAST: Final = re.compile(
    "|".join(
        [rf"(?:{_SETTINGS.pattern})\Z", rf"(?:{_RATE})\Z", *(re.escape(word) + r"\Z" for word in (TUNED, *VARIANTS))]
    )
)


@dataclasses.dataclass(frozen=True)
class MethodName:
    """A method's name, split into its base and its suffixes; `str` joins them again as they were written.

    Attributes:
      base: of a hand-designed method or a checkpoint, the path of a checkpoint's file, or MODULE:OBJECT for a protector
        of the user's own.
      suffixes: in the order written, none twice: results are stored under the whole name.
    """

    base: str
    suffixes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, name: "str | MethodName") -> "MethodName":
        """Split a name; a `MethodName` is returned as it is.

        Raises:
          InputError: an unknown or repeated suffix, or a variant before what it varies.

        >>> MethodName.parse("minibatch@0.02:projected")
        MethodName(base='minibatch', suffixes=('@0.02', ':projected'))
        """
        if isinstance(name, MethodName):
            return name
        base, suffixes = name, []
        while (match := _LAST.search(base)) and match.start() > 0:
            base = base[: match.start()]
            suffixes.insert(0, match[0])
        if not (is_file(base) or is_object(base)) and (odd := re.search(rf"(?<!^)[:{_AT}].*", base)):
            raise _malformed(name, f"{odd[0][:60]!r} is not a suffix of a method")
        kinds = [suffix[0] if suffix[0] in f"{_AT}[" else suffix for suffix in suffixes]
        if repeated := next((kind for kind in kinds if kinds.count(kind) > 1), None):
            parts = {_AT: "a sampling rate", "[": "a list of settings"}
            raise _malformed(name, f"{parts.get(repeated, repeated)} is asked for twice")
        listed = any("," in suffix for suffix in suffixes if suffix[0] == "[")
        choosing = {TUNED, ORACLE, PRIVATE}.intersection(kinds)
        if listed and choosing != {PRIVATE}:
            raise _malformed(name, f"a setting has several values, among which {PRIVATE} alone chooses")
        if "[" in kinds and choosing and not listed:
            raise _malformed(name, f"its settings are given and, by {min(choosing)}, to be chosen")
        if sorted(kinds, key=VARIANTS.__contains__) != kinds:
            raise _malformed(name, f"a variant precedes the {TUNED} or {_AT}RATE that it is a variant of")
        return cls(base, tuple(suffixes))

    def __str__(self) -> str:
        return self.base + "".join(self.suffixes)

    @property
    def sampling_rate(self) -> float | None:
        """The requested Poisson sampling rate; None for the method's own."""
        return next((float(suffix.removeprefix(_AT)) for suffix in self.suffixes if suffix.startswith(_AT)), None)

    @property
    def settings(self) -> dict[str, str]:
        """The settings that are given, as texts by name.

        Raises:
          InputError: one is given twice.
        """
        words = [match[1] for suffix in self.suffixes if (match := _SETTINGS.fullmatch(suffix))]
        pairs = [word.split("=") for word in " ".join(words).split()]
        settings = dict(pairs)
        if len(settings) < len(pairs):
            raise _malformed(str(self), "a setting is given twice")
        return settings

    @property
    def candidates(self) -> "tuple[MethodName, ...]":
        """What it chooses among, where a setting has several values: every combination, first values first, without
        :private; none otherwise.

        >>> [str(name) for name in MethodName.parse("bolt_on[num_passes=1,5 ridge=0]:private").candidates]
        ['bolt_on[num_passes=1 ridge=0]', 'bolt_on[num_passes=5 ridge=0]']
        """
        values = {name: text.split(",") for name, text in self.settings.items()}
        if all(len(texts) == 1 for texts in values.values()):
            return ()
        rest = self._keeping(lambda suffix: suffix[0] != "[").without(PRIVATE)
        combinations = itertools.product(*values.values())
        return tuple(
            rest.with_settings([f"{n}={t}" for n, t in zip(values, texts, strict=True)]) for texts in combinations
        )

    def with_settings(self, words: Sequence[str]) -> "MethodName":
        """This name with settings, each NAME=VALUE; none leaves it as it is.

        Raises:
          InputError: one is not of that form, or they are given already, or to be chosen.

        >>> str(MethodName.parse("bolt_on").with_settings(["num_passes=5", "batch_size=10"]))
        'bolt_on[num_passes=5 batch_size=10]'
        """
        if not words:
            return self
        suffix = f"[{' '.join(words)}]"
        if not _SETTINGS.fullmatch(suffix):
            raise InputError(
                f"{' '.join(words)[:120]!r} are no settings; write NAME=VALUE for each, such as num_passes=5, with "
                "names that l2p protectors METHOD lists."
            )
        return MethodName.parse(f"{self.base}{suffix}{''.join(self.suffixes)}")

    @property
    def tuned(self) -> bool:
        """True if its settings are those tuned on public data."""
        return TUNED in self.suffixes

    @property
    def pretrained(self) -> bool:
        """True if it starts from a solution on public data."""
        return PRETRAINED in self.suffixes

    @property
    def projected(self) -> bool:
        """True if it reads rows in the directions of public ones."""
        return PROJECTED in self.suffixes

    @property
    def given_public(self) -> bool:
        """True if its start, or the directions that it reads rows in, come from public rows."""
        return self.pretrained or self.projected

    @property
    def oracle(self) -> bool:
        """True if its settings are searched on the private rows without being charged."""
        return ORACLE in self.suffixes

    @property
    def private(self) -> bool:
        """True if its settings are chosen on the private rows and charged."""
        return PRIVATE in self.suffixes

    @property
    def variants(self) -> frozenset[str]:
        """The requested `VARIANTS`."""
        return frozenset(self.suffixes).intersection(VARIANTS)

    @property
    def protector(self) -> "MethodName":
        """The name of what runs, without the variants."""
        return self._keeping(lambda suffix: suffix not in VARIANTS)

    def with_start(self, name: "MethodName") -> "MethodName":
        """This name with the :pretrained and :projected of `name`."""
        starts = (suffix for suffix in name.suffixes if suffix in (PRETRAINED, PROJECTED))
        return MethodName(self.base, (*self.suffixes, *starts))

    def without(self, variant: str) -> "MethodName":
        """This name without one of `VARIANTS`."""
        return self._keeping(lambda suffix: suffix != variant)

    def without_rate(self) -> "MethodName":
        """This name at the method's own sampling rate."""
        return self._keeping(lambda suffix: not suffix.startswith(_AT))

    def _keeping(self, condition: Callable[[str], bool]) -> "MethodName":
        return MethodName(self.base, tuple(filter(condition, self.suffixes)))


def is_file(base: str) -> bool:
    """True if a name is the path of a checkpoint's file, which may contain any character."""
    return base.endswith(SUFFIX) or os.sep in base


def is_object(base: str) -> bool:
    """True if a name is MODULE:OBJECT, of a protector that is to be imported.

    Where the module has no dot and the object no capital, it is one if Python finds the module, in the current folder
    too; a suffix that was mistyped is not taken for one. Nothing is imported.

    >>> is_object("mypackage:MyProtector"), is_object("mypackage.methods:mine"), is_object("agd:tunde")
    (True, True, False)
    """
    parts = re.fullmatch(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", base)
    if parts is None:
        return False
    module, inner, name = parts.groups()
    if inner or name[0].isupper():
        return True
    spec = importlib.machinery.PathFinder.find_spec(module, [os.getcwd(), *sys.path])
    return spec is not None and spec.origin is not None  # a folder without code has none


def _malformed(name: str, why: str) -> InputError:
    every = ", ".join((TUNED, *VARIANTS))
    return InputError(
        f"method {name[:120]!r} cannot be read, because {why}; write METHOD{_AT}RATE for batches of another sampling "
        "rate, METHOD[NAME=VALUE] for a setting, or MODULE:OBJECT for a protector of your own, of a module that is "
        f"installed or lies in the current folder, then any of {every}, each once."
    )
