"""What a loss of one's own cannot be trained with: a sentence each, nothing spent, no private value read."""

import re
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas

import l2p
from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models.custom import CustomLoss
from l2p.privacy.cost.sampling import FixedSize
from l2p.queries import FeatureSum
from l2p.release.losses import custom, row_layout
from l2p.run.protector import Protector
from tests.release.losses import DATA, NUM_FEATURES, NUM_ROWS, START, Normed, equinox, logistic, of_batch, of_norm
from tests.release.tables import table

BUDGET = l2p.Budget(1.0, 1e-5)
REPLACED = l2p.Budget(1.0, 1e-5, l2p.Adjacency.REPLACE_ONE)


def of_axis(params, row):
    return jax.lax.pmean(logistic(params, row), "batch")


def without_gradient(params, row):
    return jax.lax.while_loop(lambda value: value < 1, lambda value: value + row["x"].sum(), params[0].sum())


@struct.dataclass
class Describing(Protector):
    """Asks for the mean of the features."""

    num_steps: int = struct.field(pytree_node=False)
    any_model = True

    def init(self, params, oracle):
        return params, ()

    def step(self, params, state, oracle):
        oracle.ask(FeatureSum(4, jnp.float32(1.0), jnp.float32(9.0)))
        return params, state

    def finish(self, params, state, setup):
        return params


def sampled(sampler):
    return l2p.load("dpsgd", BUDGET).replace(sampler=sampler)


class CyclicPoissonSampling(NamedTuple):
    """As jax_privacy has it."""

    sampling_prob: float
    iterations: int


def but(**arrays):
    return {"data": DATA | arrays}


#: By what is wrong: arguments besides the good ones, and what the sentence says.
BY_SHAPE = {
    "batch statistics": (
        {"model": of_norm, "params": Normed().init(jax.random.key(0), DATA["x"])},
        r"one row.*ModifyScopeVariableError.*batch's statistics",
    ),
    "a mean over a named axis": ({"model": of_axis}, "one row.*unbound axis name.*a batch's statistics"),
    "a loss of a batch": ({"model": of_batch}, r"one row, x: float32\[3\], y: int32\[\] .*without an axis of rows"),
    "a loss for each class": ({"model": lambda params, row: row["x"] * params[0]}, r"is float32\[3\] and not a"),
    "a loss and more": ({"model": lambda params, row: (logistic(params, row), row["x"])}, "return it alone"),
    "a loss of whole numbers": ({"model": lambda params, row: row["y"]}, r"is int32\[\] and not a floating-point"),
    "no loss": ({"model": lambda params, row: None}, "is nothing and not a floating-point scalar"),
    "no gradient": ({"model": without_gradient}, "has no gradient .*while_loop"),
    "a gradient in place of a loss": ({"model": jax.grad(logistic)}, r"is 0: float32\[3\], 1: float32\[1\] and not"),
    "a loss of a column that is not there": ({"model": lambda params, row: row["z"]}, "KeyError: 'z'"),
    "a network in place of a loss": (
        {"model": equinox()[0], "params": START},
        r"one row.*write loss\(params, row\)",
    ),
    "NaN": ({"params": (np.full(NUM_FEATURES, np.nan), START[1])}, "params hold numbers that are not finite"),
    "whole numbers": ({"params": (np.arange(NUM_FEATURES), START[1])}, "'0' is an array of int64, which has no grad"),
    "a key": ({"params": (jax.random.key(0), START[1])}, "'0' is a scalar of key"),
    "a number of Python": ({"params": (START[0], 0.5)}, "'1' is of type float, which has no gradient"),
    "complex numbers": ({"params": (START[0] + 0j, START[1])}, "'0' is an array of complex64"),
    "no parameters": ({"params": None}, "params hold nothing that is trained"),
    "a list of what is trained": ({"trainable": ["0"]}, "trainable is of type list and cannot be asked"),
    "a number in place of weights": ({"per_tensor": 1.0}, "per_tensor is of type float and cannot be asked"),
    "an array that may not move": ({"per_tensor": lambda path: float(path)}, r"gives '0' the weight 0\.0, by which"),
    "parameters without a number": ({"params": (jnp.zeros(0),)}, "params hold nothing that is trained"),
    "two arrays at a path": (
        {"params": {"a/b": START[0], "a": {"b": START[1]}}},
        "path 'a/b' that a saved result could not keep",
    ),
    "a path of the file itself": ({"params": {"__metadata__": START[0]}}, "path '__metadata__' that a saved"),
    "all is frozen": ({"trainable": lambda path: False}, "params hold nothing that is trained"),
    "a row too many": (but(y=DATA["y"][1:]), "'y' of the data has another number of rows than 'x'"),
    "words": (but(x=np.full((NUM_ROWS, 3), "high")), "'x' of the data holds <U4, and only real numbers"),
    "cells left out": (but(x=np.ma.masked_less(DATA["x"], 0.1)), "'x' of the data is of type MaskedArray"),
    "keys of random numbers": (but(x=jax.random.split(jax.random.key(0), NUM_ROWS)), "'x' of the data holds key"),
    "a list of rows": ({"data": [{"x": [0.0, 1.0], "y": 1}]}, "'0/x/0' of the data is of type float"),
    "a number": (but(y=np.float32(1.0)), "'y' of the data is .*no array with an axis of rows"),
    "nothing": ({"data": {}}, "the data holds no array"),
    "rows of a table": ({"data": table(40)}, "came as Rows"),
    "a file": ({"data": "patients.csv"}, "came as str"),
    "a schema": ({"schema": "ward.json"}, "schema is about a table, but model is a loss of your own"),
    "invalid rows": ({"on_invalid": "null"}, "on_invalid is about a table"),
    "public rows": ({"public": DATA}, "public is about a table"),
}

