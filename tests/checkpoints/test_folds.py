"""Choice of the fold that stands for a protector on data that it was made from: its card does not list them."""

import dataclasses

import jax
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint, lookup, named
from l2p.checkpoints.control import control_of
from l2p.checkpoints.folds import HoldOut, fold_name, hold_out
from l2p.privacy import Budget, Poisson
from meta_train.training.untrained import BUILDERS
from tests.checkpoint_files import write_checkpoint

BUDGET = Budget(0.1, 1e-8)
SETS = ["adult", "breast_cancer", "digits:rest:", "ipums_br", "synthetic"]


def without(*left_out):
    return [source for source in SETS if source not in left_out]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A protector and its folds, in the only folder where names are looked up."""
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path,))
    write_checkpoint(tmp_path, "whole", sources=SETS)
    write_checkpoint(tmp_path, "whole-fold-1", sources=without("adult", "digits:rest:"))
    write_checkpoint(tmp_path, "whole-fold-2", sources=without("breast_cancer"))
    return tmp_path


def resolved(name, data):
    method = lookup.resolve(name, BUDGET, "logistic", avoid=(data,))
    return method.name, method.sha256


@pytest.mark.parametrize(
    ("data", "stands"),
    [
        ("adult", "whole-fold-1"),
        ("digits:odd", "whole-fold-1"),
        ("breast_cancer", "whole-fold-2"),
        ("california", "whole"),
        ("table:ward:0123456789abcdef", "whole"),
    ],
)
def test_the_first_fold_that_never_saw_the_data_takes_the_protectors_name(folder, data, stands):
    assert resolved("whole", data) == ("whole", checkpoint.digest(stands))
    held = hold_out("whole", [data])
    assert (held is None) == (stands == "whole")
    assert held is None or held.name == stands


def test_what_a_fold_never_saw_is_told_the_data_first(folder):
    assert hold_out("whole", ["digits"]) == HoldOut("whole-fold-1", ("digits:rest:", "adult"))
    assert str(hold_out("whole", ["adult"])) == "whole-fold-1, made without adult, digits:rest:"
    assert str(HoldOut("whole-fold-1", tuple("abcdef"))) == "whole-fold-1, made without a, b, c, d and 2 more"


def test_a_fold_is_chosen_by_its_card_and_not_by_its_number(folder):
    # The lists of folds say that this one leaves Adult out; its card says that it did not.
    write_checkpoint(folder, "whole-fold-1", sources=SETS)
    with pytest.raises(InputError, match="made from adult"):
        resolved("whole", "adult")
    write_checkpoint(folder, "whole-fold-3", sources=without("adult"))
    assert resolved("whole", "adult")[1] == checkpoint.digest("whole-fold-3")


def test_what_is_named_exactly_is_still_refused_on_its_sources(folder):
    for name in (str(folder / "whole.safetensors"), "whole-fold-2"):
        with pytest.raises(InputError, match="made from adult"):
            resolved(name, "adult")


def test_a_run_that_is_not_scored_takes_the_whole_one(folder):
    method = lookup.resolve("whole", BUDGET, "logistic")
    assert (method.sha256, method.hold_out) == (checkpoint.digest("whole"), None)


def test_a_fold_has_the_control_that_its_card_names(folder):
    write_checkpoint(folder, "control-whole", sources=SETS)
    write_checkpoint(folder, "control-whole-fold-1", sources=without("adult"))
    warm = {"warm_start_arrays_sha256": checkpoint.load("control-whole-fold-1").arrays_sha256}
    config = {"warm_start": "control-whole-fold-1"}
    write_checkpoint(folder, "whole-fold-1", sources=without("adult"), config=config, **warm)
    method = lookup.resolve("whole", BUDGET, "logistic", avoid=("adult",))
    assert method.control == control_of(checkpoint.load("whole-fold-1").card)
    assert named.stand_in(method).sha256 == checkpoint.digest("control-whole-fold-1")
    # Asked for by its name, the control is that fold as well.
    assert resolved("control-whole", "adult")[1] == checkpoint.digest("control-whole-fold-1")


def test_variants_and_rates_of_a_fold_keep_what_it_is(folder):
    protector = dataclasses.replace(BUILDERS["control"](jax.random.key(0)), sampler=Poisson(0.05))
    card = {"range": {"sampling_rate": [0.02, 0.2]}}
    for name, sources in (("batches", SETS), ("batches-fold-1", without("adult"))):
        write_checkpoint(folder, name, protector, sources=sources, **card)
    for name in ("batches", "batches@0.02", "batches:pretrained"):
        method = lookup.resolve(name, BUDGET, "logistic", avoid=("adult",))
        assert (method.name, method.hold_out) == (name, HoldOut("batches-fold-1", ("adult",)))


def test_the_shipped_hold_outs_are_found_by_their_protectors_name():
    folds = {"adult": 1, "california": 1, "ipums_br": 2, "digits:odd": 2, "breast_cancer": 3, "openml:nursery": 3}
    for name in ("universal", "control-universal"):
        held = {data: hold_out(name, [data]) for data in folds}
        assert {data: fold and fold.name for data, fold in held.items()} == {
            data: fold_name(name, number) for data, number in folds.items()
        }
