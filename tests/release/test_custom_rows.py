"""What single rows of a loss of one's own can do to a run: none refuses it, warns of itself or reaches another row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base.layout import MOST_WHOLE
from l2p.release.losses.custom import custom
from tests.release.losses import DATA, NUM_FEATURES, START, logistic


def plain(params, row):
    return params[0].sum() * row["x"].sum() + params[1][0] * row["token"].sum()


def rows_of(**columns):
    return custom(columns, plain, START).rows


def test_a_row_with_a_whole_number_that_float32_would_round_counts_as_null_and_alone():
    token = np.array([[0, 1], [MOST_WHOLE, -MOST_WHOLE], [0, MOST_WHOLE + 1], [-MOST_WHOLE - 1, 0], [-(2**31), 0]])
    x = np.ones((5, 2), np.float32)
    for dtype in (np.int64, np.int32):
        assert rows_of(x=x, token=token.astype(dtype)).mask.tolist() == [1, 1, 0, 0, 0]
    for dtype in (np.uint32, np.uint64):  # of which none is below 0
        assert rows_of(x=x, token=np.abs(token).astype(dtype)).mask.tolist() == [1, 1, 0, 0, 0]
    assert rows_of(x=x[:0], token=token[:0]).mask.shape == (0,)


@pytest.mark.filterwarnings("error")
def test_no_warning_tells_of_a_row_that_is_too_large():
    x = np.array([[1.0], [1e300], [np.nan]])
    with np.errstate(all="raise"):
        rows = rows_of(x=x, token=np.array([-(2**31), 2**31 - 1, 0], np.int32))
    assert np.isinf(rows.x).any(axis=1).tolist() == [False, True, False]


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")  # JAX's, of public numbers of the setup
def test_where_64_bits_are_on_a_loss_still_sees_32():
    budget = l2p.Budget(1.0, 1e-5)

    def loss(params, row):
        assert {leaf.dtype.itemsize for leaf in (*params, *row.values())} == {4}
        return logistic(params, row)

    with jax.enable_x64(True):
        params = jnp.zeros(NUM_FEATURES), jnp.zeros(1)
        data = {"x": DATA["x"].astype(np.float64), "y": DATA["y"].astype(np.int64)}
        protector = l2p.load("noisygd", budget).replace(num_steps=1)
        assert l2p.private_train(data, protector, budget, model=loss, params=params).steps == 1
