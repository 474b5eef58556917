"""The oracle answers once per ask: not inside a transformation, and not after its step."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base import struct
from l2p.run.run import run
from tests.oracle.scripts import KEY, ROWS, ZERO, D, Script, f32, mean, opened, script, setup, simulate


def nested(transform):
    """A protector whose step asks inside `transform`."""

    @struct.dataclass
    class Nested(Script):
        def step(self, params, state, oracle):
            return transform(lambda value: oracle.ask(mean(1e4)).sum() + value, params), state

    return Nested(jnp.zeros((2, 1)), num_steps=2)


TRANSFORMS = {
    "vmap": lambda ask, params: jax.vmap(ask)(params),
    "vmap, no argument": lambda ask, params: jax.vmap(lambda _: ask(0.0))(params),
    "grad": lambda ask, params: jax.grad(lambda value: ask(value[0]))(params),
    "value_and_grad": lambda ask, params: jax.value_and_grad(lambda value: ask(value[0]))(params)[1],
    "jvp": lambda ask, params: jax.jvp(ask, (params[0],), (params[0],))[1] + params,
    "vjp": lambda ask, params: jax.vjp(ask, params[0])[1](params[0])[0] + params,
    "linearize": lambda ask, params: jax.linearize(ask, params[0])[1](params[0]) + params,
    "jacfwd": lambda ask, params: jax.jacfwd(lambda value: ask(value[0]))(params),
    "hessian": lambda ask, params: jax.hessian(lambda value: ask(value[0]))(params)[0],
    "jit": lambda ask, params: jax.jit(ask)(params[0]) + params,
    "checkpoint": lambda ask, params: jax.checkpoint(ask)(params[0]) + params,
    "eval_shape": lambda ask, params: jnp.zeros(jax.eval_shape(ask, params[0]).shape) + params,
    "make_jaxpr": lambda ask, params: params + len(jax.make_jaxpr(ask)(params[0]).eqns),
    "cond": lambda ask, params: jax.lax.cond(params[0] > 0, ask, lambda value: value, params[0]) + params,
    "switch": lambda ask, params: jax.lax.switch(0, [lambda value: value, ask], params[0]) + params,
    "scan": lambda ask, params: jax.lax.scan(lambda total, value: (total, ask(value)), 0.0, params)[1],
    "map": lambda ask, params: jax.lax.map(ask, params),
    "fori_loop": lambda ask, params: jax.lax.fori_loop(0, 3, lambda _, value: ask(value), params[0]) + params,
    "while_loop, body": lambda ask, params: jax.lax.while_loop(lambda value: value < 1, ask, params[0]) + params,
    "while_loop, condition": lambda ask, params: (
        jax.lax.while_loop(lambda value: ask(value) < 1, lambda value: value + 1, params[0]) + params
    ),
}


@pytest.mark.parametrize("outer", ["traced", "eager"])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_asking_inside_a_transformation_within_a_step_is_refused_while_tracing(transform, outer):
    protector = nested(transform)
    with pytest.raises(RuntimeError, match="inside a JAX transformation"):  # noqa: PT012
        if outer == "traced":
            jax.eval_shape(run, protector, ZERO, ROWS, setup(), KEY)
        else:
            protector.step(ZERO, 0, opened())


def test_an_oracle_kept_from_init_is_of_no_use_in_a_step():
    @struct.dataclass
    class Keeps(Script):
        def init(self, params, oracle):
            oracles.append(oracle)
            return params, 0

        def step(self, params, state, oracle):
            return params + oracles[0].ask(mean(1e4)).sum(), state

    oracles: list[Any] = []
    with pytest.raises(RuntimeError, match="step had ended"):
        jax.eval_shape(run, Keeps(jnp.zeros((2, 1)), num_steps=2), ZERO, ROWS, setup(), KEY)


@pytest.mark.slow(but=["plain", "vmap", "checkpoint"])
@pytest.mark.parametrize(
    "outer",
    [
        lambda function: function,
        jax.jit,
        lambda function: jax.vmap(function, axis_size=2, in_axes=None),
        jax.grad,
        lambda function: jax.jit(jax.grad(lambda scale: jax.vmap(function)(jnp.stack([scale, scale])).sum())),
        jax.checkpoint,
    ],
    ids=["plain", "jit", "vmap", "grad", "jit grad vmap", "checkpoint"],
)
def test_a_plain_step_may_be_transformed_from_outside(outer):
    def step_of(scale):
        return run(
            script(jnp.full((2, 2), 50.0)).replace(multipliers=jnp.full((2, 2), 50.0) * scale), ZERO, ROWS, setup(), KEY
        )[0].sum()

    jax.eval_shape(outer(step_of), f32(1.0))  # raises if a guard misfires
    if outer is jax.jit or outer is jax.grad:
        assert float(outer(step_of)(f32(1.0))) != 0


def test_each_ask_has_noise_of_its_own():
    params, _, (_, _), _ = simulate(script(np.full((1, 1), 1e4)), ZERO, ROWS, setup(), KEY)
    oracle = opened()
    first, second = oracle.ask(mean(1e4)), oracle.ask(mean(1e4))
    answers = np.r_[first, second, params[:D]]
    assert len(np.unique(answers)) == 3 * D


def test_an_oracle_that_outlives_its_step_answers_nothing():
    oracle = opened()
    oracle.ask(mean(f32(1e3)))
    oracle.close()
    with pytest.raises(RuntimeError, match="step had ended"):
        oracle.ask(mean(f32(1e3)))