if np.finfo(np.longdouble).bits > 64:  # as on Linux
    BY_SHAPE["long numbers"] = but(x=DATA["x"].astype(np.longdouble)), "'x' of the data holds float128.*most 64 bits"


@pytest.mark.parametrize("case", BY_SHAPE)
def test_what_shapes_tell_is_refused_before_a_value_is_read(case, refused, monkeypatch):
    monkeypatch.setattr(row_layout, "is_exact", lambda _: pytest.fail("a value was read"))
    arguments, says = BY_SHAPE[case]
    sentence = refused(**arguments)
    assert re.search(says, sentence), sentence
    assert sentence.endswith(".")
    assert ";" in sentence
    assert str(NUM_ROWS) not in sentence


#: Of protectors and of values.
LATER = {
    "a learned protector": (
        {"protector": "universal"},
        "was made for .*, not for custom:4, .*; for custom use dp_adam_pulled",
    ),
    "a private mean": ({"protector": "noisygd_mean"}, "has no intercept to absorb the shift; choose noisygd"),
    "features": (
        {"protector": Describing(1)},
        "feature_mean describes the features of rows, but what a loss of your own reads need not be",
    ),
    "a learned protector in memory": ({"protector": l2p.load("universal")}, "Stepwise.*, not for custom:4"),
    "a solve": ({"protector": "outpert"}, "output perturbation is proved for smooth losses"),
    "no privacy": ({"protector": "nonprivate"}, "was made for .*, not for custom"),
    "a batch above N": (
        {"protector": sampled(FixedSize(500, 900)), "budget": REPLACED},
        "set up for 900 rows, but the table has 300",
    ),
    "cyclic batches": (
        {"protector": sampled(CyclicPoissonSampling(0.1, iterations=10))},
        "drawn by CyclicPoissonSampling, for which no accountant here has a price",
    ),
    "batches in words": ({"protector": sampled("cyclic")}, "drawn by str, for which no accountant here has a price"),
    "batches of one size where a row may be absent": (
        {"protector": sampled(FixedSize(30, 300))},
        "fixed-size sampling .* has no price under adjacency zero_out.*choose adjacency replace_one, or Poisson",
    ),
    "no step": (
        {"protector": l2p.load("noisygd", BUDGET).replace(num_steps=0)},
        "'Stepwise' has 0 steps, but noise is planned for a whole number of them; give it at least one",
    ),
    "a delta above 1 / N": ({"budget": l2p.Budget(1.0, 0.01)}, "delta"),
    "N unknown": ({"budget": l2p.Budget(1.0, 1e-5, l2p.Adjacency.ADD_REMOVE)}, "pass num_rows"),
}


