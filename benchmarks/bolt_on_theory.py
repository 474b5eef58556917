"""Bolt-on SGD against its own theory: excess risk beside the bounds of Wu et al. (2017), and what privacy costs as rows
grow many.

    python -m benchmarks.bolt_on_theory [--rows 1000 10000 100000] [--many 1000 10000 100000 1000000] [--seeds 20]

All on random rows of length at most 1, whose labels follow a logistic model, with pure differential privacy. First, one
pass in batches of one row, averaged, in a ball of radius R. Excess risk is the mean loss of the rows over its least
value in the ball, on average over seeds. Convex, steps R / sqrt m: the bound is R^2 / (2 eta m) + eta / 2 (the regret
of Theorem 8) + 2 (12 + sqrt 2) R / sqrt m (Theorem 9), and p sensitivity / epsilon for noise, as Theorem 10 adds them
up for L = 1 (pages/bolt_on.md says where the constant is from). Strongly convex, steps 1 / (ridge t): Theorem 12 has
a constant that it does not state, so what is shown is the excess over (L + beta R)^2 log m / (ridge m) + L p
sensitivity / epsilon, which must not grow. Second, bolt-on SGD with two passes in batches of 10 at epsilon 0.1: loss
with noise over loss without, and test accuracy of both.
"""

import argparse
import math
import platform
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from l2p.compare.summary import markdown
from l2p.models import Logistic
from l2p.privacy.events import Adjacency
from l2p.privacy.sensitivity.passes import Passes
from l2p.queries import PassDescent
from l2p.queries.rows_in_order import shrunk_rows
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows

NUM_FEATURES, RADIUS, RIDGE, SMOOTHNESS = 4, 4.0, 0.1, 0.25
MANY_FEATURES, MANY_PASSES, MANY_BATCH, MANY_EPSILON, TEST_ROWS = 19, 2, 10, 0.1, 20_000


def synthetic_rows(num_rows: int, num_features: int, seed: int) -> Rows:
    """Rows in [0, 1], with labels that follow a logistic model in what they are when shrunk."""
    generator = np.random.default_rng(seed)
    x = generator.random((num_rows, num_features), np.float32)
    weights = 12.0 * np.where(np.arange(num_features) % 2, -1, 1) / math.sqrt(num_features)
    margin = (x - 0.5) @ weights / np.sqrt(np.square(x).sum(1) + 0.25)
    y = generator.random(num_rows) < 1 / (1 + np.exp(-margin))
    return Rows(jnp.asarray(x), jnp.asarray(y, jnp.float32), jnp.ones(num_rows))


def query_of(plan: Passes, num_features: int, epsilon: float) -> PassDescent:
    """Bolt-on SGD from 0 with noise for this epsilon."""
    scale = jnp.float32(1 / epsilon)
    return PassDescent(Logistic(), plan, jnp.zeros(num_features + 1), scale, jnp.full((), -jnp.inf), mechanism="gamma")


@jax.jit
def risk(rows: Rows, params: jax.Array, ridge: float) -> jax.Array:
    """Mean loss of shrunk rows and the regulariser."""
    lines = shrunk_rows(rows, 1.0, 1)
    return Logistic().margin_loss(lines.table @ params, lines.targets[:, 0]).mean() + ridge / 2 * params @ params


def least(rows: Rows, ridge: float, radius: float) -> float:
    """The least risk in the ball."""
    value = jax.jit(jax.value_and_grad(lambda params: risk(rows, params, ridge)))
    inside = {"type": "ineq", "fun": lambda params: radius**2 - params @ params, "jac": lambda params: -2 * params}
    with jax.enable_x64(True):
        solution = minimize(
            lambda params: tuple(map(np.asarray, value(jnp.asarray(params)))),
            np.zeros(rows.x.shape[1] + 1),
            jac=True,
            method="SLSQP",
            constraints=[inside],
            options={"ftol": 1e-12, "maxiter": 500},
        )
    return float(solution.fun)


def excess(rows: Rows, plan: Passes, epsilon: float | None, seeds: int) -> float:
    """Mean excess risk over seeds, each with its own order of rows and noise."""
    query = query_of(plan, rows.x.shape[1], epsilon or 1e9)

    @jax.jit
    def once(rows: Rows, key: jax.Array) -> jax.Array:
        return risk(rows, query.answer(rows, KeyNoise(key), Adjacency.REPLACE_ONE), plan.ridge)

    risks = [float(once(rows, jax.random.key(seed))) for seed in range(seeds)]
    return float(np.mean(risks)) - least(rows, plan.ridge, plan.radius)


