"""Samplers choose the rows of a query. A sampler is part of the accountant that prices it, so the two cannot disagree.

A sampler acts on the queries of steps; side queries in `Protector.init` always read every row.
"""

import abc
import dataclasses
from collections.abc import Mapping
from numbers import Integral
from typing import Any, ClassVar

from l2p.base.errors import InputError
from l2p.privacy.cost.renyi import Neighbours
from l2p.privacy.events import Adjacency

_ANY = tuple(Adjacency)
#: Share of Poisson batches that may exceed a simulation's capacity; a release has room for every batch.
OVERFLOW = 1e-12


@dataclasses.dataclass(frozen=True)
class Sampler(abc.ABC):
    """A rule by which the rows of one query are chosen.

    Attributes:
      name: what cards and traces call it.
      adjacencies: adjacencies for which its prices are proved.
    """

    name: ClassVar[str]
    adjacencies: ClassVar[tuple[Adjacency, ...]] = _ANY

    @property
    def steps_per_charge(self) -> int:
        """Number of steps that share one charge, because no row is in two of their batches."""
        return 1

    @abc.abstractmethod
    def rate(self) -> float:
        """The probability that a given row is read by a given query."""

    def capacity(self, num_rows: int) -> int:
        """Capacity in rows of a simulation's batch, out of `num_rows` lines."""
        return num_rows

    def neighbours(self, adjacency: Adjacency) -> Neighbours | None:
        """The kind of divergence that prices a Gaussian sum over one of its batches; None without amplification."""
        del adjacency
        return None

    def check_adjacency(self, adjacency: Adjacency, num_rows: int | None = None) -> None:
        """Refuse an adjacency without a theorem, and a table of another size."""
        if adjacency not in self.adjacencies:
            able = " or ".join(self.adjacencies)
            raise InputError(
                f"{self} has no price under adjacency {adjacency}, where a neighbour fills the batch with other rows; "
                f"choose adjacency {able}, or Poisson sampling."
            )
        declared = getattr(self, "num_rows", None)
        if num_rows is not None and declared is not None and declared != num_rows:
            raise InputError(
                f"{self} was set up for {declared} rows, but the table has {num_rows}, so its price would be wrong; "
                "set it up for this table."
            )

    def to_json(self) -> dict[str, Any]:
        """Its name and numbers; `from_json` reads them back."""
        return {"name": self.name, **dataclasses.asdict(self)}

    def __str__(self) -> str:
        """The sampler as cards print it."""
        numbers = ", ".join(f"{key} {value}" for key, value in dataclasses.asdict(self).items())
        return f"{self.name} sampling ({numbers})" if numbers else self.name


@dataclasses.dataclass(frozen=True)
class FullBatch(Sampler):
    """Every query reads every row.

    >>> print(FullBatch())
    full batch
    """

    name: ClassVar[str] = "full batch"

    def rate(self) -> float:
        return 1.0


@dataclasses.dataclass(frozen=True)
class Poisson(Sampler):
    """Every query reads each row with probability `sampling_rate`, independently: batches vary in size.

    >>> print(Poisson(0.03))
    Poisson sampling (sampling_rate 0.03)
    >>> Poisson(0.03).capacity(30_400)
    1130
    """

    sampling_rate: float
    name: ClassVar[str] = "Poisson"

    def __post_init__(self) -> None:
        """Check the rate."""
        if not 0 < self.sampling_rate < 1:
            raise InputError(
                f"a Poisson sampling rate of {self.sampling_rate!r} is not a probability strictly between 0 and 1; "
                "choose one, or read every row with full batches."
            )

    def rate(self) -> float:
        return self.sampling_rate

    def neighbours(self, adjacency: Adjacency) -> Neighbours | None:
        return Neighbours.TWO_SIDED if adjacency is Adjacency.REPLACE_ONE else Neighbours.ONE_SIDED

    def capacity(self, num_rows: int) -> int:
        from scipy.stats import binom  # imported late: it takes 50 MB, and most runs need none of it

        return min(num_rows, int(binom.isf(OVERFLOW, num_rows, self.sampling_rate)) + 1)


@dataclasses.dataclass(frozen=True)
class FixedSize(Sampler):
    """Every query reads `batch_size` of the N rows, drawn without replacement and afresh.

    Its theorem is about replacing a row. Nulling a row is a case of replacing it, and is not cheaper: the batch without
    it holds another row, which may differ from it by up to 2 clipping norms.

    >>> print(FixedSize(1000, 30_400))
    fixed-size sampling (batch_size 1000, num_rows 30400)
    """

    batch_size: int
    num_rows: int
    name: ClassVar[str] = "fixed-size"
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.REPLACE_ONE,)

    def __post_init__(self) -> None:
        """Check the sizes."""
        _check_sizes(self.batch_size, self.num_rows)

    def rate(self) -> float:
        return self.batch_size / self.num_rows

    def neighbours(self, adjacency: Adjacency) -> Neighbours | None:
        return Neighbours.TWO_SIDED

    def capacity(self, num_rows: int) -> int:
        return self.batch_size


@dataclasses.dataclass(frozen=True)
class PermutationEpochs(Sampler):
    """Each epoch cuts a fresh random order of the rows into batches of `batch_size`; leftover rows are not used in that
    epoch.

    A row is in at most one batch per epoch, so an epoch costs what its costliest step costs. There is no amplification:
    numbers proved for Poisson batches do not hold here (Chua et al. 2024).

    >>> PermutationEpochs(1000, 30_400).steps_per_charge
    30
    """

    batch_size: int
    num_rows: int
    name: ClassVar[str] = "permutation epochs"
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)

    def __post_init__(self) -> None:
        """Check the sizes."""
        _check_sizes(self.batch_size, self.num_rows)

    @property
    def steps_per_charge(self) -> int:
        """Number of batches in an epoch."""
        return self.num_rows // self.batch_size

    def rate(self) -> float:
        return self.batch_size / self.num_rows

    def capacity(self, num_rows: int) -> int:
        return self.batch_size


def _check_sizes(batch_size: int, num_rows: int) -> None:
    integral = all(isinstance(size, Integral) and not isinstance(size, bool) for size in (batch_size, num_rows))
    if not integral or not 1 <= batch_size < num_rows:
        raise InputError(
            f"batches of {batch_size!r} rows out of {num_rows!r} are not proper subsets; choose a batch size from 1 to "
            "below the number of rows, or read every row with full batches."
        )


SAMPLERS: dict[str, type[Sampler]] = {cls.name: cls for cls in (FullBatch, Poisson, FixedSize, PermutationEpochs)}


def from_json(description: Mapping[str, Any]) -> Sampler:
    """The sampler that `Sampler.to_json` described.

    >>> from_json({"name": "Poisson", "sampling_rate": 0.1})
    Poisson(sampling_rate=0.1)
    """
    numbers = dict(description)
    name = numbers.pop("name", None)
    if not isinstance(name, str) or name not in SAMPLERS:
        raise InputError(f"sampler {name!r} is unknown; choose one of {', '.join(SAMPLERS)}.")
    try:
        return SAMPLERS[name](**numbers)
    except TypeError as error:
        raise InputError(f"sampler {name!r} cannot be set up from {numbers} ({error}).") from None
