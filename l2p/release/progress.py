"""How far a run has come: what it needs to go on, and what its card will say."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from l2p.oracle.setup import Setup
from l2p.oracle.trace import Records, trace_of
from l2p.privacy.events import Answered
from l2p.release.learned import GRADIENTS, Evidence, answers_of
from l2p.release.planned_run import PlannedRun
from l2p.release.saved_run import SavedRun
from l2p.run.run import Run, Simulation, start
from l2p.task import checks
from l2p.task.rows import Rows


@dataclasses.dataclass
class Progress:
    """A run between two blocks of steps.

    Attributes:
      run: the run.
      trace: its granted queries; without the answers to gradient queries, which are as long as params.
      evidence: what those answers said.
      num_saved: rows of the trace that are in the run's file.
    """

    run: Run
    trace: list[Answered]
    evidence: Evidence
    num_saved: int = 0

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
        leaves = {_name(place): np.asarray(leaf) for place, leaf in enumerate(jax.tree.leaves(self.run))}
        saved.save(leaves | self.evidence.arrays(), self.trace[self.num_saved :], ended)
        self.num_saved = len(self.trace)


def restored(saved: SavedRun, planned: PlannedRun) -> Progress | None:
    """The progress in a run's file; None where it has saved nothing yet."""
    content = saved.restore()
    if content is None:
        return None
    arrays, trace = content
    places, tree = jax.tree.flatten(_shapes(planned))
    leaves = [jnp.asarray(arrays[_name(place)], shape.dtype) for place, shape in enumerate(places)]
    evidence = _no_evidence(planned.setup).with_arrays(arrays)
    return Progress(jax.tree.unflatten(tree, leaves), trace, evidence, len(trace))


@jax.enable_x64(False)
def _shapes(planned: PlannedRun) -> Run:
    """A run's structure with shapes for arrays; no row is read."""
    num_lines, num_features = checks.shape_of(planned.task.private)

    def begin() -> Run:
        rows = Rows(jnp.zeros((num_lines, num_features)), jnp.zeros(num_lines), jnp.zeros(num_lines))
        noise = Simulation(jax.random.key(0))
        return start(planned.named.protector, planned.params, rows, planned.setup, noise, planned.task.public)[0]

    return jax.eval_shape(begin)


def _name(place: int) -> str:
    return f"run{place:04d}"


def _no_evidence(setup: Setup) -> Evidence:
    return Evidence(float(setup.num_rows), float(setup.price_list.sampler.rate()))


def _without_gradients(records: Records) -> Records:
    return [dataclasses.replace(record, answer=None) if record.query in GRADIENTS else record for record in records]
