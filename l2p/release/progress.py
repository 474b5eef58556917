"""How far a run has come: what it needs to go on, and what its card will say."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.oracle.setup import Setup
from l2p.oracle.trace import Records, trace_of
from l2p.privacy.events import Answered
from l2p.privacy.ledger.ledger import Ledger
from l2p.release.learned import GRADIENTS, Evidence, answers_of
from l2p.release.losses.traced_loss import has_callbacks
from l2p.release.planned_run import PlannedRun
from l2p.release.saved_run import ENDED, GOES_ON, SavedRun, open_run
from l2p.run.protector import Protector
from l2p.run.run import Run, Simulation, advance, start
from l2p.task.rows import Rows


@dataclasses.dataclass
class Progress:
    """A run between two blocks of steps.

    Attributes:
      run: the run.
      trace: its granted queries; without the answers to gradient queries, which are as long as params.
      evidence: what those answers said.
    """

    run: Run
    trace: list[Answered]
    evidence: Evidence

    @classmethod
    def begun(cls, run: Run, records: Records, setup: Setup) -> "Progress":
        """The progress of a run that has asked its first queries."""
        return cls(run, trace_of(_without_gradients(records), []), _no_evidence(setup))

    def go_on(self, run: Run, records: Records, setup: Setup) -> None:
        """Take in a block of steps."""
        for answer in answers_of(records, setup):
            self.evidence.add(answer)
        self.trace += trace_of([], [_without_gradients(records)], after=int(self.run.step))
        self.run = run

    def ended(self, num_steps: int) -> bool:
        """Whether a run of so many steps has nothing left to ask."""
        return not self.run.alive or int(self.run.step) >= num_steps

    def save(self, saved: SavedRun, setup: Setup, num_steps: int) -> None:
        """Put it into the run's file, unless it is amid a pass, whose order of rows is not in there."""
        ended = self.ended(num_steps)
        if int(self.run.step) % setup.price_list.sampler.steps_per_charge and not ended:
            return
        leaves = {_name(place): _bytes(leaf) for place, leaf in enumerate(jax.tree.leaves(self.run))}
        saved.save(leaves | self.evidence.arrays(), self.trace, ENDED if ended else GOES_ON)


def restored(saved: SavedRun, planned: PlannedRun) -> Progress | None:
    """The progress in a run's file; None where it has saved nothing yet."""
    if not saved.arrays:
        return None
    places, tree = jax.tree.flatten(_traced(planned, 0, jax.eval_shape))
    leaves = [_array(saved.arrays[_name(place)], shape) for place, shape in enumerate(places)]
    evidence = _no_evidence(planned.setup).with_arrays(saved.arrays)
    return Progress(jax.tree.unflatten(tree, leaves), list(saved.trace), evidence)


def resumed(path: str | Path, planned: PlannedRun, ledger: Ledger | None, buys_bounds: bool) -> SavedRun:
    """The file of a run that was planned.

    Raises:
      InputError: it is that of another run, or what would be missing in it makes going on unsound.
    """
    if buys_bounds:
        raise InputError(
            "a run that buys bounds does not save what it bought, so it cannot be resumed; declare the bounds of every "
            "column, or leave resume out."
        )
    program = _traced(planned, 1, lambda run, *leaves: jax.make_jaxpr(run)(*leaves))
    if has_callbacks(program):
        raise InputError(
            "the protector prints or calls back while it runs, so that answers might be seen that a killed run has "
            "not saved and would not count; take that out of it, or leave resume out."
        )
    return open_run(path, planned.facts, ledger)


def _traced(planned: PlannedRun, num_steps: int, trace: Callable[..., Any]) -> Any:
    """A run of so many steps on rows of zeros, traced by `jax.eval_shape` or `jax.make_jaxpr`: on N of them, since the
    number of lines may be private."""

    def run_on_zeros(protector: Protector, params: jax.Array, setup: Setup, public: Rows | None) -> Run:
        number = jnp.zeros(planned.num_rows)
        rows = Rows(jnp.zeros((planned.num_rows, planned.num_features)), number, number)
        noise = Simulation(jax.random.key(0))
        run, _ = start(protector, params, rows, setup, noise, public)
        return advance(protector, run, rows, setup, noise, num_steps, public)[0] if num_steps else run

    with jax.enable_x64(False):
        return trace(run_on_zeros, planned.named.protector, planned.params, planned.setup, planned.task.public)


def _bytes(leaf: Any) -> np.ndarray:
    """What an array holds, u8[n]: a file has no name for every type."""
    is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.frombuffer(np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes(), np.uint8)


def _array(held: np.ndarray, shape: jax.ShapeDtypeStruct) -> jax.Array:
    """The array of a shape and type that holds these bytes."""
    if not jax.dtypes.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jnp.asarray(np.frombuffer(held.tobytes(), shape.dtype).reshape(shape.shape))
    words = np.frombuffer(held.tobytes(), np.uint32).reshape(*shape.shape, -1)
    return jax.random.wrap_key_data(jnp.asarray(words), impl=jax.random.key_impl(jax.random.key(0)))


def _name(place: int) -> str:
    return f"run{place:04d}"


def _no_evidence(setup: Setup) -> Evidence:
    return Evidence(float(setup.num_rows), float(setup.price_list.sampler.rate()))


def _without_gradients(records: Records) -> Records:
    return [dataclasses.replace(record, answer=None) if record.query in GRADIENTS else record for record in records]
