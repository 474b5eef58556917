"""The host's side of a loop of one's own: it adds the noise, counts the answers, and writes the card.

An answer is given here and nowhere else, so that one that was thrown away, as by a line search or a state that was
loaded again, counts as well.
"""

import contextlib
import hashlib
import math
import secrets
import threading
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from l2p.base.errors import InputError
from l2p.checkpoints.named import NamedProtector
from l2p.privacy.cap.filter import Filter
from l2p.privacy.card.card import Card
from l2p.privacy.card.learned import NOTHING, RESUMED
from l2p.privacy.card.of_run import card_of_run
from l2p.privacy.card.unit import ROW
from l2p.privacy.cost.sampling import FullBatch, Sampler
from l2p.privacy.events import Answered
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import Reservation
from l2p.release.learned import Answer, Evidence
from l2p.release.result import mechanisms
from l2p.release.saved_run import ENDED, SavedRun
from l2p.task.entropy import Entropy
from l2p.task.exact_sums import MARGIN
from l2p.task.noise import GRID_STEPS, Batch, BatchDraw, Draw, Noise

#: Warning on the card of a loop without an answer.
NO_UPDATE = (
    "This loop answered no update. A step that was compiled for an earlier loop, and goes on from that one's state, is "
    "answered, counted and paid for there: ask that loop for its card."
)


