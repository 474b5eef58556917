"""Resolution of names: the method or checkpoint, its accountant and sources, and the refusals."""

import dataclasses

import chex
import jax
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint, lookup, named
from l2p.privacy import Budget, Poisson
from l2p.protectors import AGD, HAND_DESIGNED
from meta_train.training.untrained import BUILDERS
from tests.checkpoint_files import CARD, write_checkpoint

BUDGET = Budget(0.1, 1e-8)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The only folder where names are looked up."""
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path,))
    return tmp_path


def test_hand_designed_names_resolve_without_files(folder):
    method = lookup.resolve("agd", BUDGET, "logistic")
    assert isinstance(method.protector, AGD)
    assert (method.accountant, method.sources, method.sha256, method.range) == ("rdp", (), None, None)


def test_agd_sets_its_shares_in_the_unit_of_the_accountant_asked_for(folder):
    method = lookup.resolve("agd", BUDGET, "logistic", accountant="ctcdp")
    assert method.accountant == "ctcdp"
    chex.assert_trees_all_equal(method.protector, HAND_DESIGNED["agd"](BUDGET, accountant="ctcdp"))


def test_a_checkpoint_resolves_with_what_its_card_says(folder):
    path = write_checkpoint(folder, "paper", BUILDERS["paper"](jax.random.key(0)), accountant="ctcdp")
    for name in ("paper", str(path)):
        method = lookup.resolve(name, BUDGET, "logistic")
        assert (method.name, method.accountant, method.sources) == (name, "ctcdp", ("adult",))
        assert method.range == CARD["range"]
        assert method.sha256 == checkpoint.load(path).sha256
    assert lookup.resolve("paper", BUDGET, "logistic", accountant="gdp").accountant == "gdp"


def test_a_sampling_rate_can_be_asked_of_what_was_made_for_several(folder):
    protector = dataclasses.replace(BUILDERS["control"](jax.random.key(0)), sampler=Poisson(0.05))
    write_checkpoint(folder, "control-batches", protector)
    warm = {"warm_start_arrays_sha256": checkpoint.load("control-batches").arrays_sha256}
    card = {"range": {"sampling_rate": [0.02, 0.2]}, "config": {"warm_start": "control-batches"}}
    path = write_checkpoint(folder, "batches", protector, **warm, **card)
    for name in ("batches@0.02", f"{path}@0.02"):
        method = lookup.resolve(name, BUDGET, "logistic")
        assert (method.name, method.protector.sampler, method.accountant) == (name, Poisson(0.02), "rdp")
        # The constants that run in place of its networks do not depend on the rate, and draw the same batches.
        assert named.stand_in(method).protector.sampler == Poisson(0.02)
    assert lookup.resolve("batches", BUDGET, "logistic").protector.sampler == Poisson(0.05)
    assert named.stand_in(lookup.resolve("batches", BUDGET, "logistic")).protector.sampler == Poisson(0.05)
    for name, why in (
        ("dpsgd@0.1", "made for one sampling rate only"),
        ("batches@2", "not a probability"),
        ("batches@x", "batches@x"),
    ):
        with pytest.raises(InputError, match=why):
            lookup.resolve(name, BUDGET, "logistic", num_rows=1000)


def test_tuned_methods_resolve_to_a_set_that_is_not_scored_on(folder):
    write_checkpoint(folder, "agd-tuned-logistic-adult")
    write_checkpoint(folder, "agd-tuned-logistic-digits", sources=["digits:odd"])
    write_checkpoint(folder, "agd-tuned-mlp-mnist", sources=["mnist"])

    def sources(**options):
        return lookup.resolve("agd:tuned", BUDGET, "logistic", **options).sources

    assert sources() == ("adult",)
    assert sources(avoid=["adult"]) == ("digits:odd",)
    assert sources(aux="digits") == ("digits:odd",)
    with pytest.raises(InputError, match="on adult without adult"):
        sources(aux="adult", avoid=["adult"])
    with pytest.raises(InputError, match="without adult, digits"):
        sources(avoid=["adult", "digits"])


def test_a_protector_is_not_scored_on_its_sources(folder):
    write_checkpoint(folder, "census")
    write_checkpoint(folder, "digits", sources=["mnist:4,6"])
    with pytest.raises(InputError, match="made from adult"):
        lookup.resolve("census", BUDGET, "logistic", avoid=["adult"])
    with pytest.raises(InputError, match="made from mnist:4,6"):
        lookup.resolve("digits", BUDGET, "logistic", avoid=["mnist"])
    assert lookup.resolve("digits", BUDGET, "logistic", avoid=["mnist:3,5"]).name == "digits"


@pytest.mark.parametrize("name", ["censos", "agd:oracle", ""])
def test_an_unknown_name_is_refused_with_the_known_ones(folder, name):
    write_checkpoint(folder, "census")
    write_checkpoint(folder, "agd-tuned-logistic-adult")
    with pytest.raises(InputError, match=", ".join([*HAND_DESIGNED, "census", "agd:tuned, or pass"])) as refused:
        lookup.resolve(name, BUDGET, "logistic")
    assert ("did you mean 'census'?" in str(refused.value)) == (name == "censos")


def test_a_protector_for_another_model_is_refused(folder):
    write_checkpoint(folder, "census", models=["mlp"])
    with pytest.raises(InputError, match="made for mlp, not for logistic"):
        lookup.resolve("census", BUDGET, "logistic")
    with pytest.raises(InputError, match="model 'forest' is unknown"):
        lookup.resolve("agd", BUDGET, "forest")
