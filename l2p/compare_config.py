"""What `l2p compare` is asked for. Free of JAX, so that the command line can print its help at once."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class CompareConfig:
    """Methods x budgets x seeds on one data set.

    Attributes:
      data: a public data set's name, or a `.csv` or `.parquet` file.
      out: the folder for results.csv, summary.md and figure.png; a comparison found there is resumed.
      target: for a file, its column of targets.
      bounds: for a file, JSON {column: [low, high]} for every feature, and for the target of a regression.
      classes: for a file, the labels that become 0, 1, 2 and so on; `square` is a classifier where they are named.
      model: name of the model; `softmax` takes its number of classes from the data set or `classes`.
      methods: method names, the one that the others are compared with first.
      epsilon: budgets, in nats.
      delta: probability, below one over the number of training rows.
      seeds: how many; seed s fixes split and noise, the same for every method.
      adjacency: which tables are neighbours.
      accountant: for every method; else the one a checkpoint was trained with, else the tightest that applies.
      aux: the auxiliary public set of methods that end in `:tuned`.

    >>> CompareConfig("digits:odd", out=Path("cmp"), methods=("census", "agd")).seeds
    10
    """

    data: str
    out: Path
    target: str | None = None
    bounds: Path | None = None
    classes: tuple[float, ...] | None = None
    model: str = "logistic"
    methods: tuple[str, ...] = ("census", "paper", "agd", "noisygd", "nonprivate")
    epsilon: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    delta: float = 1e-8
    seeds: int = 10
    adjacency: str = "zero_out"
    accountant: str | None = None
    aux: str | None = None
