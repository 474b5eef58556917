"""Models, budgets and families that a config names, looked up once for every shape of its tasks."""

import dataclasses

from l2p.models import Model
from l2p.run.protector import Protector
from meta_train.config.drawn import Shape, Tasks
from meta_train.config.parts import Simulated
from meta_train.evaluation.budgets import Budgets, budgets_of_shapes
from meta_train.tasks.family import Family


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A shape of tasks.

    Attributes:
      shape: by its names.
      model: that is trained on them.
      budgets: at which runs on them are simulated.
      train: family of the tasks to train on.
      held_out: family of those to judge by.
    """

    shape: Shape
    model: Model
    budgets: Budgets
    train: Family
    held_out: Family


def resolve(tasks: Tasks, simulated: Simulated, start: Protector) -> dict[Shape, Resolved]:
    """Every different shape of the tasks, in their order; budgets are those of runs like the start's.

    Raises:
      InputError: a model does not fit the targets of its source, or the accountant the protector.
    """
    family_of, by_shape = tasks.open(), {}
    for shape, budgets in budgets_of_shapes(simulated, tasks, start).items():
        classes = tasks.drawn_classes(shape)
        train, held_out = (family.with_num_classes(classes) for family in family_of(shape))
        by_shape[shape] = Resolved(shape, tasks.find_model(shape), budgets, train, held_out)
    return by_shape
