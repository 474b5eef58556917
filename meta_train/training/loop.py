"""The outer loop: resumable at any time, deterministic given the seed, logged line by line."""

import json
import platform
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from l2p.checkpoints import checkpoint
from l2p.data.own import is_own
from l2p.errors import InputError
from l2p.privacy.accountants import find
from l2p.protector import Protector
from meta_train import constants, planning
from meta_train.config import MetaConfig
from meta_train.evaluation.held_out import Evaluator
from meta_train.tasks.fresh_rows import with_fresh_rows
from meta_train.tasks.other_classes import along_other_classes
from meta_train.tasks.own_tables import card_entries
from meta_train.tasks.sources import families
from meta_train.training import gradients, perturbed, preparing, search
from meta_train.training.gradient_against_search import ship_better, trials
from meta_train.training.progress import draw
from meta_train.training.starting_points import starting_point
from meta_train.training.watch import Watch

#: A protector that is fine-tuned on a user's tables serves tables of up to so many times their columns, or that
#: fraction of them, as far as its start does.
REACH = 2

#: In a training's folder: its config.
CONFIG = "config.json"
#: Seconds to write the result, on two cores with nothing else to do.
AFTER = 1.0
#: Seconds between saved states.
SAVED = 30.0
#: Outer steps in a row in which no task has a finite gradient, after which a training ends: it would learn nothing.
MOST_LOST = 10
METHODS: dict[str, Any] = {"gradient": gradients, "search": search, "evolution": perturbed}


def meta_train(config: MetaConfig, out: Path, watch: Watch | None = None) -> Path:
    """Meta-train as configured, or resume where `out` stopped; returns the path of `out/NAME.safetensors`.

    Every outer step depends on the seed and its own number only, and the state is saved every `eval_every` steps and
    every `SAVED` seconds, so an interrupted training that resumes ends with the same bits as one that was not. What
    ships is what scored best on held-out tasks, the starting point included; with unseen classes, what came out last.
    With method "both" the two trainings lie in `out/gradient` and `out/search`. Where the watch bounds time, shapes
    that there is no time to compile for are left out, steps are skipped as evenly as it takes to end in time at the
    last learning rate, and gains are measured on as many tasks as fit.

    Raises:
      InputError: `out` holds a training with another config.
    """
    out, watch = Path(out), Watch() if watch is None else watch
    config, is_new = _claimed(config, out)
    if config.method == "both":
        trained = {method: meta_train(trial, out / method, watch) for method, trial in trials(config).items()}
        return ship_better(config, trained, out)
    train, held_out = along_other_classes(*families(config.source), config.directions, config.unseen)
    if config.fresh_rows and config.sources is None:
        train, held_out = with_fresh_rows(train, held_out, config.unseen)
    method = METHODS[config.method]
    start = starting_point(config)
    constants.check(start, config.constants)
    gradients.check_tunes(start, config)
    state = method.init(start, config)
    best = (jnp.array(jnp.inf), state.protector)
    with ocp.CheckpointManager(
        (out / "state").absolute(), options=ocp.CheckpointManagerOptions(max_to_keep=2)
    ) as saved:
        first, seconds, state, best = _restore(saved, state, best)
        _drop_lines_after(out / "log.jsonl", first)
        evaluator = Evaluator(config, held_out, start)
        evolves = config.method == "evolution"
        update = perturbed.compiled(config, evaluator) if evolves else method.compiled(config, train, start)
        began = saved_at = time.monotonic() - seconds
        # Protectors that cannot overspend are selected by held-out tasks (early stopping). Those under a constraint are
        # kept as they end, and so are those to be tested on unseen classes, which must not be used for selection.
        chooses = config.constraint == "share" and config.unseen is None
        done, score, logged, lost = first, None, (first, state), 0
        turns, shapes = range(len(config.shapes)), len(config.shapes)
        try:
            if watch.foretells and first < config.steps:
                turns = preparing.prepare(config, update, evaluator, state, watch, may_leave_out=is_new)
            config = config if len(turns) == shapes else config.of_shapes(turns)
            _claim(config, out)
            if chooses and first == 0:
                # The starting point is a candidate too, so networks that only did harm are not shipped.
                best = (jnp.array(evaluator.merit(evaluator.before)), state.protector)
            number = planning.next_step(first - 1, first, turns, shapes)
            pace = Pace(watch)
            while number < config.steps:
                state, metrics = update(state, number)
                line: dict[str, Any] = {"step": number, **{name: float(value) for name, value in metrics.items()}}
                before, done = done, number + 1
                lost = lost + 1 if line.get("finite") == 0.0 else 0
                if lost == MOST_LOST:
                    raise InputError(_nothing_learned(done))
                number = planning.next_step(number, number + pace(config.steps - done), turns, shapes)
                is_last = number >= config.steps or watch.is_up()
                done = config.steps if number >= config.steps else done
                if done // config.eval_every > before // config.eval_every or is_last:
                    line |= (report := evaluator(state.protector))
                    merit, score = jnp.array(evaluator.merit(report)), report["held_out_score"]
                    if not chooses or merit < best[0]:
                        best = (merit, state.protector)
                    line["seconds"] = time.monotonic() - began
                # Logged before it is saved: a line too many is dropped on going on, a missing one would stay missing.
                with (out / "log.jsonl").open("a") as log:
                    log.write(json.dumps(line) + "\n")
                logged = done, state
                if "seconds" in line and not watch.is_bound:
                    draw(out)
                if "seconds" in line or time.monotonic() - saved_at > SAVED:
                    _save(saved, done, time.monotonic() - began, state, best)
                    saved_at = time.monotonic()
                watch.tell(done, config.steps, pace.seconds, score)
                if is_last:
                    break
            watch.release()
            total = time.monotonic() - began
            chosen, told = constants.choose(best[1], config.constants, lambda one: evaluator.merit(evaluator(one)))
            taken = len((out / "log.jsonl").read_text().splitlines())
            report = evaluator.final(chosen, lambda: watch.left - AFTER * watch.slowness) | {"steps": taken}
            report |= {"constants": told} if told else {}
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(_kept(saved, *logged, time.monotonic() - began, best, config, out))
            raise
    if watch.is_bound:
        draw(out)
    counts = config.num_features or (int(train.max_features),)
    return _ship(config, out, chosen, report, total, counts)