def convex(sizes: list[int], seeds: int) -> Iterator[list[str]]:
    """Lines of Theorem 10, without noise and with epsilon 1 and 0.1."""
    for m in sizes:
        rows, eta = synthetic_rows(m, NUM_FEATURES, 0), RADIUS / math.sqrt(m)
        plan = Passes(m, SMOOTHNESS, 1, 1, step_size=eta, radius=RADIUS, averaged=1.0)
        usual = RADIUS**2 / (2 * eta * m) + eta / 2 + 2 * (12 + math.sqrt(2)) * RADIUS / math.sqrt(m)
        cells = []
        for epsilon in (None, 1.0, 0.1):
            noise = 0 if epsilon is None else (NUM_FEATURES + 1) * 2 * plan.sensitivity() / epsilon
            cells += [f"{excess(rows, plan, epsilon, seeds):.2g}", f"{usual + noise:.2g}"]
        yield [f"{m:,}", *cells]


def strongly_convex(sizes: list[int], seeds: int) -> Iterator[list[str]]:
    """Lines of Theorem 12: excess risk, and over the form of the bound."""
    beta, radius = SMOOTHNESS + RIDGE, RADIUS
    for m in sizes:
        rows = synthetic_rows(m, NUM_FEATURES, 0)
        plan = Passes(m, SMOOTHNESS, 1, 1, "strongly_convex", ridge=RIDGE, radius=radius, averaged=1.0)
        usual = (1 + beta * radius) ** 2 * math.log(m) / (RIDGE * m)
        cells = []
        for epsilon in (None, 1.0, 0.1):
            noise = 0 if epsilon is None else (NUM_FEATURES + 1) * 2 * plan.sensitivity() / epsilon
            excess_loss = excess(rows, plan, epsilon, seeds)
            cells += [f"{excess_loss:.2g}", f"{excess_loss / (usual + (1 + RIDGE * radius) * noise):.2g}"]
        yield [f"{m:,}", *cells]


def for_free(sizes: list[int], seeds: int) -> Iterator[list[str]]:
    """Lines of the gap to SGD without noise as rows grow many; noise is drawn anew for each seed, the order is one."""
    test = synthetic_rows(TEST_ROWS, MANY_FEATURES, 1)
    for m in sizes:
        rows = synthetic_rows(m, MANY_FEATURES, 0)
        plan = Passes(m, SMOOTHNESS, MANY_PASSES, min(MANY_BATCH, m))
        query = query_of(plan, MANY_FEATURES, MANY_EPSILON)
        generator = np.random.default_rng(0)
        order = np.full((plan.num_passes, plan.steps_per_pass * plan.batch_size), -1, np.int32)
        for line in order:
            line[:m] = generator.permutation(m)
        plain = jax.jit(lambda query, *args: query.result(*args))(query, rows, jnp.asarray(order))
        noised = [query.release(plain, KeyNoise(jax.random.key(seed)), Adjacency.REPLACE_ONE) for seed in range(seeds)]
        risks = [float(risk(rows, params, 0.0)) for params in (plain, *noised)]
        right = [float((Logistic().predict(params, test.x) == test.y).mean()) for params in (plain, *noised)]
        yield [
            f"{m:,}",
            f"{risks[0]:.4f}",
            f"{np.mean(risks[1:]) - risks[0]:.2g}",
            f"{right[0]:.4f}",
            f"{np.mean(right[1:]):.4f}",
        ]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Bolt-on SGD against its own theory.")
    parser.add_argument("--rows", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--many", type=int, nargs="*", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    print(f"{platform.machine()}, jax {jax.__version__}, {jax.default_backend()}")
    both = ["no noise", "{}", "epsilon 1", "{}", "epsilon 0.1", "{}"]
    for title, second, lines in (
        ("convex, and the bound of Theorem 10", "bound", convex(options.rows, options.seeds)),
        ("strongly convex, and over the form of Theorem 12", "ratio", strongly_convex(options.rows, options.seeds)),
    ):
        print(
            f"\n**Excess risk, {title}**\n\n{markdown(['m', *(c.format(second) for c in both)], list(lines))}",
            flush=True,
        )
    header = ["m", "loss", "noise adds", "accuracy", "with noise"]
    table = markdown(header, list(for_free(options.many, options.seeds)))
    print(f"\n**Privacy for free, epsilon {MANY_EPSILON}**\n\n{table}")


if __name__ == "__main__":
    main()
