"""Check that a refusal quotes no secret, for tests of private tables."""

import traceback

import pytest

from l2p.base.errors import InputError

SECRET = "hiv-positive"


def refusal(function, *args, **kwargs):
    """The message of the InputError, checked to quote the secret nowhere, the printed traceback's causes included."""
    with pytest.raises(InputError) as caught:
        function(*args, **kwargs)
    error = caught.value
    printed = "".join(traceback.format_exception(error))
    assert SECRET not in str(error)
    assert f"'{SECRET}'" not in printed
    return str(error)