@pytest.mark.parametrize("case", LATER)
def test_what_does_not_fit_is_refused_before_anything_is_spent(case, refused):
    arguments, says = LATER[case]
    sentence = refused(**arguments)
    assert re.search(says, sentence), sentence


def test_what_belongs_to_a_loss_is_refused_for_a_table(refused):
    for options in ({"trainable": bool}, {"predict": bool}, {"per_tensor": float}):
        assert "are about a loss of your own" in refused(data=table(40), model="logistic", params=None, **options)


def test_a_result_without_a_function_that_predicts_says_how_to_predict():
    model = CustomLoss.stand_in(2, 3)
    with pytest.raises(InputError, match="pass predict=, a function of"):
        model.predictions([jnp.zeros(2)], DATA)


def printing(params, row):
    jax.debug.print("{}", row["y"])
    return logistic(params, row)


def remembering(params, row):
    mean = jax.pure_callback(float, jax.ShapeDtypeStruct((), jnp.float32), row["x"][0], vmap_method="sequential")
    return logistic(params, row) * jax.lax.stop_gradient(mean)


def within_scan(params, row):
    return jax.lax.scan(lambda carry, _: (remembering(params, row), None), jnp.zeros(()), None, length=2)[0]


def by_chance(params, row):
    return logistic(params, row) * jax.lax.rng_uniform(0.0, 1.0, ())


@jax.custom_vjp
def backwards(params, row):
    return logistic(params, row)


backwards.defvjp(
    lambda params, row: (logistic(params, row), (params, row)),
    lambda rest, _: (jax.grad(remembering)(*rest), {"x": jnp.zeros(NUM_FEATURES), "y": None}),
)


def stopping(params, row):
    return logistic(params, row | {"x": eqx.error_if(row["x"], row["x"][0] > 0.9, "a large row")})


@jax.jit
def of_all(params, row):
    return logistic(params, row) + DATA["x"].sum() * params[1][0] * (row["x"] @ DATA["x"].T).sum()


@jax.custom_batching.custom_vmap
def of_neighbours(x):
    return x


@of_neighbours.def_vmap
def _(axis_size, in_batched, x):
    return jnp.broadcast_to(x.mean(0), x.shape), True


def centred(params, row):
    return logistic(params, row | {"x": row["x"] - of_neighbours(row["x"])})


def drawn_together(params, row):
    key = jax.random.fold_in(jax.random.key(0, impl="rbg"), row["y"])
    return logistic(params, row) * jax.random.normal(key)


@jax.custom_vjp
def sloped(x):
    return x


sloped.defvjp(lambda x: (x, None), lambda _, slope: (of_neighbours(slope),))


def in_a_kernel(params, row):
    def double(x, out):
        out[...] = x[...] * 2.0

    shape = jax.ShapeDtypeStruct(row["x"].shape, row["x"].dtype)
    doubled = pallas.pallas_call(double, out_shape=shape, interpret=True)(row["x"])
    return logistic(params, row | {"x": jax.lax.stop_gradient(doubled)})


