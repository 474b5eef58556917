"""`l2p compare`: methods x budgets x seeds on one data set."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError
from l2p.compare.config import CompareConfig, parse_shard, read_fields

#: A comma before a digit belongs to a name, as in `paper-mnist-4,6`.
SEPARATOR = re.compile(r",(?!\d)")


@dataclasses.dataclass(frozen=True)
class Compare(CompareConfig):
    """Run methods x budgets x seeds on one data set, and write tables and a figure."""

    config: Path | None = None
    """JSON file of these options; options on the command line override it."""
    shard: str | None = None
    """i/n: run only share i of n of the cells, in a folder shared with the other shares or in a separate one."""
    merge: tuple[Path, ...] | None = None
    """Run nothing: collect the cells of these folders, and of OUT, in OUT."""

    def leftovers(self) -> str:
        """A sentence on what an interrupted comparison leaves behind."""
        cells = len(list(self.out.glob("cells/*/*/seed-*.json")))
        return f"{cells} finished cells are kept in {self.out}; the same command goes on from there."

    def run(self) -> int:
        """Compare; methods may also be separated by commas, `a,b,c`."""
        if self.shard is not None and self.merge is not None:
            raise InputError("--shard runs cells and --merge runs none, so they exclude each other; leave one out.")
        shard = None if self.shard is None else parse_shard(self.shard)
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(CompareConfig)}
        values["methods"] = tuple(name for word in self.methods for name in SEPARATOR.split(word) if name)

        from l2p.compare.runner import main

        main(CompareConfig(**values), shard, self.merge)
        return 0


def with_config(args: Sequence[str]) -> list[str]:
    """A command line in which `--config FILE` of `compare` is followed by the options that FILE gives.

    Raises:
      InputError: the file cannot be read or holds something else.
    """
    path = _value(args, "--config") if args[:1] == ["compare"] else None
    if path is None:
        return list(args)
    overrides = {word.split("=")[0] for word in args if word.startswith("--")}
    values = read_fields(Path(path)).items()
    fields = {f"--{name.replace('_', '-')}": value for name, value in values if value is not None}
    words = [word for option, value in fields.items() if option not in overrides for word in _words(option, value)]
    return [args[0], *words, *args[1:]]


def _value(args: Sequence[str], option: str) -> str | None:
    for index, word in enumerate(args):
        if word.startswith(option + "="):
            return word.partition("=")[2]
        if word == option:
            return next(iter(args[index + 1 :]), None)
    return None


def _words(option: str, value: Any) -> list[str]:
    """An option and its value as they stand on a command line."""
    if isinstance(value, bool):
        return [option if value else option.replace("--", "--no-", 1)]
    return [option, *(map(str, value) if isinstance(value, tuple) else [str(value)])]