class Pace:
    """How many steps each has to stand for, from how long they took: their number is fixed, and time may be short."""

    def __init__(self, watch: Watch):
        self._watch, self._began, self._taken, self.seconds = watch, watch.now(), 0, 0.0

    def __call__(self, to_come: int) -> float:
        """The stride to the next step, where so many are to come; called after each step."""
        self._taken += 1
        self.seconds = (self._watch.now() - self._began) / self._taken
        return self._watch.stride(self.seconds, to_come)


def _nothing_learned(done: int) -> str:
    return (
        f"no task had a finite gradient in any of the {MOST_LOST} outer steps up to step {done}, so nothing is "
        "learned; runs diverge from this starting point, or a part of it has no finite derivative: start from other "
        'constants, or set damping, or estimator "evolution", which takes no derivative.'
    )


def _kept(
    saved: ocp.CheckpointManager, done: int, state: Any, seconds: float, best: Any, config: MetaConfig, out: Path
) -> str:
    """Save an interrupted training; a sentence on what was kept."""
    if done == 0:
        return f"No step was finished, so there is nothing to keep in {out}; the same command begins anew."
    if saved.latest_step() != done:
        _save(saved, done, seconds, state, best)
    return f"{done} of {config.steps} steps are kept in {out}; go on with l2p meta-train --resume --out {out}"


def _claimed(config: MetaConfig, out: Path) -> tuple[MetaConfig, bool]:
    """The config of the training in a folder, if that is this one or one with some of its shapes, and whether there is
    none yet; `InputError` if it is another."""
    path = out / CONFIG
    if not path.exists():
        return config, True
    try:
        known = MetaConfig.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} is no config that this version writes ({error}); choose another folder.") from error
    places = [place for place, shape in enumerate(config.shapes) if shape in known.shapes]
    if known not in (config, config.of_shapes(places)):
        raise InputError(f"{out} holds a training with another config; choose another folder.")
    return known, False


def _claim(config: MetaConfig, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / CONFIG).write_text(json.dumps(config.__dict__, indent=2))


def _restore(saved: ocp.CheckpointManager, state: Any, best: Any) -> tuple[int, float, Any, Any]:
    """The last saved step, the seconds it took to get there, and the state; or the start."""
    step = saved.latest_step()
    if step is None:
        return 0, 0.0, state, best
    tree = {"state": _leaves(state), "best": _leaves(best), "seconds": np.zeros(())}
    restored = saved.restore(step, args=ocp.args.StandardRestore(jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)))
    return step, float(restored["seconds"]), _unleave(state, restored["state"]), _unleave(best, restored["best"])


def _drop_lines_after(log: Path, step: int) -> None:
    """Drop lines of steps that an interrupted training logged but did not save: they will be repeated."""
    if log.exists():
        kept = [line for line in log.read_text().splitlines() if json.loads(line)["step"] < step]
        log.write_text("".join(line + "\n" for line in kept))


