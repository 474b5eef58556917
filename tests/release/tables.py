"""Tables of few rows, and methods that train on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base import struct
from l2p.models import Logistic
from l2p.privacy import Budget
from l2p.queries import ClippedGradient
from l2p.run.protector import Protector
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows
from l2p.task.sources import RowSource

BUDGET = Budget(2.0, 1e-6)
NUM_ROWS, NUM_FEATURES = 2000, 4


def table(num_rows=NUM_ROWS, seed=0):
    """Rows whose label is decided by a linear function of the features."""
    x = np.random.default_rng(seed).uniform(size=(num_rows, NUM_FEATURES)).astype(np.float32)
    y = (x @ np.array([3, -2, 1, 0]) > 1).astype(np.float32)
    return Rows(x, y, np.ones(num_rows, np.float32))


def accuracy(result, rows):
    return float(jnp.mean(Logistic().predict(result.params, jnp.asarray(rows.x)) == rows.y))


@struct.dataclass
class Echo(Protector):
    """Releases the noised gradient sum at zero, and asks for it in every step."""

    noise_multiplier: jax.Array
    clip_norm: jax.Array
    num_steps: int = struct.field(pytree_node=False, default=1)
    adaptive_noise = False

    def init(self, params, oracle):
        return params, ()

    def step(self, params, state, oracle):
        query = ClippedGradient(
            oracle.setup.model,
            jnp.zeros_like(params),
            FeatureMap.identity(params.shape[0] - 1),
            self.clip_norm,
            self.noise_multiplier,
        )
        return oracle.ask(query), state

    def finish(self, params, state, setup):
        return params


def read_card(card, folder):
    (folder / "card.json").write_text(card.to_json())
    return l2p.Card.from_json(folder / "card.json")


class Unread(RowSource):
    """Rows that must not be read."""

    num_rows, num_features = NUM_ROWS, NUM_FEATURES

    def blocks(self):
        pytest.fail("a row was read")
