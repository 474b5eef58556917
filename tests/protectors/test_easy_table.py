"""Every method against guessing: on an easy table, with a generous budget, each does far better than one class for all.

A default that does worse is broken, whatever its proof: `adassp` once told two classes apart on the wrong side of 1/2.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.checkpoints import lookup
from l2p.checkpoints.set_up import set_up
from l2p.compare.auxiliary import unlimited
from l2p.models import find_model
from l2p.privacy import Budget
from l2p.protectors import HAND_DESIGNED
from l2p.run import run
from l2p.task import Rows
from tests.later import others_later

N, D = 4000, 8
BUDGET = Budget(3.0, 1e-6)

#: What a protector is run with where it does not train `logistic`; softmax gets a table of 64 features.
MODELS = {"adassp": "square", "probe": "softmax:3"}
#: Shipped protectors that README lists first; `regression` learns numbers, of which no class is the largest.
SHIPPED = ("universal", "universal-synthetic", "census", "paper", "control", "minibatch", "probe")
#: Share of rows above the majority's that a method has to get right. The easy table is separable, so that 0.5 is all
#: there is above it.
MARGIN = 0.3
#: Methods that cannot get so far, and the margin that they do have.
#: sgd_adv: its paper's closed form of strong composition asks for several times the noise that `dpsgd` needs, and its
#: paper's N epsilon / 500 steps of size 0.1 make 24 short ones of 4,000 rows; it has 0.12 to 0.17.
WEAKER = {"sgd_adv": 0.1}
#: What `pytest` runs; the others, most of whose code these share, compile for long, and .ci/full runs them.
NOW = ("noisygd", "agd", "adassp", "adadp", "objpert", "outpert", "universal")


@functools.cache
def tables(num_features, num_classes):
    """Rows to train on and others to test on: features from 0.3 to 1, and classes of equal size with gaps between.

    Rows are longer than 1, and what tells the classes apart has mean zero over the middle of the features' range, so
    that no method has to find an intercept.
    """
    generator = np.random.default_rng(0)
    x = generator.uniform(0.3, 1.0, (6 * N, D))
    score = (x - 0.65) @ np.resize([1.0, -1.0], D) / np.sqrt(D * 0.7**2 / 12)  # of mean 0 and variance 1
    edges = np.quantile(score, np.arange(1, num_classes) / num_classes)
    clear = np.abs(score[:, None] - edges).min(1) > 0.3
    x, y = np.tile(x, num_features // D)[clear], np.searchsorted(edges, score)[clear]
    x, y = (jnp.asarray(values, jnp.float32) for values in (x, y))
    assert len(y) >= 2 * N
    return tuple(Rows(x[part], y[part], jnp.ones(N)) for part in (slice(N), slice(N, 2 * N)))


jit_run = jax.jit(lambda *arguments: run(*arguments)[0])


def accuracies(name):
    """(of a simulated run on rows that it has not seen, of the class that has most of them)"""
    method, label = HAND_DESIGNED.get(name), MODELS.get(name, "logistic")
    budget = BUDGET if method is None else method.budget(BUDGET)
    model = find_model(label)
    train, test = tables(*((64, 3) if label == "softmax:3" else (D, 2)))
    num_features = train.x.shape[1]
    kind = model.kind(model.labels)
    named = lookup.resolve(name, budget, label, num_rows=N)
    if named.protector.mechanisms == ("none",):
        setup = unlimited(model, budget, N, kind)
    else:
        named, _, setup, _ = set_up(named, budget, model, num_features, N, kind=kind)
    params = jit_run(named.protector, model.init(num_features), train, setup, jax.random.key(0))
    right = float((model.classify(params, test.x) == test.y).mean())
    return right, np.unique(test.y, return_counts=True)[1].max() / N


@pytest.mark.parametrize("name", others_later([*HAND_DESIGNED, *SHIPPED], NOW))
def test_at_epsilon_3_every_method_beats_the_majority_class_on_an_easy_table(name):
    right, majority = accuracies(name)
    assert right > majority + WEAKER.get(name, MARGIN)
