"""Plans for a number of minutes; nothing is compiled."""

import pytest

from l2p.base.errors import InputError
from meta_train import planning
from meta_train.planning import Width, sizes


def widths(tables):
    return [(size.model, size.width, size.tables) for size in sizes(tables)]


def test_tables_of_about_one_width_share_a_size_and_each_is_whole_in_one():
    assert widths([Width(20, "logistic"), Width(24, "logistic"), Width(13, "logistic")]) == [
        ("logistic", 24, (0, 1, 2))
    ]
    # The narrow one cannot be filled up to the wide one's columns, which lends some of its own to the narrow size.
    assert widths([Width(5, "logistic"), Width(145, "logistic")]) == [("logistic", 6, (0, 1)), ("logistic", 150, (1,))]
    for features in (1, 2, 3, 7, 13, 25, 49, 65, 101, 151, 257, 401, 783):
        assert features <= planning.width_for(features) <= 2 * features


def test_every_model_comes_before_more_sizes_of_one():
    tables = [Width(5, "logistic"), Width(300, "logistic"), Width(8, "softmax:3"), Width(60, "square")]
    assert [(model, width) for model, width, _ in widths(tables)] == [
        ("logistic", 6), ("softmax:3", 12), ("square", 64), ("logistic", 400)
    ]  # fmt: skip
    assert widths([Width(5000, "square")]) == [("square", 784, (0,))]


@pytest.mark.parametrize("minutes", [3.0, 10.0, 30.0])
def test_more_minutes_never_train_less(minutes):
    counts = (1, 2, 3, 6)
    networks = [planning.has_networks([24] * count, minutes, 1.0, constants=True) for count in counts]
    assert networks == sorted(networks, reverse=True)
    more = [planning.has_networks([24] * count, 2 * minutes, 1.0, constants=True) for count in counts]
    assert all(later >= earlier for earlier, later in zip(networks, more, strict=True))
    assert planning.steps_for(minutes) <= planning.steps_for(2 * minutes)


def test_three_minutes_do_on_two_idle_cores_and_what_they_do_not_do_is_refused_with_what_does():
    assert planning.has_networks([24], 3.0, 1.0, constants=True)
    assert not planning.has_networks([24] * 3, 3.0, 1.0, constants=True)
    with pytest.raises(InputError, match=r"3 minutes leave no time to train: .* give at least \d+ minutes") as caught:
        planning.has_networks([784], 3.0, 4.0, constants=True)
    enough = float(str(caught.value).split("at least ")[1].split()[0])
    planning.has_networks([784], enough, 4.0, constants=True)


def test_steps_take_turns_and_are_skipped_evenly_to_the_last():
    """Shapes that are trained have equal shares at any pace, and others none."""
    for turns, shapes in (([0], 1), ([0, 1, 2], 3), ([0, 2], 3)):
        for stride in (1, 4.3, 11):
            numbers = [planning.next_step(-1, 0, turns, shapes)]
            while numbers[-1] < 500:
                numbers.append(planning.next_step(numbers[-1], numbers[-1] + stride, turns, shapes))
            shares = [sum(number % shapes == turn for number in numbers) for turn in range(shapes)]
            assert all((share > 0) == (turn in turns) for turn, share in enumerate(shares))
            trained = [shares[turn] for turn in turns]
            assert max(trained) - min(trained) <= 1
            assert len(numbers) >= 500 / (stride + shapes)
