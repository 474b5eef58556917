"""A training as a config describes it: everything that decides its outcome, in parts. A kind of training is a class
that says which parts it has."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from l2p.base.errors import InputError
from meta_train.config import fields
from meta_train.config.bands import BANDS
from meta_train.config.checks import refuse
from meta_train.config.drawn import Shape, Tasks
from meta_train.config.learners import Learner, RandomSearch
from meta_train.config.parts import Judging, Outer, Scoring, Simulated, Start

#: The field of a file that names the kind.
KIND = "kind"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetaConfig:
    """A meta-training, reproducible from its fields.

    In files, on cards and in `of` and `but` the fields of all parts stand side by side.

    Attributes:
      name: name of the checkpoint it makes.
      start: the protector that is trained.
      tasks: that it is trained on.
      learner: of the outer steps.
      outer: number of steps, and seed.
      scoring: of runs.
      simulated: budgets of runs.
      judging: held-out tasks.
    """

    kind: ClassVar[str]
    name: str
    start: Start
    tasks: Tasks
    learner: Learner | RandomSearch
    outer: Outer
    scoring: Scoring
    simulated: Simulated
    judging: Judging

    def __post_init__(self):
        if self.name != Path(self.name).name:
            refuse(self, "name", "it is a file name; leave out folders")
        if 0 < self.judging.gain_rounds * self.judging.eval_tasks * self._fewest_shapes < 2 * BANDS:
            raise InputError(
                "gains with a single task in a band have no standard error, and they are measured for every source and "
                f"model; choose more gain_rounds, or at least {2 * BANDS} eval_tasks."
            )

    @property
    def _fewest_shapes(self) -> int:
        """The number of shapes of the source and model with the fewest."""
        kinds = [(shape.source, shape.model) for shape in set(self.shapes)]
        return min(map(kinds.count, kinds))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes that outer steps cycle through."""
        return self.tasks.shapes

    @property
    def selects(self) -> bool:
        """True if the protector that scored best on held-out tasks ships, and not the last one."""
        return True

    @classmethod
    def of(cls, name: str, protector: str, **values: Any) -> Self:
        """A training of this kind; flat fields without a value have their defaults.

        Raises:
          InputError: a field is not of this kind, is missing, or has a value that cannot be run.
        """
        return cls.from_flat({"name": name, "protector": protector, **values})

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> Self:
        """A training of this kind from its flat fields.

        Raises:
          InputError: as of `of`.
        """
        types = fields.types_of(cls)
        if unknown := [name for name in values if name not in types]:
            raise InputError(
                f"a training of kind {cls.kind!r} has no {', '.join(unknown)}; choose among {', '.join(types)}."
            )
        if missing := [name for name in fields.required(cls) if name not in values]:
            raise InputError(f"a training of kind {cls.kind!r} needs {', '.join(missing)}; say what.")
        return fields.build(cls, values)

    def but(self, **changes: Any) -> Self:
        """The same with other values of some flat fields."""
        return self.from_flat(fields.flat(self) | changes)

    def of_shapes(self, places: Sequence[int]) -> Self:
        """The same with tasks of some of the shapes."""
        return dataclasses.replace(self, tasks=self.tasks.of_shapes(places))

    def flat(self) -> dict[str, Any]:
        """Its kind and flat fields."""
        return {KIND: self.kind, **fields.flat(self)}

    def common(self, kind: type["MetaConfig"]) -> Mapping[str, Any]:
        """Those of its flat fields that another kind has, too."""
        return {name: value for name, value in fields.flat(self).items() if name in fields.types_of(kind)}
