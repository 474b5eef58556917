"""What tests of private tables share: a small table, and a refusal that quotes no secret."""

import traceback

import numpy as np
import pytest

from l2p.data import Table
from l2p.errors import InputError

SECRET = "hiv-positive"
BOUNDS = {"age": (0, 120), "dose": (-1, 1)}


def table(labels=(0, 1, 1), ages=(30, 60, 150), doses=(0, -1, 9)):
    """Columns age, dose, label."""
    return Table(("age", "dose", "label"), np.column_stack([ages, doses, labels]).astype(float))


def refusal(function, *args, **kwargs):
    """The message of the InputError, checked to quote the secret nowhere, the printed traceback's causes included."""
    with pytest.raises(InputError) as caught:
        function(*args, **kwargs)
    error = caught.value
    printed = "".join(traceback.format_exception(error))
    assert SECRET not in str(error)
    assert f"'{SECRET}'" not in printed
    return str(error)
