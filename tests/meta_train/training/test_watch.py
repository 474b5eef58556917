"""The time that a training is given, what it foretells, and what it says on its way."""

import pytest

from l2p.base.errors import InputError
from meta_train.training import watch
from meta_train.training.watch import Watch


class Clock:
    """A clock that stands still."""

    def __init__(self):
        self.at = 0.0

    def __call__(self):
        return self.at


@pytest.fixture
def clock():
    return Clock()


def watch_of(clock, minutes=None):
    lines = []
    return Watch(minutes, say=lines.append, now=clock), lines


def test_a_training_stops_while_there_is_time_to_judge_it(clock):
    bound, lines = watch_of(clock, minutes=10)
    clock.at = 100.0
    bound.set_aside(200.0)
    bound.estimate(step=2.0, check=8.0, steps=1000, eval_every=40)
    # 600 s less 100 s gone and 200 s to judge, for steps of 2.2 s with their share of the checks.
    assert lines == ["about 8 min 19 s to go: 136 steps of 2 s, and 3 min 20 s to judge the result."]
    # A thousand steps would take 2,000 s, and there are 300 s.
    assert bound.stride(2.0, 1000) == pytest.approx(2000 / 300)
    assert bound.stride(0.1, 1000) == 1.0
    clock.at = 600 - 200 - 10.0
    assert not bound.is_up()
    clock.at += 0.1
    assert bound.is_up()
    bound.release()
    assert bound.left == pytest.approx(209.9)


def test_what_goes_on_is_estimated_for_the_steps_that_are_left(clock):
    unbound, lines = watch_of(clock)
    unbound.estimate(step=1.0, check=0.0, steps=10, eval_every=10)
    assert lines == ["about 10 s to go: 10 steps of 1 s, and 0 s to judge the result."]
    clock.at = 1e9
    assert not unbound.is_up()
    assert unbound.stride(1e9, 10) == 1.0


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf"), "ten"])
def test_minutes_that_bound_nothing_are_refused(minutes):
    with pytest.raises(InputError, match="minutes is"):
        Watch(minutes)


def test_a_line_comes_now_and_then_without_a_terminal(clock):
    quiet, lines = watch_of(clock)
    for step in range(1, 10):
        clock.at += watch.ELSEWHERE / 2
        quiet.tell(step, 9, watch.ELSEWHERE / 2, None if step < 5 else -1.5)
    assert lines[0] == "step 2 of 9, about 3 min 30 s to go"
    assert lines[-1] == "step 8 of 9, about 30 s to go, held-out score -1.500 (lower is better)"
    assert len(lines) == 4
