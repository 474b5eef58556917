"""Optimizers that a checkpoint may name, and the numbers that they take."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from l2p import private_train
from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint, lookup
from l2p.models import Logistic
from l2p.oracle.setup import Setup
from l2p.protectors import HAND_DESIGNED, Optax
from l2p.protectors.stepwise.projectors import OPTIMIZERS
from l2p.task.rows import Rows
from tests.checkpoints.damaged_files import BUDGET, D, N, optimizer, refused


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_that_may_be_named_takes_its_numbers_and_moves(tmp_path, name):
    numbers = {
        "learning_rate": -2.0,
        "momentum": 0.0,
        "eps": 1e-3,
        "weight_decay": 0.01,
        "initial_accumulator_value": 0.1,
    }
    constants = {key: numbers.get(key, 0.9) for key in OPTIMIZERS[name]}
    loaded = checkpoint.load(optimizer(tmp_path, name, **constants)).protector.projector
    assert loaded.hyperparameters.keys() == OPTIMIZERS[name].keys()
    setup = lookup.resolve("noisygd", BUDGET, "logistic").filter(BUDGET).price_list()
    setup = Setup.create(Logistic(), BUDGET.adjacency, setup, N)
    transformation = loaded._transformation(setup)
    params = jnp.ones(3)
    update, _ = transformation.update(jnp.ones(3), transformation.init(params), params)
    assert np.isfinite(update).all()
    assert (np.asarray(update) < 0).all()


@pytest.mark.parametrize(
    "name", ["noisy_sgd", "lbfgs", "inject_hyperparams", "chain", "apply_updates", "__doc__", "SGD"]
)
def test_an_optimizer_that_is_not_listed_is_refused_with_those_that_are(tmp_path, name):
    sentence = refused(optimizer(tmp_path, name, learning_rate=0.0))
    assert ", ".join(OPTIMIZERS) in sentence
    assert repr(name) in sentence
    # In Python too, when the run is planned.
    protector = HAND_DESIGNED["noisygd"](BUDGET).replace(projector=Optax(name, {"learning_rate": jnp.zeros(1)}))
    rows = Rows(np.ones((N, D), np.float32), np.ones(N, np.float32), np.ones(N, np.float32))
    with pytest.raises(InputError, match=", ".join(OPTIMIZERS)):
        private_train(rows, protector, BUDGET)


def test_every_listed_optimizer_is_one_of_optax():
    assert all(callable(getattr(optax, name)) for name in OPTIMIZERS)


@pytest.mark.parametrize(
    ("scales", "numbers", "phrase"),
    [
        ({}, {"momentum": 0.0}, "lacks a learning_rate"),
        ({}, {"learning_rate": 0.0, "nesterov": 1.0}, "has a number 'nesterov', but sgd takes"),
        ({}, {"learning_rate": 0.0, "accumulator_dtype": 1.0}, "sgd takes learning_rate, momentum"),
        ({"log_scale": ()}, {"learning_rate": -0.1}, "learning_rate outside [0, inf)"),
        ({"log_scale": ()}, {"learning_rate": [0.5, 0.3]}, "learning_rate outside [0, inf) at some budget"),
        ({"logit_scale": ()}, {"learning_rate": 0.0, "momentum": 1.5}, "momentum outside [0, 1)"),
        ({}, {"learning_rate": 0.0, "momentum": 40.0}, "momentum outside [0, 1)"),
        ({}, {"learning_rate": 100.0}, "reaches 100, beyond 80"),
        ({}, {"learning_rate": [0.0] * 20 + [1e-3]}, "beyond 80"),
        ({}, {"learning_rate": [0.0] * 40}, "k from 1 to 32"),
    ],
)
def test_numbers_that_an_optimizer_does_not_take_are_refused(tmp_path, scales, numbers, phrase):
    assert phrase in refused(optimizer(tmp_path, "sgd", **scales, **numbers))


def test_the_logarithm_of_nothing_is_a_number_that_may_be_left_out(tmp_path):
    path = optimizer(tmp_path, "sgd", learning_rate=0.0, momentum=-np.inf)
    assert np.isneginf(checkpoint.load(path).protector.projector.hyperparameters["momentum"]).all()
    assert "reaches inf" in refused(optimizer(tmp_path, "sgd", learning_rate=[0.0, -np.inf]))
