"""Releases against simulations of the same run, and what draws their noise."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.speed.steps import rows_of
from benchmarks.speed.timing import Contender, Prepare, Table, measure
from benchmarks.speed.work import CLIP_NORM, Work
from l2p.base.compiled import quickly
from l2p.oracle.sums import add_quantized
from l2p.privacy.budget import Budget
from l2p.queries import ClippedGradient
from l2p.release.api import private_train
from l2p.task.entropy import Entropy
from l2p.task.exact_sums import ExactSum, Quantized, QuantizedRows, quantize
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import Draw

SMALL, LARGE, QUICK_ROWS = 30_400, 204_800, 2_048
#: Of what is timed, and of what is compared: noise differs.
BUDGET, QUIET = Budget(0.8, 1e-8), Budget(50.0, 1e-8)
#: Relative differences of losses that count as the same work; those of a method whose batches differ, too.
TOLERANCE, TOLERANCES = 0.03, {"dpsgd": 0.1}
#: Methods and models on the smaller table, and those on the larger one.
RUNS = (
    *(("noisygd", model) for model in ("logistic", "softmax:10", "svm", "mlp")),
    ("dpsgd", "logistic"),
    ("universal", "logistic"),
)
LARGE_RUNS = ("noisygd", "logistic"), ("universal", "logistic")
#: Steps of a chunk and values per step: the gradient of a model with 53 params, and one of 10,000.
DRAWS = ((256, 53), (256, 10_000))
#: Sums that are formed in a turn.
SUMS = 10


def tables(quick: bool, rounds: int) -> Iterator[Table]:
    """A table for every method, model and size, and for the draws of noise."""
    cases = [(QUICK_ROWS if quick else SMALL, *run) for run in RUNS]
    for num_rows, method, model in cases if quick else [*cases, *((LARGE, *run) for run in LARGE_RUNS)]:
        work = Work(model, num_rows)
        title = f"release: {method}, {model}, {num_rows:,} x {work.num_columns - 1}"
        yield measure(title, "simulation", contenders(work, method), rounds, TOLERANCES.get(method, TOLERANCE))
    work = Work("logistic", QUICK_ROWS if quick else SMALL)
    yield measure(f"parts of an exact sum: {work}", "exact sum", sums(work), rounds)
    for steps, size in DRAWS:
        yield measure(f"noise of a step: {size:,} normals", "release: ChaCha20", draws(steps, size), rounds)


def contenders(work: Work, method: str) -> dict[str, Prepare]:
    """A whole `private_train`, warm: planning, noise, all steps, certification and the card."""

    def prepare(key: jax.Array | None) -> Contender:
        rows = rows_of(work)
        train = functools.partial(private_train, rows, method, model=work.model, key=key)
        return Contender(lambda: train(budget=BUDGET), check=lambda: work.mean_loss(train(budget=QUIET).params))

    return {"simulation": lambda: prepare(jax.random.key(0)), "release": lambda: prepare(None)}


def sums(work: Work) -> dict[str, Prepare]:
    """The clipped sum of gradients as a release forms it, its two products with whole numbers, and the sum in float32
    that a simulation forms."""
    rows, start, ready = rows_of(work), work.start(), rows_of(work).ready(full_passes=True)
    features, clip_norm = FeatureMap.identity(work.num_columns - 1), jnp.float32(CLIP_NORM)
    query = ClippedGradient(work.learner, start, features, clip_norm, jnp.float32(1.0))

    def over_blocks(function: Callable[[QuantizedRows], jax.Array]) -> Callable[[QuantizedRows], jax.Array]:
        return lambda quantized: jax.lax.map(lambda block: function(quantized.replace(block=block)), quantized.block)

    def weighted(quantized: QuantizedRows) -> jax.Array:
        return quantized.weighted_sum(Quantized(quantized.y, quantized.unit)).steps

    with jax.enable_x64(True):
        quantized = jax.jit(quantize)(rows.x, rows.y, rows.mask)
        pieces: dict[str, tuple[Callable, Any]] = {
            "exact sum": (lambda quantized: add_quantized(query, quantized, ExactSum.empty(start.shape[0])), quantized),
            "margins, exact": (over_blocks(lambda block: work.learner.exact_margins(start, block)), quantized),
            "sum of rows, exact": (over_blocks(weighted), quantized),
            "sum in float32": (
                lambda rows: work.learner.clipped_gradient_sum(start, rows, features, clip_norm),
                ready,
            ),
        }
        compiled = {name: quickly(function) for name, (function, _) in pieces.items()}

    def prepare(name: str) -> Contender:
        def run() -> None:
            with jax.enable_x64(name != "sum in float32"):
                for _ in range(SUMS):
                    jax.block_until_ready(compiled[name](pieces[name][1]))

        return Contender(run, SUMS)

    return {name: functools.partial(prepare, name) for name in pieces}


def draws(steps: int, size: int) -> dict[str, Prepare]:
    """Noise of steps at once: float64 from a release's generator, from one that is not cryptographic, which feeds the
    same ziggurat, and float32 of a simulation."""
    entropy, philox, key = Entropy(), np.random.Generator(np.random.Philox()), jax.random.key(0)
    normal = jax.jit(functools.partial(jax.random.normal, shape=(steps, size), dtype=jnp.float32))
    plan = [Draw("gaussian", size)]
    return {
        "release: ChaCha20": lambda: Contender(lambda: entropy.draw(plan, steps), steps),
        "NumPy's Philox, not cryptographic": lambda: Contender(lambda: philox.standard_normal((steps, size)), steps),
        "simulation: JAX key, float32": lambda: Contender(lambda: normal(key).block_until_ready(), steps),
    }
