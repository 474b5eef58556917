"""Choice of the shapes that a training compiles for in the time that it has; nothing is compiled here."""

import dataclasses

import pytest

from meta_train.config.many_sources import ManySources
from meta_train.config.parts import Outer
from meta_train.training import preparing
from meta_train.training.watch import Watch

TASKS = ManySources(
    num_features=(4, 4, 12, 4),
    sources=("synthetic", "synthetic:numbers", "synthetic", "synthetic:classes:3"),
    models=("logistic", "square", "logistic", "softmax:3"),
)
#: Of a training with networks, whose gains are measured.
ASKED = TASKS.shapes, True, Outer(), 1


class Clock:
    def __init__(self):
        self.at = 0.0

    def __call__(self):
        return self.at


@dataclasses.dataclass
class Evaluator:
    """Stands for one that takes no time."""

    shapes: tuple = ()

    def prepare(self, shape):
        pass

    def keep(self, shapes):
        self.shapes = tuple(shapes)

    def __call__(self, protector):
        pass


@dataclasses.dataclass
class State:
    protector: None = None


@pytest.mark.parametrize(
    ("minutes", "turns"), [(None, [0, 1, 2, 3]), (20, [0, 1, 2, 3]), (7, [0, 1, 3]), (5, [0, 1]), (2, [0])]
)
def test_shapes_that_would_take_too_long_are_left_out_and_a_model_comes_before_more_sizes(minutes, turns):
    """A shape takes 90 s to compile, and then no time."""
    clock, lines, compiled, evaluator = Clock(), [], set(), Evaluator()

    def update(state, number):
        clock.at += 0.0 if number in compiled else 90.0
        compiled.add(number)
        return state

    watch = Watch(minutes, foretells=True, say=lines.append, now=clock)
    assert preparing.prepare(*ASKED, update, evaluator, State(), watch, may_leave_out=True) == turns
    assert compiled == set(turns)
    assert set(evaluator.shapes) == {TASKS.shapes[turn] for turn in turns}
    assert any(line.startswith("left out for lack of time: ") for line in lines) == (len(turns) < 4)
    assert lines[-1].startswith("about ")
    # A training that goes on compiles for all that it began with.
    again = Watch(minutes, foretells=True, say=lines.append, now=clock)
    assert preparing.prepare(*ASKED, update, evaluator, State(), again, may_leave_out=False) == [0, 1, 2, 3]
