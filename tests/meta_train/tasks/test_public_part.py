"""Public rows of tasks: how many there are, which, and that no private row is one of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.task.rows import Rows
from meta_train.config import EveryModel
from meta_train.tasks.family import COPIES
from meta_train.tasks.public_part import ALIKE, NONE, with_public_part
from meta_train.tasks.sources import families

TASKS, N, SHARE = 400, 100, 0.1


@pytest.fixture(scope="module")
def drawn():
    """(private, public) of tasks whose first feature numbers the rows, of which the last tenth do not count."""
    x = jnp.broadcast_to(jnp.arange(N, dtype=jnp.float32)[:, None], (TASKS, N, 1))
    rows = Rows(x, jnp.zeros((TASKS, N)), jnp.broadcast_to((jnp.arange(N) < 90).astype(jnp.float32), (TASKS, N)))
    return jax.device_get(jax.jit(with_public_part, static_argnums=(2, 3))(jax.random.key(0), rows, SHARE, 3.0))


def test_every_row_that_counts_is_private_or_public(drawn):
    public = drawn[1]
    assert public.x.shape == (TASKS, 10, 1)
    for task in range(TASKS):
        mine, theirs = (set(part.x[task, part.mask[task] > 0, 0].tolist()) for part in drawn)
        assert not mine & theirs
        assert mine | theirs == set(range(90))
    counts = public.mask.sum(1)
    assert counts.max() == 9
    assert abs((counts == 0).mean() - NONE) < 0.08


def test_some_are_drawn_like_the_private_ones_and_others_are_not(drawn):
    _, public = drawn
    many = public.mask.sum(1) >= 5
    means = (public.x[..., 0] * public.mask).sum(1)[many] / public.mask.sum(1)[many]
    distance = np.abs(means - 44.5) / 26
    assert np.mean(distance < 0.5) > 0.8 * ALIKE
    assert np.mean(distance > 1.0) > 0.2


@pytest.mark.long
def test_tasks_of_a_family_have_them_beside_the_rows_that_runs_read():
    family, arguments = families("synthetic", fresh_rows=True)[0], {"fresh_shares": (1.0, 0.0), "num_tasks": 8}
    arguments |= {"num_rows": 64, "num_features": 4, "log_signal": (1.0, 9.0), "public_share": SHARE}
    model = EveryModel.of("x", "control_filter", **SMALL).tasks.one_model()
    batch = jax.jit(lambda key: family.sample(key, model, public_shift=2.0, **arguments))(jax.random.key(0))
    assert batch.public.x.shape == (8, 7, 4)
    assert ((batch.rows.mask.sum(1) + batch.public.mask.sum(1)) == 64).all()
    assert set(batch.public.mask.ravel().tolist()) == {0.0, 1.0}
    # Where a row stands for many a public one is still a single one; runs are scored on public rows, too.
    assert COPIES in batch.copies.tolist()
    assert (batch.scored.mask == 1).all()


SMALL = {"sources": ("synthetic",), "models": ("logistic",), "num_features": (4,), "fresh_shares": (1.0, 0.0)}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"public_share": 1.0}, "public_share"),
        ({"public_share": -0.1}, "public_share"),
        ({"public_shift": -1.0}, "public_shift"),
        ({"public_share": 0.1, "fresh_shares": None}, "public_share"),
    ],
)
def test_shares_and_shifts_that_are_none_are_refused(fields, name):
    with pytest.raises(InputError, match=name):
        EveryModel.of("x", "control_filter", **SMALL | fields)
