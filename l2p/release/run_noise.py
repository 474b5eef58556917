"""Source of the noise of a run: the operating system for a release, a key for a simulation."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import jax

from l2p.base.errors import RowsError, withheld
from l2p.oracle.setup import Setup
from l2p.run.protector import Protector
from l2p.run.run import Release, Simulation, plan_noise
from l2p.task.entropy import Entropy
from l2p.task.noise import AnyDraw
from l2p.task.rows import Rows


@dataclasses.dataclass(frozen=True)
class SimulatedNoise:
    """Noise that whoever has the key can undo."""

    key: jax.Array
    releases: ClassVar[bool] = False

    def draw(self, num_steps: int, in_turn: bool = False) -> Simulation:
        """The noise of so many steps, all of which comes from the key."""
        del num_steps, in_turn
        return Simulation(self.key, keeps_answers=True)

    @contextlib.contextmanager
    def computing(self, doing: str) -> Iterator[None]:
        """Errors pass unchanged, and sums are in float32."""
        del doing
        with jax.enable_x64(False):
            yield


@dataclasses.dataclass(frozen=True, eq=False)
class ReleasedNoise:
    """Noise that nobody knows, planned before anything is reserved and drawn anew for `start` and every `advance`.

    Attributes:
      entropy: of this run alone.
      at_start, per_step: what `init` and each step will request.
    """

    entropy: Entropy
    at_start: tuple[AnyDraw, ...]
    per_step: tuple[AnyDraw, ...]
    releases: ClassVar[bool] = True

    def draw(self, num_steps: int, in_turn: bool = False) -> Release:
        """Fresh noise for so many steps, or for `init` where there are none; orders of rows are drawn `in_turn` where
        not all rows are here."""
        begin = () if num_steps else self.at_start
        drawn = self.entropy.draw(begin, 1), self.entropy.draw(self.per_step, num_steps, in_turn)
        init, steps = jax.device_put(drawn)
        return Release(init, steps, begin, self.per_step)

    @contextlib.contextmanager
    def computing(self, doing: str) -> Iterator[None]:
        """Errors quote no row, and what is released is added and rounded in float64."""
        with withheld(doing), jax.enable_x64(True):
            yield


RunNoise = SimulatedNoise | ReleasedNoise


def noise_for(
    protector: Protector,
    params: jax.Array,
    num_lines: int,
    shape: tuple[int, int],
    setup: Setup,
    public: Rows | None,
    key: jax.Array | None,
) -> RunNoise:
    """The noise of a run over a table of so many lines, whose public shape is [N, d]; without a key, of a release.

    Planning traces the whole run, so whatever cannot be traced is refused before anything is reserved. How many lines
    there are may be private, so an error says nothing of them: where it also comes for N rows, it shows their shapes.
    """
    if key is not None:
        return SimulatedNoise(key)
    num_rows, num_features = shape
    try:
        with withheld("planning the noise") if num_lines != num_rows else contextlib.nullcontext():
            plan: Any = plan_noise(protector, params, num_lines, num_features, setup, public)
    except RowsError:
        if num_lines != num_rows:
            plan_noise(protector, params, num_rows, num_features, setup, public)
        raise
    return ReleasedNoise(Entropy(), *plan)
