"""The target of a table, a class or a number, and its unit of privacy."""

import dataclasses
from collections.abc import Mapping, Sequence

from l2p.base.errors import InputError
from l2p.tables.bounds import Interval, checked_bounds, is_finite
from l2p.tables.kind import Kind
from l2p.tables.schema.columns import Value, distinct, same

#: Sums are of whole numbers of 20 bits, of which a class of the least weight keeps 6.
MAX_RATIO = 10_000


@dataclasses.dataclass(frozen=True)
class Target:
    """The column to predict, with either its classes or its bounds.

    Attributes:
      column: its name.
      classes: the labels that become 0, 1, 2 and so on: all texts, all numbers or all booleans.
      bounds: [low, high] of a number to predict, in its own units.
      aliases: other words for a class, such as {">50K.": ">50K"}.
      weights: how much a row of each class counts, public, in the order of `classes`; None for all alike. Only their
        ratios matter (`l2p.privacy.class_weights`).

    >>> Target("income", classes=("<=50K", ">50K"), aliases={">50K.": ">50K"}).kind, Target("price", bounds=(0, 9)).kind
    ('binary', 'regression')
    """

    column: str
    classes: Sequence[Value] | None = None
    bounds: Interval | None = None
    aliases: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column.strip():
            raise InputError("the target must name its column; write the name that stands in the table.")
        if (self.classes is None) == (self.bounds is None):
            has = "neither classes nor bounds" if self.classes is None else "both classes and bounds"
            raise InputError(
                f"the target has {has}, so it is not clear whether it is a class or a number; write its classes or "
                "its bounds [low, high]."
            )
        if self.bounds is not None:
            object.__setattr__(self, "bounds", checked_bounds(self.bounds))
            if self.aliases or self.weights is not None:
                raise InputError("aliases and weights belong to classes, but the target is a number; leave them out.")
        else:
            object.__setattr__(self, "classes", distinct(self.classes, "classes", at_least=2))
            if any(map(_is_formula, self.classes or ())):
                raise InputError(  # not which: without a schema, classes may have been read off private labels
                    "a class begins with =, +, - or @, so spreadsheets would run it as a formula where predictions "
                    "hold it; give the class another name in the schema and its own spelling as an alias "
                    '("aliases": {"=1+1": "two"}, say).'
                )
            object.__setattr__(self, "aliases", self._checked_aliases())
            object.__setattr__(self, "weights", self._checked_weights())

    def _checked_aliases(self) -> dict[str, Value]:
        classes = self.classes or ()
        if not isinstance(self.aliases, Mapping) or not all(isinstance(alias, str) for alias in self.aliases):
            raise InputError("aliases must be texts that stand for a class; write {word: class}.")
        aliases = {alias.strip(): value for alias, value in self.aliases.items()}
        for alias, value in aliases.items():
            if not any(same(value, label) for label in classes):
                raise InputError(f"the alias {alias!r} stands for {value!r}, which is no class; name one of them.")
            if not alias or alias in classes:
                raise InputError(f"the alias {alias!r} is empty or a class itself; leave it out.")
        return aliases

    def _checked_weights(self) -> tuple[float, ...] | None:
        if self.weights is None:
            return None
        weights, count = self.weights, len(self.classes or ())
        is_list = isinstance(weights, Sequence) and not isinstance(weights, str)
        if not (is_list and len(weights) == count and all(is_finite(w) and w > 0 for w in weights)):
            raise InputError(
                f"weights must be {count} numbers above 0, one per class in their order; write [1, 3], say."
            )
        if max(weights) > MAX_RATIO * min(weights):
            raise InputError(
                f"the largest weight is more than {MAX_RATIO:,} times the least, so rows of the other class "
                "would be rounded to nothing; write weights closer to each other, or drop that class."
            )
        return tuple(map(float, weights))

    @property
    def kind(self) -> Kind:
        """The kind of target, as models know it."""
        if self.classes is None:
            return "regression"
        return "binary" if len(self.classes) == 2 else "multiclass"


def _is_formula(value: Value) -> bool:
    """True if a spreadsheet takes a cell for a formula; a lone sign and numbers are none.

    >>> [_is_formula(value) for value in ("=1+1", "@SUM(A1)", "-a", "+", "-1.5", -1, "<=50K", "a-b")]
    [True, True, True, False, False, False, False, False]
    """
    if not isinstance(value, str) or len(value) < 2 or value[0] not in "=+-@":
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


@dataclasses.dataclass(frozen=True)
class Unit:
    """The unit of privacy: who is protected, where one person may have several rows.

    Attributes:
      column: says whose row it is.
      max_rows: the most rows of one unit that count.
    """

    column: str
    max_rows: int

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column.strip():
            raise InputError("the unit must name its column; write the name that stands in the table.")
        if not isinstance(self.max_rows, int) or isinstance(self.max_rows, bool) or self.max_rows < 1:
            raise InputError("the most rows per unit must be a whole number of at least 1; write how many may count.")
