import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import Logistic
from l2p.protectors import PublicGeometry
from meta_train.tasks.other_classes import OtherClasses, along_other_classes
from meta_train.tasks.sources import families

SOURCE, DIRECTIONS = "digits:rest:3,5", 6


@pytest.fixture(scope="module")
def table():
    return families(SOURCE)[0]


@pytest.fixture(scope="module")
def others(table):
    return OtherClasses.of(table, DIRECTIONS)


@pytest.mark.slow(but=["pair2"])
@pytest.mark.parametrize("pair", [(7, 9), (9, 7), (0, 1)])
def test_a_run_along_all_directions_reads_a_pair_along_those_of_the_other_classes(table, others, pair):
    x, y = np.asarray(table.x), np.asarray(table.y)
    every, of_others = PublicGeometry.of(x, DIRECTIONS), PublicGeometry.of(x[~np.isin(y, pair)], DIRECTIONS)
    rows = x[np.isin(y, pair)]
    turned = others(jnp.asarray(rows), *(jnp.float32(label) for label in pair))
    read = (turned - every.center[None]) @ every.directions
    meant = (
        (rows - of_others.center[None]) @ of_others.directions * jnp.sqrt(every.variances / of_others.variances)[None]
    )
    # An eigenvector may have either sign.
    np.testing.assert_allclose(np.abs(read), np.abs(meant), atol=1e-4)
    # It differs from the pair along directions that include it.
    assert np.abs(np.abs(read) - np.abs((rows - every.center[None]) @ every.directions)).max() > 0.3


def test_the_others_vary_as_much_as_all_do_along_the_runs_directions(table, others):
    x, y = np.asarray(table.x), np.asarray(table.y)
    every = PublicGeometry.of(x, DIRECTIONS)
    turned = others(jnp.asarray(x[~np.isin(y, (7, 9))]), jnp.float32(7), jnp.float32(9))
    read = (turned - every.center[None]) @ every.directions
    np.testing.assert_allclose(np.cov(read.T, bias=True), np.diag(np.asarray(every.variances)), atol=1e-4)


@pytest.mark.slow
def test_rows_of_unknown_classes_stay_as_they_are(table):
    turn = OtherClasses.of(table.of_classes((0, 1, 2, 4)), DIRECTIONS)
    for pair in ((7, 9), (0, 9)):
        np.testing.assert_array_equal(turn(table.x[:9], *(jnp.float32(label) for label in pair)), table.x[:9])


@pytest.mark.slow
def test_tasks_use_the_other_classes_directions_in_training_and_held_out(table):
    turned, plain = along_other_classes(*families(SOURCE), DIRECTIONS), families(SOURCE)
    for turned_task, plain_task in zip(turned, plain, strict=True):
        rows, unturned = (
            family.sample(jax.random.key(0), Logistic(), 2, 32, None, (1.0, 5.0)).rows
            for family in (turned_task, plain_task)
        )
        np.testing.assert_array_equal(rows.y, unturned.y)
        assert np.linalg.matrix_rank(np.cov(np.asarray(rows.x[0]).T), tol=1e-4) == DIRECTIONS
        assert np.linalg.matrix_rank(np.cov(np.asarray(unturned.x[0]).T), tol=1e-4) > DIRECTIONS


def test_without_other_classes_tasks_are_unchanged():
    for source, directions in (("digits:4,6", 6), (SOURCE, None), ("synthetic", 6)):
        train, held_out = families(source)
        assert along_other_classes(train, held_out, directions) == (train, held_out)
    unseen = tuple(range(8))
    assert along_other_classes(*families(SOURCE), DIRECTIONS, unseen)[0].other_classes is None
