"""Saved states of a training, from which it goes on where it was interrupted."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from l2p.base.errors import InputError
from meta_train.config import MetaConfig, from_fields

#: In a training's folder: its config.
CONFIG = "config.json"


def interrupted(
    saved: ocp.CheckpointManager, done: int, state: Any, seconds: float, best: Any, steps: int, out: Path
) -> str:
    """Save an interrupted training; a sentence on what was saved."""
    if done == 0:
        return f"No step was finished, so there is nothing to keep in {out}; the same command begins anew."
    if saved.latest_step() != done:
        save(saved, done, seconds, state, best)
    return f"{done} of {steps} steps are kept in {out}; go on with l2p meta-train --resume --out {out}"


def claimed(config: MetaConfig, out: Path) -> tuple[MetaConfig, bool]:
    """The config of the training in a folder, if that is this one or one with some of its shapes, and whether there is
    none yet; `InputError` if it is another."""
    path = out / CONFIG
    if not path.exists():
        return config, True
    try:
        stored_config = from_fields(json.loads(path.read_text(encoding="utf-8")), path)
    except (OSError, ValueError, InputError) as error:
        raise InputError(f"{path} is no config that this version writes ({error}); choose another folder.") from error
    places = [place for place, shape in enumerate(config.shapes) if shape in stored_config.shapes]
    if stored_config != config and not (places and stored_config == config.of_shapes(places)):
        raise InputError(f"{out} holds a training with another config; choose another folder.")
    return stored_config, False


def claim(config: MetaConfig, out: Path) -> None:
    """Write the config into the folder of its training."""
    out.mkdir(parents=True, exist_ok=True)
    (out / CONFIG).write_text(json.dumps(config.flat(), indent=2))


def restore(saved: ocp.CheckpointManager, state: Any, best: Any) -> tuple[int, float, Any, Any]:
    """The last saved step, the seconds it took to get there, and the state; or the start."""
    step = saved.latest_step()
    if step is None:
        return 0, 0.0, state, best
    tree = {"state": _leaves(state), "best": _leaves(best), "seconds": np.zeros(())}
    restored = saved.restore(step, args=ocp.args.StandardRestore(jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)))
    return step, float(restored["seconds"]), _unleave(state, restored["state"]), _unleave(best, restored["best"])


def drop_lines_after(log: Path, step: int) -> None:
    """Drop lines of steps that an interrupted training logged but did not save: they will be repeated."""
    if log.exists():
        saved_lines = [line for line in log.read_text().splitlines() if json.loads(line)["step"] < step]
        log.write_text("".join(line + "\n" for line in saved_lines))


def save(saved: ocp.CheckpointManager, step: int, seconds: float, state: Any, best: Any) -> None:
    """Save the state after so many outer steps, and how long they took."""
    tree = {"state": _leaves(state), "best": _leaves(best), "seconds": np.asarray(seconds)}
    saved.save(step, args=ocp.args.StandardSave(tree))
    saved.wait_until_finished()


def _leaves(tree: Any) -> dict[str, jax.Array]:
    """Leaves by number: the structure is rebuilt from the config, so only values are stored."""
    return {f"{index:04d}": jnp.asarray(leaf) for index, leaf in enumerate(jax.tree.leaves(tree))}


def _unleave(tree: Any, leaves: dict[str, jax.Array]) -> Any:
    return jax.tree.unflatten(jax.tree.structure(tree), [leaves[name] for name in sorted(leaves)])
