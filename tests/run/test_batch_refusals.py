"""Samplers, accountants and tables that do not go together are refused."""

import math

import jax.numpy as jnp
import pytest

from l2p.base.errors import InputError
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency, Budget, Filter
from l2p.privacy.cost.sampling import FixedSize, FullBatch, PermutationEpochs, Poisson
from l2p.release import api
from l2p.task.noise import HostNoise
from l2p.task.sources import RowSource
from tests.run.batches import (
    FIXED,
    MODEL,
    POISSON,
    REPLACE_ONE,
    SAMPLERS,
    SIZE,
    STEPS,
    ZERO_OUT,
    N,
    descent,
    drawn_for,
    read,
    setup,
)


class Unread(RowSource):
    """Rows that must not be read."""

    num_rows, num_features = 1000, 3

    def blocks(self):
        pytest.fail("a row was read")


REFUSED = {
    "poisson, gdp": (Poisson(0.1), "gdp", "zero_out", "no theorem for Poisson"),
    "poisson, zcdp": (Poisson(0.1), "zcdp", "add_remove", "no theorem for Poisson"),
    "poisson, paper_13": (Poisson(0.1), "paper_13", "zero_out", "no theorem for Poisson"),
    "poisson, pld, replace_one": (Poisson(0.1), "pld", "replace_one", "not proved"),
    "poisson, moments, replace_one": (Poisson(0.1), "moments", "replace_one", "proved for full batches"),
    "fixed size, moments": (FixedSize(100, 1000), "moments", "replace_one", "no theorem for fixed-size"),
    "epochs, moments": (PermutationEpochs(100, 1000), "moments", "zero_out", "no theorem for permutation epochs"),
    "epochs, strong composition": (
        PermutationEpochs(100, 1000),
        "strong_composition",
        "zero_out",
        "no theorem for permutation epochs",
    ),
    "fixed size, zero_out": (FixedSize(100, 1000), "rdp", "zero_out", "no price under adjacency zero_out"),
    "fixed size, add_remove": (FixedSize(100, 1000), None, "add_remove", "no price under adjacency add_remove"),
    "fixed size, gdp": (FixedSize(100, 1000), "gdp", "replace_one", "no theorem for fixed-size"),
    "fixed size, zcdp": (FixedSize(100, 1000), "zcdp", "replace_one", "no theorem for fixed-size"),
    "fixed size, pld": (FixedSize(100, 1000), "pld", "replace_one", "no theorem for fixed-size"),
    "large batches, paper_13": (FixedSize(200, 1000), "paper_13", "replace_one", "sampling rates up to 0.1"),
    "fixed size, another table": (FixedSize(100, 999), "rdp", "replace_one", "set up for 999 rows"),
    "epochs, add_remove": (PermutationEpochs(100, 1000), "gdp", "add_remove", "no price under adjacency"),
    "epochs, pld": (PermutationEpochs(100, 1000), "pld", "zero_out", "no theorem for permutation epochs"),
    "epochs, paper_13": (PermutationEpochs(100, 1000), "paper_13", "zero_out", "no theorem for permutation epochs"),
    "epochs, another table": (PermutationEpochs(100, 1001), "gdp", "zero_out", "set up for 1001 rows"),
    "full batch, pld": (FullBatch(), "pld", "zero_out", "no theorem for full batch"),
    "full batch, paper_13": (FullBatch(), "paper_13", "zero_out", "no theorem for full batch"),
}


@pytest.mark.slow(cases=["poisson, pld, replace_one", "poisson, moments, replace_one"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_combination_without_a_theorem_costs_one_sentence_and_no_row(name):
    sampler, accountant, adjacency, phrase = REFUSED[name]
    budget = Budget(1.0, 1e-6, Adjacency(adjacency))
    with pytest.raises(InputError, match=phrase) as caught:
        api.private_train(Unread(), descent(sampler), budget, accountant=accountant, num_rows=1000)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize("numbers", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_a_rate_is_a_probability_strictly_between_0_and_1(numbers):
    with pytest.raises(InputError, match="not a probability"):
        Poisson(numbers)


@pytest.mark.parametrize("sampler", [FixedSize, PermutationEpochs])
@pytest.mark.parametrize("sizes", [(0, 10), (10, 10), (11, 10), (-1, 10), (2.5, 10), (2, 10.5)], ids=str)
def test_a_batch_is_a_proper_part_of_the_table(sampler, sizes):
    with pytest.raises(InputError, match="not proper subsets"):
        sampler(*sizes)


@SAMPLERS
def test_a_setup_has_no_sampler_but_its_accountants(sampler):
    here = setup(sampler)
    assert here.price_list.sampler == sampler
    assert not hasattr(here, "sampler")
    assert float(here.batch_rows) == pytest.approx(N * sampler.rate())
    # An accountant whose sampler was swapped does not get the batches that it was priced for from a release.
    mismatched = FIXED if sampler is POISSON else POISSON
    (_, plan), _, steps = drawn_for(mismatched, num_steps=1)
    noise = HostNoise([values[0] for values in steps], plan)
    with pytest.raises(RuntimeError, match=r"was planned, but the step asked for a batch .* by " + sampler.name):
        noise.batch(sampler, N, jnp.array(0))


@pytest.mark.parametrize(
    ("planned", "adjacency"), [(ZERO_OUT, REPLACE_ONE), (REPLACE_ONE, ZERO_OUT)], ids=["zero_out", "replace_one"]
)
def test_an_accountant_priced_for_other_neighbours_makes_no_setup(planned, adjacency):
    accountant = Filter("rdp", Budget(1.0, 1e-6, planned), POISSON, STEPS).price_list()
    with pytest.raises(InputError, match="neighbours"):
        Setup.create(MODEL, adjacency, accountant, N)


@pytest.mark.parametrize("sampler", [FixedSize(SIZE, N + 1), PermutationEpochs(SIZE, N - 1)], ids=str)
def test_the_oracle_itself_refuses_a_table_of_another_size(sampler):
    with pytest.raises(InputError, match=f"set up for {sampler.num_rows} rows, but the table has {N}"):
        read(sampler)
