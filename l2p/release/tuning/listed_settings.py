"""METHOD[NAME=VALUE,VALUE]:private: a choice among listed settings, each tried on its own part of the private rows."""

import dataclasses
from pathlib import Path

import jax

from l2p.base.errors import InputError
from l2p.checkpoints.method_name import MethodName
from l2p.checkpoints.named import NamedProtector
from l2p.models import Model
from l2p.privacy.budget import Budget
from l2p.privacy.ledger.ledger import Ledger
from l2p.release.admission import admit
from l2p.release.result import Result
from l2p.release.tuning.split_tuning import rows_of_part, split_tuning
from l2p.task import checks
from l2p.task.rows import Rows
from l2p.task.sources import RowSource
from l2p.task.task import Task

#: The most candidates: each has a part of the rows, and a run is compiled for each.
MAX_CANDIDATES = 64


def admit_listed(name: MethodName, budget: Budget, model: Model, has_public: bool) -> NamedProtector:
    """The first candidate, under the name of all, each of which was checked as `admit` does.

    `NamedProtector.for_rows` plans it for its part of the rows; so it checks that every candidate has such a plan.

    Raises:
      InputError: a candidate does not fit, there are too many, or public rows are given.
    """
    if len(name.candidates) > MAX_CANDIDATES:
        raise InputError(
            f"the values listed make {len(name.candidates)} candidates, each to be trained on a part of the "
            f"rows; list at most {MAX_CANDIDATES} combinations, better a handful."
        )
    if has_public:
        raise InputError(
            "public rows are given, but candidates that are tried on parts of the private rows read no others; leave "
            "them out, or choose one candidate."
        )
    admitted = [admit(str(candidate), budget, model) for candidate in name.candidates]

    def for_part(num_rows: int) -> NamedProtector:
        rows = rows_of_part(num_rows, len(admitted))
        first, *_ = [named.for_rows(rows) for named in admitted]
        return dataclasses.replace(first, name=str(name))

    return dataclasses.replace(admitted[0], name=str(name), build=for_part)


def release_listed(
    data: Rows | RowSource | Task,
    candidates: tuple[MethodName, ...],
    budget: Budget,
    *,
    model: Model,
    key: jax.Array | None = None,
    num_rows: int | None = None,
    ledger: Ledger | str | Path | None = None,
) -> Result:
    """`split_tuning` among candidates; arguments and errors are its own.

    Raises:
      InputError: N is declared to be another number than that of lines, which are divided.
    """
    rows = data.private if isinstance(data, Task) else data
    num_lines, _ = checks.shape_of(rows)
    if num_rows not in (None, num_lines):
        raise InputError(
            f"N is declared as {num_rows}, but the table has {num_lines} lines, which are divided among the "
            "candidates; leave N out."
        )
    return split_tuning(rows, list(map(str, candidates)), budget, model=model, key=key, ledger=ledger).result
