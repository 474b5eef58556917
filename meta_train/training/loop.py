"""The outer loop: resumable at any time, deterministic given the seed, logged line by line."""

import json
import platform
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from l2p.checkpoints import checkpoint
from l2p.errors import InputError
from l2p.models import plain_name
from l2p.privacy.accountants import find
from l2p.protector import Protector
from meta_train.config import MetaConfig
from meta_train.evaluation.held_out import Evaluator
from meta_train.tasks.fresh_rows import with_fresh_rows
from meta_train.tasks.other_classes import along_other_classes
from meta_train.tasks.sources import families, parts_of
from meta_train.training import gradients, search
from meta_train.training.gradient_against_search import ship_better, trials
from meta_train.training.progress import draw
from meta_train.training.starting_points import starting_point

METHODS: dict[str, Any] = {"gradient": gradients, "search": search}


def meta_train(config: MetaConfig, out: Path, progress: bool = False) -> Path:
    """Meta-train as configured, or resume where `out` stopped; returns the path of `out/NAME.safetensors`.

    Every outer step depends only on the seed and its own number, and the state is saved every `eval_every` steps, so an
    interrupted and resumed training ends bit-identical to an uninterrupted one. The protector with the best score on
    held-out tasks ships, the starting point included; with unseen classes, the last one. With method "both" the two
    trainings are in `out/gradient` and `out/search`.

    Raises:
      InputError: `out` holds a training with another config.
    """
    out = Path(out)
    _claim(config, out)
    if config.method == "both":
        trained = {method: meta_train(trial, out / method, progress) for method, trial in trials(config).items()}
        return ship_better(config, trained, out)
    train, held_out = along_other_classes(*families(config.source), config.directions, config.unseen)
    if config.fresh_rows:
        train, held_out = with_fresh_rows(train, held_out, config.unseen)
    method = METHODS[config.method]
    start = starting_point(config)
    state = method.init(start, config)
    best = (jnp.array(jnp.inf), state.protector)
    with ocp.CheckpointManager(
        (out / "state").absolute(), options=ocp.CheckpointManagerOptions(max_to_keep=2)
    ) as saved:
        first, seconds, state, best = _restore(saved, state, best)
        _drop_lines_after(out / "log.jsonl", first)
        update = method.compiled(config, train, start)
        evaluator = Evaluator(config, held_out, start)
        began = time.monotonic() - seconds
        # Protectors that cannot overspend are selected by held-out tasks (early stopping). Those under a constraint are
        # kept as they end, and so are those to be tested on unseen classes, which must not be used for selection.
        chooses = config.constraint == "share" and config.unseen is None
        if chooses and first == 0:
            # The starting point is a candidate too, so networks that only did harm are not shipped.
            best = (jnp.array(evaluator.merit(evaluator.before)), state.protector)
        for step in _steps(first, config.steps, progress):
            state, metrics = update(state, step)
            line: dict[str, Any] = {"step": step, **{name: float(value) for name, value in metrics.items()}}
            if (step + 1) % config.eval_every == 0 or step + 1 == config.steps:
                line |= (report := evaluator(state.protector))
                merit = jnp.array(evaluator.merit(report))
                if not chooses or merit < best[0]:
                    best = (merit, state.protector)
                line["seconds"] = time.monotonic() - began
            # Logged before saving: an extra line is dropped when resuming, a missing one would stay missing.
            with (out / "log.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
            if "seconds" in line:
                draw(out)
                _save(saved, step + 1, line["seconds"], state, best)
        total = time.monotonic() - began
    counts = config.num_features or (int(train.max_features),)
    return _ship(config, out, best[1], evaluator.final(best[1]), total, counts)


def _claim(config: MetaConfig, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    path, text = out / "config.json", json.dumps(config.__dict__, indent=2)
    if path.exists() and path.read_text() != text:
        raise InputError(f"{out} holds a training with another config; choose another folder.")
    path.write_text(text)


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


def _steps(first: int, last: int, progress: bool) -> Iterator[int]:
    if not progress:
        return iter(range(first, last))
    from rich.progress import track

    return iter(track(range(first, last), description="meta-training", total=last - first))


def _ship(
    config: MetaConfig, out: Path, protector: Protector, report: dict[str, Any], seconds: float, counts: tuple[int, ...]
) -> Path:
    """Write the frozen protector with its card."""
    path = out / f"{config.name}.safetensors"
    warm = None if config.warm_start is None else checkpoint.load(config.warm_start)
    card = {
        "name": config.name,
        "models": [plain_name(config.model)],
        # The sources of the starting point are sources of this protector, too.
        "sources": sorted({*parts_of(config.source), *(warm.card["sources"] if warm else ())}),
        "warm_start_arrays_sha256": None if warm is None else warm.arrays_sha256,
        # Named if it is the constraint's unit or a method's own; otherwise runs take the tightest there is.
        "accountant": config.accountant if find(config.accountant).binds else None,
        "range": {
            "log_signal": list(config.log_signal),
            "num_features": [min(counts), max(counts)],
            **{
                name: [min(listed), max(listed)]
                for name, listed in (("num_classes", config.num_classes), ("sampling_rate", config.sampling_rates))
                if listed is not None
            },
        },
        "budgets": f"every (epsilon, delta) and N with log(mu N) in [{config.log_signal[0]}, {config.log_signal[1]}]",
        "seed": config.seed,
        "command": f"l2p meta-train --like {config.name} --out OUT",
        "config": config.__dict__,
        "held_out": report,
        "seconds": round(seconds, 1),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "platform": f"{platform.machine()}, {jax.default_backend()}",
    }
    checkpoint.save(protector, path, card)
    return path