BEYOND_ONE_ROW = {
    "a kernel, which may keep what it read of other rows": ({"model": in_a_kernel}, "calls pallas_call, which may"),
    "statistics of the rows beside it, in the gradient": (
        {"model": lambda params, row: sloped(params[1][0]) + logistic(params, row)},
        "calls custom_vmap_call, which may compute rows together",
    ),
    "statistics of the rows beside it": ({"model": centred}, "calls custom_vmap_call, which may compute rows together"),
    "keys that are read for several rows": ({"model": drawn_together}, "calls random_fold_in, which may compute rows"),
    "a print": ({"model": printing}, "calls debug_print, by which it could show"),
    "a callback": ({"model": remembering}, "calls pure_callback"),
    "a callback within a loop": ({"model": within_scan}, "calls scan|calls pure_callback"),
    "a callback in the gradient": ({"model": backwards}, "calls pure_callback"),
    "a check of values": ({"model": stopping}, "calls pure_callback|calls debug_callback"),
    "random numbers with a state": ({"model": by_chance}, "calls rng_uniform"),
    "the data in a loss": ({"model": of_all}, "hold an array of the data themselves"),
    "the data in parameters": (
        {
            "model": lambda params, row: logistic(params["w"], row) + params["all"].sum() * params["w"][1][0],
            "params": {"w": START, "all": DATA["x"]},
            "trainable": lambda path: path.startswith("w"),
        },
        "hold an array of the data themselves",
    ),
}


@pytest.mark.parametrize("case", BEYOND_ONE_ROW)
def test_a_loss_that_reaches_beyond_its_row_is_refused(case, refused):
    arguments, says = BEYOND_ONE_ROW[case]
    sentence = refused(**arguments)
    assert re.search(says, sentence), sentence


def over_devices(params, row):
    mesh, none = jax.make_mesh((1,), ("device",)), jax.P()
    total = jax.shard_map(lambda x: jax.lax.psum(x, "device"), mesh=mesh, in_specs=none, out_specs=none)
    return logistic(params, row | {"x": total(row["x"])})


def over_entries(params, row):
    return logistic(params, row | {"x": jax.vmap(lambda x: jax.lax.pmean(x, "entry"), axis_name="entry")(row["x"])})


def by_key(params, row):
    return jax.checkpoint(logistic)(params, row) * jax.random.uniform(jax.random.key(0))


@pytest.mark.parametrize("name", ["part", 7])
def test_a_loss_that_reads_another_part_of_the_batch_is_refused(name):
    def from_another_part(params, row):
        return logistic(params, row) + params[1][0] * jax.lax.ppermute(row["x"][0], name, [(0, 1), (1, 0)])

    def of_part(part):
        return l2p.clipped_sum(from_another_part, START, part, 1.0).total

    parts = jax.tree.map(lambda leaf: leaf.reshape(2, -1, *leaf.shape[1:]), DATA)
    with pytest.raises(InputError, match="calls ppermute, which may compute rows together"):
        jax.vmap(of_part, axis_name=name)(parts)


def attending(params, row):
    tokens = row["x"].reshape(-1, 1, 1)
    return logistic(params, row) + params[1][0] * jax.nn.dot_product_attention(tokens, tokens, tokens).sum()


@pytest.mark.parametrize("loss", [over_devices, over_entries, by_key, attending])
def test_a_loss_that_stays_within_its_row_is_taken(loss):
    assert custom.custom(DATA, loss, START).model.digest


def test_a_loss_that_reads_another_number_than_before_is_another_model():
    factor = [1.0]

    def loss(params, row):
        return factor[0] * logistic(params, row)

    def model():
        return custom.custom(DATA, loss, START).model

    first = model()
    assert model() == first
    factor[0] = 1.0000001
    assert model() != first


def test_models_of_equal_frozen_parameters_are_equal_so_that_their_programs_are_shared():
    def loss(params, row):
        return logistic(params["w"], row) * jax.random.uniform(params["key"]) + params["table"].sum()

    def model(seed=0, value=1.0):
        frozen = {"key": jax.random.key(seed), "table": np.full((2, 3), value, np.float16)}
        return custom.custom(DATA, loss, {"w": START} | frozen, lambda path: path.startswith("w")).model

    assert model() == model()
    assert hash(model()) == hash(model())
    assert model() != model(seed=1)
    assert model() != model(value=2.0)
