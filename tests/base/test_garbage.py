"""Thresholds of garbage collection while much is imported or traced."""

import contextlib
import gc

import pytest

from l2p.base.garbage import SELDOM, seldom_collected


@pytest.fixture(autouse=True)
def _thresholds_and_collection_stay():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.enable()


def test_garbage_is_collected_seldom_meanwhile_and_as_before_afterwards():
    gc.set_threshold(500, 7, 8)
    with contextlib.suppress(KeyError), seldom_collected():
        with seldom_collected():
            pass
        assert gc.get_threshold() == SELDOM
        raise KeyError
    assert gc.get_threshold() == (500, 7, 8)


def test_who_has_turned_collection_off_is_left_alone():
    gc.set_threshold(500, 7, 8)
    gc.disable()
    with seldom_collected():
        assert gc.get_threshold() == (500, 7, 8)
    assert not gc.isenabled()
