"""Compilation before a training begins: a step and a check for each of its shapes, as long as there is time."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from meta_train import planning
from meta_train.config.drawn import Shape
from meta_train.config.parts import Outer
from meta_train.evaluation.held_out import Evaluator
from meta_train.training.watch import Watch, duration

#: Of the time, set aside for gains on held-out tasks.
JUDGING = 0.08


def prepare(
    shapes: Sequence[Shape],
    has_networks: bool,
    outer: Outer,
    gain_rounds: int,
    update: Callable,
    evaluator: Evaluator,
    state: Any,
    watch: Watch,
    may_leave_out: bool,
) -> list[int]:
    """Compile for the shapes in their order, say how long the training will take, and return the places of the shapes
    that are ready.

    With `may_leave_out`, and where time is bound, those are left out that would take too long, judged by how long the
    ones before them took; never the first.
    """
    places = {shape: place for place, shape in reversed(list(enumerate(shapes)))}
    ready: dict[Shape, float] = {}
    compiled_seconds = expected = 0.0
    models: set[str] = set()
    for number, shape in enumerate(dict.fromkeys(shapes), 1):
        ahead = planning.compiling(shape.num_features or planning.WIDTHS[-1], has_networks)
        ahead *= compiled_seconds / expected if expected else watch.slowness
        share = planning.MORE_SIZES if shape.model in models else planning.MOST_COMPILING
        if may_leave_out and ready and watch.is_bound and watch.elapsed + ahead > share * watch.all:
            continue
        watch.say(
            f"preparing {_shape_text(shape)}, {number} of {len(places)}: about {duration(ahead)}, less if it was before"
        )
        began = watch.now()
        jax.block_until_ready(update(state, places[shape]))
        evaluator.prepare(shape)
        expected += planning.compiling(shape.num_features or planning.WIDTHS[-1], has_networks)
        compiled_seconds += watch.now() - began
        models.add(shape.model)
        ready[shape] = _seconds(watch, lambda shape=shape: jax.block_until_ready(update(state, places[shape])))
    watch.slowness = max(watch.slowness, compiled_seconds / expected) if watch.is_bound else watch.slowness
    if len(ready) < len(places):
        watch.say(_left_out(shapes, [shape for shape in places if shape not in ready]))
    evaluator.keep(ready)
    evaluator(state.protector)
    check = _seconds(watch, lambda: evaluator(state.protector))
    if gain_rounds and watch.is_bound:
        watch.set_aside(max(JUDGING * watch.all, 4 * check))
    turns = [place for place, shape in enumerate(shapes) if shape in ready]
    step = sum(ready[shapes[place]] for place in turns) / len(turns)
    watch.estimate(step, check, outer.steps, outer.eval_every)
    return turns


def _shape_text(shape: Shape) -> str:
    """A shape for people."""
    columns = "tasks of the table's columns" if shape.num_features is None else f"tasks of {shape.num_features} columns"
    return f"{columns} for {shape.model}"


def _left_out(shapes: Sequence[Shape], left_out: list[Shape]) -> str:
    """A sentence on shapes that there was no time for."""
    names = ", ".join(map(_shape_text, sorted(left_out, key=shapes.index)))
    return (
        f"left out for lack of time: {names}; more minutes take them in, and so does the same command in another "
        "folder, which finds the others compiled."
    )


def _seconds(watch: Watch, do: Callable[[], Any]) -> float:
    """Seconds that `do` takes."""
    began = watch.now()
    do()
    return watch.now() - began
