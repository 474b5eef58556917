"""The public rows of a comparison: a part of every split, which some methods read for nothing."""

import dataclasses
import hashlib
from typing import Any

import jax
import numpy as np

from l2p.base.errors import InputError
from l2p.compare.config import CompareConfig
from l2p.models import Model, Softmax
from l2p.run.simulate import split, train_size
from l2p.tables.public_data import apart, on_card
from l2p.task.rows import Rows
from l2p.task.task import Task

#: Share of the training rows that is public for two classes and for numbers, and rows per class for more classes.
SHARE, PER_CLASS = 0.001, 2
#: Seeds whose public rows are part of a comparison's identity.
_SEEDS = 4


@dataclasses.dataclass(frozen=True, eq=False)
class PublicPart:
    """Choice of the public rows: those of a file, or rows drawn from the training rows of every split.

    Attributes:
      labels: of classes; None for numbers.
      share: of the training rows, or None for `per_class`.
      per_class: rows of each class, or None for `share`.
      shift: how far public rows are drawn away from private ones, in standard deviations; 0 draws them uniformly.
      file: rows of a file, in place of drawn ones.
    """

    labels: tuple[float, ...] | None
    share: float | None = None
    per_class: int | None = None
    shift: float = 0.0
    file: Rows | None = None

    @classmethod
    def of(cls, config: CompareConfig, model: Model, kind: str, file: Rows | None = None) -> "PublicPart":
        """The public part that a comparison asks for, with defaults for options that it leaves out.

        Raises:
          InputError: its options contradict each other, or do not make sense.
        """
        labels = None if kind == "regression" else model.labels
        share, per_class, shift = config.public_share, config.public_per_class, config.public_shift
        if file is not None:
            if drawing := [name for name in ("share", "per_class", "shift") if getattr(config, f"public_{name}")]:
                raise InputError(
                    f"--public names the public rows, and --public-{drawing[0].replace('_', '-')} draws others; leave "
                    "out one of the two."
                )
            return cls(labels, file=file)
        if share is not None and per_class is not None:
            raise InputError(
                "--public-share and --public-per-class both say how many rows are public; leave out one of the two."
            )
        if share is not None and not 0 < share < 1:
            raise InputError(f"--public-share is {share:g}, which is no share of the rows; choose one such as 0.001.")
        if per_class is not None and (labels is None or per_class < 1):
            raise InputError(
                f"--public-per-class is {per_class}, but "
                + ("numbers have no classes" if labels is None else "each class needs a row")
                + "; choose 1 or more for classes, or --public-share."
            )
        if not np.isfinite(shift) or shift < 0:
            raise InputError(
                f"--public-shift is {shift:g}, which is no distance; choose 0 or more standard deviations, such as 1."
            )
        if share is None and per_class is None:
            share, per_class = (None, PER_CLASS) if isinstance(model, Softmax) else (SHARE, None)
        return cls(labels, share, per_class, shift)

    def size(self, num_train: int) -> int:
        """Number of public rows beside, or among, so many training rows: the same for every seed."""
        if self.file is not None:
            return int((np.asarray(self.file.mask) > 0).sum())
        classes = 0 if self.labels is None else len(self.labels)
        if self.per_class is not None:
            return self.per_class * classes
        return max(classes, 1, round((self.share or 0.0) * num_train))

    def chosen(self, train: Rows, seed: int) -> np.ndarray:
        """Indices i64[k] of the training rows that are public, fixed by the seed.

        Rows are drawn without replacement, with probabilities that grow along a random direction of the features, by
        exp(shift * z) for rows that lie z standard deviations along it. For normally distributed features that moves
        their mean by `shift` standard deviations. The first row or rows of each class always are.

        Raises:
          InputError: the training rows have too few of a class, or too few at all.
        """
        key = jax.random.key_data(jax.random.fold_in(jax.random.key(seed), 3))
        draw = np.random.default_rng(np.asarray(key))
        x, y = np.asarray(train.x, np.float64), np.asarray(train.y)
        along = x @ draw.normal(size=x.shape[1])
        z = (along - along.mean()) / max(along.std(), 1e-12)
        # The order of scores with Gumbel noise is that of draws without replacement.
        ranked = np.argsort(-(self.shift * z + draw.gumbel(size=len(y))), kind="stable")
        size, first = self.size(len(y)), ranked[:0]
        if self.labels is not None:
            least = self.per_class or 1
            of_class = [ranked[y[ranked] == label][:least] for label in self.labels]
            if any(len(places) < least for places in of_class):
                raise InputError(
                    f"a public part needs {least} rows of each class, and the training rows of seed {seed} lack them; "
                    "ask for fewer (--public-per-class), or name a file of public rows."
                )
            first = np.concatenate(of_class)
        if size >= len(y):
            raise InputError(f"a public part of {size} rows leaves no private row to train on; ask for a smaller one.")
        return np.concatenate([first, ranked[~np.isin(ranked, first)]])[:size]

    def task(self, rows: Rows, seed: int) -> Task:
        """A seed's split with its public part; private rows that equal a public one are null, as in a release."""
        task = split(rows, seed)
        private, public = task.private, self.file
        assert isinstance(private, Rows)
        if public is None:
            part = self.chosen(private, seed)
            public = _pick(private, part)
            private = _pick(private, np.setdiff1d(np.arange(len(private.y)), part))
        return dataclasses.replace(task, private=apart(private, public), public=public)

    def merged(self, rows: Rows, seed: int) -> Task:
        """The same rows, all of them private: rows drawn from the training rows stay there."""
        task = split(rows, seed)
        if self.file is None:
            return task
        both = jax.tree.map(lambda private, public: np.concatenate([private, public]), task.private, self.file)
        return dataclasses.replace(task, private=both)

    def facts(self, rows: Rows) -> dict[str, Any]:
        """The facts of the public part that determine a comparison's numbers."""
        if self.file is not None:
            digest = (on_card(self.file) or {})["sha256"]
        else:
            parts = [self.chosen(split(rows, seed).private, seed) for seed in range(_SEEDS)]  # pyrefly: ignore
            digest = hashlib.sha256(np.concatenate(parts).astype("<i8").tobytes()).hexdigest()
        return {**self.stated(), "public_sha256": digest}

    def stated(self) -> dict[str, Any]:
        """The part of `facts` that the options state."""
        return {
            "public_share": self.share,
            "public_per_class": self.per_class,
            "public_shift": self.shift,
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Division:
    """Division of a method's rows into private and test rows, and public ones if it reads them.

    Attributes:
      part: the comparison's public part; None without one.
      reads_public: whether this method reads it for nothing; otherwise all of it is private.
    """

    part: PublicPart | None = None
    reads_public: bool = False

    def __call__(self, rows: Rows, seed: int) -> Task:
        """A seed's rows."""
        if self.part is None:
            return split(rows, seed)
        return self.part.task(rows, seed) if self.reads_public else self.part.merged(rows, seed)

    def num_private(self, rows: Rows) -> int:
        """N of every seed's private rows."""
        num_train = train_size(rows)
        if self.part is None:
            return num_train
        size, from_file = self.part.size(num_train), self.part.file is not None
        if self.reads_public:
            return num_train if from_file else num_train - size
        return num_train + size if from_file else num_train


#: Without public rows.
WHOLE = Division()


def _pick(rows: Rows, part: np.ndarray) -> Rows:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[part], rows)
