"""The settings of `l2p compare`. Free of JAX, so that the command line can print its help at once."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError
from l2p.base.json_fields import checked
from l2p.tables.table_options import TableOptions


@dataclasses.dataclass(frozen=True)
class CompareConfig(TableOptions):
    """Methods x budgets x seeds on one data set.

    Attributes:
      data: a public data set's name, or the file of a table.
      out: the folder for cells, results.csv, summary.md and figure.svg; a comparison found there is resumed.
      schema: for a file, JSON that declares it, as `l2p schema` writes it.
      model: name of the model; `softmax` takes its number of classes from the data set or the schema.
      methods: method names; the others are compared with the first one. Without any: `universal`, its control,
        the pair of LSTMs, AGD, the strongest tuned rivals and no privacy, as far as they fit.
      epsilon: budgets.
      delta: probability, below one over the number of training rows.
      seeds: their number; seed s fixes split and noise, the same for every method.
      adjacency: which tables are neighbours; a method in its paper's form keeps that of its proof, and is marked.
      accountant: for every method except such forms; default the one a checkpoint was trained with, else the tightest
        that applies.
      aux: the auxiliary public set of methods that end in `:tuned`, `:pretrained` or `:projected`; the latter two take
        the public part of the split where there is one.
      public: for a file, another one with rows that are public, for the methods that read such rows; all others get
        them among their private ones. Without it, where a method needs public rows, a part of every split's
        training rows is public.
      public_share: the share that is; default a thousandth for two classes and for numbers, and at least one row of
        each class.
      public_per_class: in its place, the number of public rows of each class; default 2 for `softmax`.
      public_shift: how many standard deviations public rows are drawn away from private ones, along a random direction
        of the features.

    >>> CompareConfig("digits:odd", out=Path("cmp"), methods=("universal", "agd")).seeds
    10
    """

    data: str
    out: Path
    schema: Path | None = None
    model: str = "logistic"
    methods: tuple[str, ...] = ()
    epsilon: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    delta: float = 1e-8
    seeds: int = 10
    adjacency: str = "zero_out"
    accountant: str | None = None
    aux: str | None = None
    public: tuple[Path, ...] | None = None
    public_share: float | None = None
    public_per_class: int | None = None
    public_shift: float = 0.0

    @property
    def asks_for_public(self) -> bool:
        """True if an option says that there are public rows."""
        options = self.public, self.public_share, self.public_per_class
        return any(option is not None for option in options) or self.public_shift != 0


def parse_shard(text: str) -> tuple[int, int]:
    """(i, n) of "i/n", the i-th of n shares, counted from 1.

    >>> parse_shard("2/3")
    (2, 3)
    """
    parts = re.fullmatch(r"(\d+)/(\d+)", text)
    if parts is None or not 1 <= int(parts[1]) <= int(parts[2]):
        raise InputError(
            f"shard {text!r} is not one of n shares of the cells; give i/n with i from 1 to n, such as 1/4."
        )
    return int(parts[1]), int(parts[2])


def read_config(path: Path, **changes: Any) -> CompareConfig:
    """A comparison from a JSON file of `CompareConfig`'s fields; `changes` override the file.

    Raises:
      InputError: the file cannot be read, has an unknown field, or a field has no value or one of another type.
    """
    values = read_fields(path) | changes
    missing = [name for name in ("data", "out") if name not in values]
    if missing:
        raise InputError(f"{path} lacks {' and '.join(missing)}, without which nothing can be compared; name it.")
    return CompareConfig(**values)


def read_fields(path: Path) -> dict[str, Any]:
    """The fields in a JSON file of a comparison, with their types checked."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"the comparison {path} cannot be read ({error}); give a JSON file of its options.") from None
    if not isinstance(values, dict):
        raise InputError(
            f"{path} does not hold a JSON object, so its options have no names; write {{name: value, ...}}."
        )
    kinds = {field.name: field.type for field in dataclasses.fields(CompareConfig)}
    return checked(values, kinds, path)
