"""Passes of bolt-on SGD over rows that stream: the result of rows in memory, to the last bit of a release."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.models import HuberSVM, Logistic
from l2p.privacy.budget import Budget
from l2p.privacy.ledger.ledger import Cost, Ledger
from l2p.privacy.sensitivity.engine_run import EngineRun
from l2p.privacy.sensitivity.passes import Passes
from l2p.protectors import BoltOn
from l2p.protectors.by_hand.engine_passes import EnginePasses
from l2p.queries import PassDescent
from l2p.queries.rows_in_order import orders, orders_in_turn
from l2p.queries.streamed_passes import StreamedPasses
from l2p.release import run_noise
from l2p.release.api import load
from l2p.task import shuffled
from l2p.task.entropy import Entropy
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource, RemoteRows

N, D = 103, 3
BUDGET = Budget(2.0, 1e-6)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(shuffled, "PART", 4 * (D + 2) * 15)


def table(num_rows=N, weight=1.0):
    random = np.random.default_rng(0)
    x = random.random((num_rows, D)).astype(np.float32)
    mask = np.where(np.arange(num_rows) % 10 == 4, 0, weight)
    return Rows(x, np.digitize(x[:, 0] - x[:, 1], [-0.2, 0.2]).astype(np.float32), mask.astype(np.float32))


def query(plan, loss=Logistic(), **fields):  # noqa: B008
    start = jnp.linspace(-1, 1, 4 * fields.get("num_classes", 1))
    return PassDescent(loss, plan, start, jnp.ones(()), jnp.full((), -jnp.inf), **fields)


PLANS = {
    "a short last batch": query(Passes(N, 0.25, 2, 7, step_size=0.9)),
    "one order, three classes, an average": query(
        Passes(N, 0.25, 2, 4, "strongly_convex", ridge=0.2, averaged=0.5, order="same"), num_classes=3
    ),
    "ball, svm, lines that the table lacks": query(Passes(N + 2, 5.0, 2, 50, step_size=0.1, radius=0.3), HuberSVM(0.1)),
}


@pytest.mark.slow(but=["one order, three classes, an average"])
@pytest.mark.parametrize("name", PLANS)
def test_the_result_is_that_of_rows_in_memory_and_a_row_moves_it_within_the_bound(name):
    descent = PLANS[name]
    # A release counts no row more than once, whatever its source says.
    source, rows = ArraySource(table(weight=3.0), 40), table()
    neighbour = ArraySource(source.rows.replace(mask=np.where(np.arange(N) == 1, 0, source.rows.mask)), 40)
    key = jax.random.key(1)
    with jax.enable_x64(True):
        exact = Rows(*(jnp.asarray(leaf, jnp.float64) for leaf in (rows.x, rows.y, rows.mask)))
        expected = jax.jit(PassDescent.result)(descent, exact, orders(descent.plan, KeyNoise(key)))
        streamed, moved = (
            StreamedPasses(rows, exact=True).passes(descent, orders_in_turn(descent.plan, KeyNoise(key)))
            for rows in (source, neighbour)
        )
    assert streamed.dtype == np.float64
    # Far below what the bound counts for rounding.
    np.testing.assert_allclose(streamed, expected, rtol=1e-13, atol=1e-15)
    assert np.abs(streamed - descent.start).max() > 0.01
    assert 0 < np.linalg.norm(moved - streamed) <= float(descent.bound)


def test_a_release_is_bit_for_bit_that_of_rows_in_memory(monkeypatch):
    monkeypatch.setattr(run_noise, "Entropy", lambda: Entropy(5))
    rows = table()
    rows = rows.replace(y=np.minimum(rows.y, 1))
    method = BoltOn(N, 3, 7, averaged=0.5)
    in_memory, streamed = (l2p.private_train(data, method, BUDGET) for data in (rows, ArraySource(rows, 40)))
    np.testing.assert_array_equal(in_memory.params, streamed.params)
    assert streamed.card.private_release
    assert in_memory.card.epsilon_certified == streamed.card.epsilon_certified


def test_methods_say_whether_they_stream():
    steps = {"step_size": 0.1, "first_step": 0.1, "last_step": 0.1}
    run = EngineRun(engine="a job", num_rows=N, num_passes=1, updates=N, **steps)
    for streams, protectors in {
        True: (BoltOn(N), BoltOn(N, order="same"), load("bolt_on_sc", BUDGET), load("noisygd", BUDGET)),
        False: (BoltOn(N, snapshots=True), load("scs13", BUDGET), EnginePasses.declared(run, BUDGET, None)),
    }.items():
        assert [protector.streams for protector in protectors] == [streams] * len(protectors)


class Elsewhere(RemoteRows):
    num_rows, num_features = N, D

    def exact_sum(self, summed, lines):
        raise AssertionError("rows were read")


REFUSED = {
    "repeated rows": (BoltOn(N, order="with_replacement", tail=1e-9), "reads them in another way"),
    "snapshots": (BoltOn(N, 2, 7, snapshots=True), "reads them in another way"),
    "noise in every step": ("scs13", "load them into memory"),
    "rows on other machines": ("bolt_on", "load them into memory"),
    "no room": ("bolt_on", "name another folder in TMPDIR"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_stream_is_refused_before_anything_is_spent(name, tmp_path, monkeypatch):
    method, sentence = REFUSED[name]
    if name == "no room":
        monkeypatch.setattr(shuffled.shutil, "disk_usage", lambda folder: shuffled.shutil._ntuple_diskusage(1, 1, 0))
    rows = table()
    ledger = Ledger.create(tmp_path / "rows.ledger", "rows", BUDGET, "gdp", Cost(1.0))
    source = Elsewhere() if "machines" in name else ArraySource(rows.replace(y=np.minimum(rows.y, 1)), 40)
    with pytest.raises(InputError, match=sentence):
        l2p.private_train(source, method, BUDGET, ledger=ledger)
    assert not ledger.entries()
