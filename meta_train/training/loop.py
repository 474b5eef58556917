"""The outer loop: resumable at any time, deterministic given the seed, logged line by line."""

import json
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import orbax.checkpoint as ocp

from l2p.base.errors import InputError
from meta_train import constants, planning
from meta_train.config import Comparison, MetaConfig
from meta_train.training import mappings, preparing
from meta_train.training.gradient_against_search import ship_better, trials
from meta_train.training.methods import method_for
from meta_train.training.progress import draw, read_log
from meta_train.training.saved import claim, claimed, drop_lines_after, interrupted, restore, save
from meta_train.training.settling import MOVED, head_moved, head_of
from meta_train.training.shipping import ship
from meta_train.training.starting_points import between, starting_point
from meta_train.training.watch import Watch

#: Seconds to write the result, on two cores with nothing else to do.
AFTER = 1.0
#: Seconds between saved states.
SAVED = 30.0
#: Outer steps in a row in which no task has a finite gradient, after which a training ends: it would learn nothing.
MOST_LOST = 10


def meta_train(config: MetaConfig, out: Path, watch: Watch | None = None) -> Path:
    """Meta-train as configured, or resume where `out` stopped; returns the path of `out/NAME.safetensors`.

    Every outer step depends on the seed and its own number only, and the state is saved every `eval_every` steps and
    every `SAVED` seconds, so an interrupted training that resumes ends with the same bits as one that was not. What
    ships is what scored best on held-out tasks, the starting point included; with unseen classes, what came out last.
    Of a comparison the two trainings lie in `out/gradient` and `out/search`. Where the watch bounds time, shapes
    that there is no time to compile for are left out, steps are skipped as evenly as it takes to end in time at the
    last learning rate, and gains are measured on as many tasks as fit.

    Raises:
      InputError: `out` holds a training with another config.
    """
    out, watch = Path(out), Watch() if watch is None else watch
    config, is_new = claimed(config, out)
    if isinstance(config, Comparison):
        trained = {name: meta_train(trial, out / name, watch) for name, trial in trials(config).items()}
        return ship_better(config, trained, out)
    start = starting_point(config)
    constants.check_constants(start, config.judging.constants)
    method, outer, is_chosen = method_for(config, start), config.outer, config.selects
    state, update, evaluator = method.state, method.update, method.evaluator
    best = (jnp.array(jnp.inf), state.protector)
    with ocp.CheckpointManager(
        (out / "state").absolute(), options=ocp.CheckpointManagerOptions(max_to_keep=2)
    ) as saved:
        first, seconds, state, best = restore(saved, state, best)
        drop_lines_after(out / "log.jsonl", first)
        began = saved_at = time.monotonic() - seconds
        # Protectors that cannot overspend are selected by held-out tasks (early stopping).
        done, score, logged, lost = first, None, (first, state), 0
        turns, shapes = range(len(config.shapes)), len(config.shapes)
        try:
            if watch.foretells and first < outer.steps:
                setting = config.shapes, method.compiles_networks, outer, config.judging.gain_rounds
                turns = preparing.prepare(*setting, update, evaluator, state, watch, may_leave_out=is_new)
            config = config if len(turns) == shapes else config.of_shapes(turns)
            claim(config, out)
            if is_chosen and first == 0:
                # The starting point is a candidate too, so networks that only did harm are not shipped.
                best = (jnp.array(evaluator.merit(evaluator.before)), state.protector)
            number = planning.next_step(first - 1, first, turns, shapes)
            pace = Pace(watch)
            while number < outer.steps:
                state, metrics = update(state, number)
                line: dict[str, Any] = {"step": number, **{name: float(value) for name, value in metrics.items()}}
                before, done = done, number + 1
                lost = lost + 1 if line.get("finite") == 0.0 else 0
                if lost == MOST_LOST:
                    raise InputError(_nothing_learned(done))
                number = planning.next_step(number, number + pace(outer.steps - done), turns, shapes)
                is_last = number >= outer.steps or watch.is_up()
                done = outer.steps if number >= outer.steps else done
                if done // outer.eval_every > before // outer.eval_every or is_last:
                    line |= (report := evaluator(state.protector))
                    merit, score = jnp.array(evaluator.merit(report)), report["held_out_score"]
                    if not is_chosen or merit < best[0]:
                        best = (merit, state.protector)
                    line |= head_of(state.protector)
                    line["seconds"] = time.monotonic() - began
                # Logged before it is saved: a line too many is dropped on going on, a missing one would stay missing.
                with (out / "log.jsonl").open("a") as log:
                    log.write(json.dumps(line) + "\n")
                logged = done, state
                if "seconds" in line and not watch.is_bound:
                    draw(out)
                if "seconds" in line or time.monotonic() - saved_at > SAVED:
                    save(saved, done, time.monotonic() - began, state, best)
                    saved_at = time.monotonic()
                watch.tell(done, outer.steps, pace.seconds, score)
                if is_last:
                    break
                # Each of the first steps compiles the programs of another shape.
                if done - first <= shapes and (reason := mappings.shortage()):
                    raise InputError(
                        f"{reason} {interrupted(saved, *logged, time.monotonic() - began, best, outer.steps, out)}."
                    )
            watch.release()
            total = time.monotonic() - began
            listed = config.judging.constants
            trained = between(start, best[1], config.start.kept)
            chosen, scores_by_constant = constants.choose(
                trained, listed, lambda candidate: evaluator.merit(evaluator(candidate))
            )
            log = read_log(out / "log.jsonl")
            report = evaluator.final(chosen, lambda: watch.left - AFTER * watch.slowness) | {"steps": len(log)}
            if moved := head_moved(log):
                report |= moved
                watch.say(f"The scheduler's head moved by {moved[MOVED][-1]:.1%} over the last tenth of the training.")
            report |= {"constants": scores_by_constant} if scores_by_constant else {}
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(interrupted(saved, *logged, time.monotonic() - began, best, outer.steps, out))
            raise
    if watch.is_bound:
        draw(out)
    counts = tuple(method.counts[shape] for shape in config.shapes)
    return ship(config, out, chosen, report, total, counts)


class Pace:
    """Number of steps that each one stands for, by the time that steps took: their number is fixed, time is short."""

    def __init__(self, watch: Watch):
        self._watch, self._began, self._num_steps, self.seconds = watch, watch.now(), 0, 0.0

    def __call__(self, to_come: int) -> float:
        """The stride to the next step, where so many are to come; called after each step."""
        self._num_steps += 1
        self.seconds = (self._watch.now() - self._began) / self._num_steps
        return self._watch.stride(self.seconds, to_come)


def _nothing_learned(done: int) -> str:
    return (
        f"no task had a finite gradient in any of the {MOST_LOST} outer steps up to step {done}, so nothing is "
        "learned; runs diverge from this starting point, or a part of it has no finite derivative: start from other "
        'constants, or set damping, or kind "perturbed", which takes no derivative.'
    )