def _save(saved: ocp.CheckpointManager, step: int, seconds: float, state: Any, best: Any) -> None:
    tree = {"state": _leaves(state), "best": _leaves(best), "seconds": np.asarray(seconds)}
    saved.save(step, args=ocp.args.StandardSave(tree))
    saved.wait_until_finished()


def _leaves(tree: Any) -> dict[str, jax.Array]:
    """Leaves by number: the structure is rebuilt from the config, so only values are stored."""
    return {f"{index:04d}": jnp.asarray(leaf) for index, leaf in enumerate(jax.tree.leaves(tree))}


def _unleave(tree: Any, leaves: dict[str, jax.Array]) -> Any:
    return jax.tree.unflatten(jax.tree.structure(tree), [leaves[name] for name in sorted(leaves)])


def _made_for(config: MetaConfig, counts: tuple[int, ...], warm: checkpoint.Checkpoint | None) -> list[int]:
    """Numbers of columns that a protector is made for: those it was trained on.

    One that is fine-tuned on a user's tables was first trained on many more, and reaches beyond theirs within those.
    What is tuned for wide tables alone serves all others as before, and steps along the line serve what their start
    does.
    """
    # Tasks of a user's tables are filled up with columns of zeros, or have some of very many.
    counts = tuple(table["features"] for table in card_entries(config.all_sources)) or counts
    low, high = min(counts), max(counts)
    start = None if warm is None else warm.card["range"].get("num_features")
    if start is not None and config.adds:
        return [start[0], high if config.tunes == "wide" else start[1]]
    return [low, high] if start is None or not _is_users(config) else _reach((low, high), start)


def _is_users(config: MetaConfig) -> bool:
    """Whether tasks come from a user's own tables."""
    return any(map(is_own, config.all_sources))


def _reach(own: Sequence[int], start: Sequence[int]) -> list[int]:
    """Ends of a range around those of a user's tables, as far as the start's range goes."""
    low, high = min(own), max(own)
    return [min(low, max(start[0], low // REACH)), max(high, min(start[1], high * REACH))]


def _classes(config: MetaConfig, warm: checkpoint.Checkpoint | None) -> tuple[int, ...] | None:
    """Numbers of classes that it was trained on, if the config lists several."""
    own = config.num_classes or ()
    if _is_users(config) and warm is not None:
        counts = [len(config.find_model(shape).labels) for shape in config.shapes]
        start = warm.card["range"].get("num_classes")
        return None if start is None or max(counts) <= 2 else tuple(_reach(counts, start))
    if config.models is not None:
        own = tuple(len(config.find_model(shape).labels) for shape in config.shapes)
    before = () if warm is None or not config.adds else warm.card["range"].get("num_classes", ())
    return (*before, *own) or None


def _models(config: MetaConfig, warm: checkpoint.Checkpoint | None) -> list[str]:
    """Models that it trains."""
    before = [] if warm is None or not config.adds else warm.card["models"]
    return list(dict.fromkeys([*before, *config.all_models]))


def _ship(
    config: MetaConfig, out: Path, protector: Protector, report: dict[str, Any], seconds: float, counts: tuple[int, ...]
) -> Path:
    """Write the frozen protector with its card."""
    path = out / f"{config.name}{checkpoint.SUFFIX}"
    warm = None if config.warm_start is None else checkpoint.load(config.warm_start)
    card = {
        "name": config.name,
        "models": _models(config, warm),
        # The sources of the starting point are sources of this protector, too.
        "sources": sorted({*config.all_sources, *(warm.card["sources"] if warm else ())}),
        "warm_start_arrays_sha256": None if warm is None else warm.arrays_sha256,
        # Named if it is the constraint's unit or a method's own; otherwise runs take the tightest there is.
        "accountant": config.accountant if find(config.accountant).binds else None,
        "range": {
            "log_signal": list(config.log_signal),
            "num_features": _made_for(config, counts, warm),
            **{
                name: [min(listed), max(listed)]
                for name, listed in (("num_classes", _classes(config, warm)), ("sampling_rate", config.sampling_rates))
                if listed is not None
            },
        },
        "budgets": f"every (epsilon, delta) and N with log(mu N) in [{config.log_signal[0]}, {config.log_signal[1]}]",
        "seed": config.seed,
        "command": f"l2p meta-train --like {config.name} --out OUT",
        "config": config.__dict__,
        # Beside what names them: whoever asks whether a table of theirs was among them needs the whole SHA-256.
        **({"tables": tables} if (tables := card_entries(config.all_sources)) else {}),
        "held_out": report,
        "seconds": round(seconds, 1),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "platform": f"{platform.machine()}, {jax.default_backend()}",
    }
    checkpoint.save(protector, path, card)
    return path
