"""What a loop of one's own cannot be run with: a sentence each, before anything is reserved or noised."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import l2p
from l2p.base import struct
from l2p.base.errors import InputError
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.protectors.stepwise.stepwise import Stepwise
from l2p.release.losses.clipped_sum import Clipping
from l2p.release.losses.loop_noise import HostSide
from tests.release.losses import DATA, NUM_ROWS, START, Normed, logistic, of_batch, of_norm

BUDGET = l2p.Budget(1.0, 1e-5)
ADAM = {"method": optax.adam(0.1), "num_steps": 5, "sampling_rate": 0.1, "clip_norm": 1.0}


@struct.dataclass
class AskingTwice(Stepwise):
    """Asks for each gradient a second time."""

    def step(self, params, state, oracle):
        return super().step(*super().step(params, state, oracle), oracle)


TWICE = AskingTwice(**{name: getattr(l2p.load("noisygd", BUDGET), name) for name in ("scheduler", "projector")})


class Augmented(optax.GradientTransformation):
    """As jax_privacy has it: gradients are changed before they are clipped."""

    def pre_clipping_transform(self, state):
        return lambda gradients: gradients


PLANS = {
    "no budget": ({"budget": None}, "needs a budget"),
    "no rows": ({"num_rows": 0}, "num_rows is 0, but means and noise"),
    "half a row": ({"num_rows": 300.5}, r"num_rows is 300\.5"),
    "a delta of a row": ({"num_rows": 200_000}, "delta=1e-05 is not below 1/N"),
    "whole numbers": ({"params": (jnp.arange(3), START[1])}, "'0' is an array of int32, which has no gradient"),
    "no parameters": ({"params": {}}, "params hold nothing that is trained"),
    "NaN": ({"params": (jnp.full(3, jnp.nan), START[1])}, "params hold numbers that are not finite"),
    "all is frozen": ({"trainable": lambda path: False}, "params hold nothing that is trained"),
    "no update": ({"num_steps": 0}, "num_steps is 0, but noise is planned for a whole number"),
    "no batch": ({"sampling_rate": 0.0}, r"a Poisson sampling rate of 0\.0"),
    "a rate in words": ({"sampling_rate": "half"}, "sampling_rate is 'half', but is the probability"),
    "a clip norm of a method": ({"clip_norm": 1.0}, "a method clips as it was designed to"),
    "another key": ({"key": 7}, "key is 7, but a simulation needs a JAX key"),
    "a search for step sizes": (
        {"method": "agd"},
        "protector 'agd' asks for losses, or for gradients at points of its",
    ),
    "two half-steps": ({"method": "adadp"}, "one clipped sum at a time does not give; choose noisygd"),
    "two gradients": ({"method": TWICE}, "protector 'AskingTwice' asks for losses, or for gradients at points of its"),
    "probes": ({"method": "hyfree", "num_steps": 3}, "protector 'hyfree' asks for losses"),
    "trials": ({"method": "linear_scaling"}, "protector 'linear_scaling' asks for losses"),
    "what was learned": ({"method": "universal"}, "protector 'universal' was made for .*not for custom"),
    "a method that is none": ({"method": "sgd"}, "'sgd'"),
    "batches of one size": (
        {"method": "sgd_adv", "budget": l2p.Budget(1.0, 1e-5, l2p.Adjacency.REPLACE_ONE)},
        "draws its batches by fixed-size sampling",
    ),
    "an optimizer without steps": (ADAM | {"num_steps": None}, "num_steps is missing, and an optax optimizer"),
    "an optimizer without clipping": (ADAM | {"clip_norm": None}, "clip_norm is missing"),
    "an infinite clip norm": (ADAM | {"clip_norm": np.inf}, "a clip norm of inf bounds no gradient"),
    "a clip norm of 0": (ADAM | {"clip_norm": 0.0}, r"a clip norm of 0\.0 bounds no gradient"),
    "a transform before clipping": (
        ADAM | {"method": Augmented(*optax.adam(0.1))},
        "Augmented changes gradients before they are clipped",
    ),
    "the same budget for pure privacy": ({"budget": l2p.Budget(1.0, 0.0)}, "delta is 0, which asks for pure"),
}


@pytest.mark.parametrize("case", PLANS)
def test_a_plan_that_does_not_fit_is_refused_and_nothing_reserved(case, tmp_path):
    arguments, says = PLANS[case]
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "gdp", limit_of("gdp", BUDGET))
    options = {"method": "noisygd", "budget": BUDGET, "params": START, "num_rows": NUM_ROWS} | arguments
    ledger_of = {} if case in ("another key", "batches of one size") else {"ledger": ledger}
    with pytest.raises(InputError) as error:
        l2p.optax(options.pop("method"), options.pop("budget"), **options, **ledger_of)
    sentence = str(error.value)
    assert re.search(says, sentence), sentence
    assert sentence.endswith(".")
    assert ";" in sentence
    assert not ledger.entries()


def printing(params, row):
    jax.debug.print("{}", row["y"])
    return logistic(params, row)


HELD = jnp.asarray(DATA["x"])


def holding(params, row):
    return logistic(params, row) + 0.0 * HELD.sum()


SUMS = {
    "batch statistics": (
        {"loss": of_norm, "params": Normed().init(jax.random.key(0), DATA["x"])["params"]},
        "the loss could not be computed of one row",
    ),
    "a loss of a batch": ({"loss": of_batch}, r"one row, x: float32\[3\], y: int32\[\] .*without an axis of rows"),
    "a loss for each class": ({"loss": lambda params, row: row["x"] * params[0]}, r"is float32\[3\] and not a"),
    "a loss that prints": ({"loss": printing}, "by which it could show private rows"),
    "a loss that holds the batch": (
        {"loss": holding, "batch": {"x": HELD, "y": jnp.asarray(DATA["y"])}},
        "hold an array of the data themselves",
    ),
    "rows of two shapes": (
        {"batch": DATA | {"x": np.array([np.zeros(2), np.zeros(3)] * 150, object)}},
        "'x' of the data holds object",
    ),
    "a row too many": ({"batch": DATA | {"y": DATA["y"][1:]}}, "'y' of the data has another number of rows"),
    "a batch without a row axis": ({"batch": {"x": jnp.float32(1.0)}}, "no array with an axis of rows"),
    "a mask of another size": ({"mask": np.ones(7)}, r"the mask has shape \[7\] where the batch has another"),
    "drawn batches without their mask": (
        {"clipping": Clipping(1.0, padded=True)},
        "some row would count there many times; pass mask=",
    ),
    "a negative stability": ({"clipping": lambda: Clipping(1.0, stability=-1.0)}, "would make short gradients long"),
    "a clip norm of NaN": ({"clipping": np.nan}, "a clip norm of nan bounds no gradient"),
    "parameters of whole numbers": ({"params": (jnp.arange(3), START[1])}, "'0' is an array of int32"),
}


def total_with(loss, params, batch, clipping, **options):
    clipping = clipping() if callable(clipping) else clipping
    return l2p.clipped_sum(loss, params, batch, clipping, **options)


@pytest.mark.parametrize("case", SUMS)
def test_a_sum_that_no_noise_could_be_planned_for_is_refused(case):
    arguments, says = SUMS[case]
    options = {"loss": logistic, "params": START, "batch": DATA, "clipping": 1.0} | arguments
    with pytest.raises(InputError) as error:
        total_with(**options)
    sentence = str(error.value)
    assert re.search(says, sentence), sentence
    assert sentence.endswith(".")
    assert str(NUM_ROWS) not in sentence


def test_a_loss_that_closes_over_what_the_batch_says_is_refused():
    def step(batch):
        mean = batch["x"].mean(0)
        return l2p.clipped_sum(lambda params, row: params @ (row["x"] - mean), jnp.zeros(3), batch, 1.0).total

    with pytest.raises(InputError, match=r"closes over an array that is computed in the same step.*batch's statistics"):
        jax.jit(step)(DATA)

    @jax.jit
    def normalised(batch):
        return step(batch)

    with pytest.raises(InputError, match="closes over an array"):
        jax.lax.scan(lambda carry, _: (carry, normalised(DATA)), 0.0, length=2)


TRANSFORMATION = l2p.optax("noisygd", BUDGET, params=START, num_rows=NUM_ROWS, num_steps=5)
STATE = TRANSFORMATION.init(START)


def total_of(params=START, data=DATA, clipping=TRANSFORMATION.clipping, loss=logistic):
    return l2p.clipped_sum(loss, params, data, clipping)


def mean_gradient():
    return jax.grad(lambda params: jax.vmap(logistic, (None, 0))(params, DATA).mean())(START)


UPDATES = {
    "a mean gradient": (mean_gradient, "update got tuple in place of a clipped sum, and a mean or another gradient"),
    "the arrays of a sum": (lambda: total_of().tree, "update got tuple in place of a clipped sum"),
    "an array": (lambda: total_of().total, "in place of a clipped sum"),
    "another clip norm": (lambda: total_of(clipping=2.0), "another clip norm or for other parameters"),
    "other clipping": (lambda: total_of(clipping=Clipping(1.0, 0.01)), "another clip norm or for other parameters"),
    "other parameters": (
        lambda: total_of(params=jnp.zeros(4), loss=lambda params, row: logistic((params[:3], params[3:]), row)),
        "another clip norm or for other parameters",
    ),
    "fewer parameters": (
        lambda: total_of(params=(START[0],), loss=lambda params, row: logistic((*params, START[1]), row)),
        "another shape or type than the parameters of this loop",
    ),
    "sums of several batches": (
        lambda: jax.vmap(lambda mask: l2p.clipped_sum(logistic, START, DATA, TRANSFORMATION.clipping, mask=mask))(
            np.ones((2, NUM_ROWS))
        ),
        "one of several batches at once",
    ),
    "a batch above N": (
        lambda: total_of(data={name: np.repeat(array, 2, axis=0) for name, array in DATA.items()}),
        "places for 600 rows, but the table has 300, so a row would be in it twice",
    ),
    "two tables": (lambda: total_of() + total_of(), "places for 600 rows"),
}


@pytest.mark.parametrize("case", UPDATES)
def test_what_is_no_clipped_sum_of_this_loop_is_refused_before_noise_is_drawn(case, monkeypatch):
    monkeypatch.setattr(HostSide, "answer", lambda *_: pytest.fail("a row was answered for"))
    make, says = UPDATES[case]
    with pytest.raises(InputError, match=says):
        TRANSFORMATION.update(make(), STATE, START)


def test_params_of_another_loop_and_none_are_refused():
    with pytest.raises(InputError, match="update got no params"):
        TRANSFORMATION.update(total_of(), STATE)
    for refused in (TRANSFORMATION.init, lambda params: TRANSFORMATION.update(total_of(), STATE, params)):
        with pytest.raises(InputError, match="another structure or other shapes than those that the loop was planned"):
            refused({"w": START[0]})


def test_a_whole_network_is_trained_outside_of_jit_and_what_is_no_array_stays():
    network = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0))
    ours = l2p.optax("noisygd", BUDGET, params=network, num_rows=NUM_ROWS, num_steps=5)

    def loss(network, row):
        return optax.softmax_cross_entropy_with_integer_labels(network(row["x"]), row["y"])

    updates, _ = ours.update(l2p.clipped_sum(loss, network, DATA, ours.clipping), ours.init(network), network)
    moved = eqx.apply_updates(network, updates)
    assert moved.activation is network.activation
    assert not np.array_equal(moved.layers[0].weight, network.layers[0].weight)
