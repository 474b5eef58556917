"""Rows that are not what models learn from are never trained on in silence."""

import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError, RowsError


def rows(**changes):
    x = np.linspace(0, 1, 900, dtype=np.float32)[:, None]
    return l2p.Rows(**({"x": x, "y": (x[:, 0] > 0.5).astype(np.float32), "mask": np.ones(900, np.float32)} | changes))


WRONG = {
    "features in their own units": (
        {"x": np.linspace(0, 120, 900)[:, None]},
        "logistic",
        r"x holds values outside \[0, 1\]",
    ),
    "negative features": ({"x": np.linspace(-1, 1, 900)[:, None]}, "logistic", r"x holds values outside \[0, 1\]"),
    "labels -1 and 1": ({"y": np.resize([-1.0, 1.0], 900)}, "logistic", "labels other than 0 and 1"),
    "labels 1 and 2": ({"y": np.resize([1.0, 2.0], 900)}, "logistic", "labels other than 0 and 1"),
    "classes from 1": ({"y": np.resize([1.0, 2.0, 3.0], 900)}, "softmax:3", "labels other than 0 to 2"),
    "a number in its own units": ({"y": np.linspace(0, 9, 900)}, "square", r"y holds values outside \[0, 1\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_rows_that_nobody_scaled_or_numbered_are_refused_with_a_way_out(name):
    changes, model, phrase = WRONG[name]
    for data in (rows(**changes), l2p.ArraySource(rows(**changes), 300)):
        with pytest.raises(InputError, match=f"{phrase}.*schema"):
            l2p.private_train(data, "noisygd", l2p.Budget(1.0, 1e-5), model=model)


@pytest.mark.slow
def test_a_null_row_may_hold_anything():
    x = rows().x.copy()
    x[3] = 120
    mask = np.ones(900, np.float32)
    mask[3] = 0
    assert l2p.private_train(rows(x=x, mask=mask), "noisygd", l2p.Budget(1.0, 1e-5)).steps == 50


class Stream(l2p.RowSource):
    num_rows, num_features = 900, 1

    def blocks(self):
        yield rows(x=np.linspace(0, 120, 900)[:, None])


@pytest.mark.slow
def test_a_stream_of_such_rows_ends_at_its_first_block():
    with pytest.raises(RowsError, match="x holds values outside"):
        l2p.private_train(Stream(), "noisygd", l2p.Budget(1.0, 1e-5))