class HostSide:
    """Answers of one loop: at most as many as were planned, each with at least the noise that was planned for it.

    Args:
      filter: that priced the plan.
      planned: its answers, one for each update.
      model: its name.
      num_rows: N.
      key: of a simulation; None for a release.
      warnings: of the setup.

    Attributes:
      row_size: numbers of one row, known from the first sum on.
      reservation: in the ledger of the data set, or None.
      saved: the file that counts the answers, or None.
      loop: its name, which no other loop has.
      digest: u32[8] of what was planned; that of a loop that was planned in the same way is the same.
    """

    row_size: int = 1
    reservation: Reservation | None = None
    saved: SavedRun | None = None

    def __init__(
        self,
        filter: Filter,
        planned: Sequence[Answered],
        model: str,
        num_rows: int,
        key: jax.Array | None,
        warnings: Sequence[str],
    ):
        self._filter, self._planned, self._model, self._num_rows = filter, list(planned), model, num_rows
        self._warnings, self._evidence = list(warnings), Evidence(num_rows, filter.sampler.rate())
        self._entropy = Entropy(None if key is None else _number(key))
        self._lock, self._count, self._resumed, self._is_over = threading.Lock(), 0, 0, False
        self.loop = secrets.token_hex(16)
        self.digest = self._digest()
        filter.certify(self._planned, adaptive=False)  # in float64, before a row is read

    def _digest(self) -> np.ndarray:
        # Of floats five digits, since another machine may compute the same plan a little differently.
        noise = [f"{answer.noise_multiplier:.4e} {answer.clip_norm:.4e}" for answer in self._planned]
        facts = [repr(self._filter), self._model, self._num_rows, self._entropy.is_private, noise]
        return np.frombuffer(hashlib.sha256(repr(facts).encode()).digest(), np.uint32)

    def count_in(self, saved: SavedRun) -> None:
        """Count answers in a file as well, from those that it has."""
        self.saved = saved
        self._count = self._resumed = int(saved.arrays.get("count", 0))

    def reserve(self, ledger: Ledger, mechanisms: Sequence[str], purpose: str) -> None:
        """Reserve the most that the loop may spend, or take up what it has reserved before."""
        id = None if self.saved is None else self.saved.reservation
        try:
            self.reservation = Reservation.make(ledger, self._filter, mechanisms, purpose, id)
        except InputError:
            if self.saved is not None:
                self.saved.forget()
            raise

    def refuse(self, count: jax.Array, digest: jax.Array) -> None:
        """Refuse an update that no noise is planned for, or a state of another plan, where that is known before it
        runs."""
        if not isinstance(digest, jax.core.Tracer):
            self.refuse_other_plan(np.asarray(digest))
        if not isinstance(count, jax.core.Tracer):
            self._refuse_beyond(max(self._count, int(count)))

    def refuse_other_plan(self, digest: np.ndarray) -> None:
        if not np.array_equal(digest, self.digest):
            raise InputError(
                "the state is of a loop that was planned otherwise: with another budget, method, number of rows or "
                "steps, or as a simulation. Its answers had other noise than this loop's card would say; plan this "
                "loop as that one was, or begin with init()."
            )

    def _refuse_beyond(self, count: int) -> None:
        if self._is_over or (self.saved is not None and self.saved.ended):
            raise InputError(
                "an update was asked for after card(), which says how many there were; ask for the card when the loop "
                "has ended."
            )
        if count >= len(self._planned):
            raise InputError(
                f"an update was asked for beyond the {len(self._planned)} that noise is planned for, and the budget "
                "covers no more; end the loop there, or plan another with a larger num_steps."
            )

    def answer(
        self, total: np.ndarray, scale: np.ndarray, count: np.ndarray, digest: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """A sum f32[p] with noise of the planned scale, or of a larger one, and the number of answers so far."""
        self.refuse_other_plan(digest)
        with self._lock:
            number = max(self._count, int(count))
            self._refuse_beyond(number)
            self._count = number + 1
            if self.saved is not None:  # on disk before the answer is given
                self.saved.save({"count": np.asarray(self._count)})
            (bits,) = self._entropy.draw((Draw("gaussian", total.size),), 1)
        planned = self._planned[number]
        unit = planned.clip_norm * self._filter.budget.adjacency.sensitivity_factor
        length = max(float(scale), planned.noise_multiplier * unit) * (1.0 + MARGIN)
        noised = np.asarray(total, np.float64) + length * bits.view(np.float64).reshape(total.shape)
        # The last bits of float64 noise, and of float32 sums, say more than their sum does.
        grid = math.ldexp(planned.clip_norm / GRID_STEPS, max(math.ceil(math.log2(length / planned.clip_norm)), 0))
        answer = (np.rint(noised / grid) * grid).astype(np.float32)
        with self._lock:
            self._evidence.add(Answer(0, answer.astype(np.float64) / length, planned.clip_norm / length))
        return answer, np.asarray(number + 1, np.int32)

    def batches(self, count: int, num_lines: int | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Lines i32[n] and mask bool[n] of the batch of each update after the first `count`."""
        sampler, num_lines = self._filter.sampler, self._num_rows if num_lines is None else num_lines
        for _ in range(max(count, self._count), len(self._planned)):
            lines = np.arange(num_lines, dtype=np.int32)
            if not isinstance(sampler, FullBatch):
                with self._lock:
                    ((lines,),) = self._entropy.draw((BatchDraw(sampler, num_lines),), 1)
            yield np.maximum(lines, 0), lines >= 0

    def card(self, named: NamedProtector) -> Card:
        """The card of the loop, which ends here, and is settled in its ledger."""
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # of an update that was refused
            jax.effects_barrier()
        with self._lock:
            if self._is_over:
                raise InputError("this loop has given its card already; keep the one that it gave.")
            self._is_over = True
            if self.saved is not None:
                self.saved.save({"count": np.asarray(self._count)}, state=ENDED)
                self.saved.close()
        steps, filter = self._count, self._filter
        trace, ended = self._planned[:steps], steps == len(self._planned)
        # When a loop stops earlier, it may do so for what it saw.
        certified = filter.certify(trace, adaptive=not ended)
        settled = None if self.reservation is None else self.reservation.settle(trace, certified, not ended)
        composition, unsettled = (None, []) if settled is None else settled
        return card_of_run(
            filter.budget,
            filter,
            trace,
            certified=certified,
            releases=self._entropy.is_private,
            adaptive_noise=not ended,
            in_loop=True,
            protector={
                "name": named.name,
                "sha256": named.sha256,
                "sources": None if named.sources is None else list(named.sources),
                "range": named.range,
            },
            public=None,
            engine=None,
            learned=self._learned() if steps else NOTHING,
            warnings=[*self._warnings, *unsettled, *([] if steps else [NO_UPDATE])],
            model=self._model,
            unit=ROW,
            num_rows=self._num_rows,
            num_features=self.row_size,
            accountant=named.accountant,
            mechanisms=mechanisms(trace),
            steps=steps,
            max_steps=len(self._planned),
            stop_reason="max_steps" if ended else "loop",
            composition=composition,
        )

    def _learned(self) -> str:
        return RESUMED if self._resumed else self._evidence.sentence


class AddedByHost(Noise):
    """Noise of one update, which is added where it is drawn.

    Attributes:
      count: i32[], answers of the loop so far.
    """

    def __init__(self, host: HostSide, count: jax.Array, digest: jax.Array):
        self.count, self._digest = count, digest
        self._host = host

    def standard(self, distribution: str, shape: tuple[int, ...]) -> jax.Array:
        raise TypeError("the noise of a loop is added on the host and does not come here.")

    def add(self, distribution: str, aggregate: jax.Array, scale: jax.Array) -> jax.Array:  # pyrefly: ignore[bad-override]
        shapes = jax.ShapeDtypeStruct(aggregate.shape, jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
        answer, self.count = io_callback(self._host.answer, shapes, aggregate, scale, self.count, self._digest)
        return answer

    def batch(self, sampler: Sampler, num_rows: int, step: jax.Array) -> Batch:
        return Batch(jnp.zeros(0, jnp.int32), jnp.zeros(0))  # the loop drew it


def _number(key: jax.Array) -> int:
    """The number that a JAX key holds."""
    if not isinstance(key, jax.Array):
        raise InputError(
            f"key is {key!r}, but a simulation needs a JAX key; pass jax.random.key(0), or None to release."
        )
    is_typed = jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = np.asarray(jax.random.key_data(key) if is_typed else key, np.uint32)
    return int.from_bytes(words.tobytes(), "little")
