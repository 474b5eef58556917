"""Class weights that mean nothing, or that a method cannot take, are refused before a row is read."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.estimators import PrivateClassifier
from l2p.oracle import Oracle, reader_of
from l2p.privacy import Adjacency, Budget, Spending
from l2p.protectors import HAND_DESIGNED
from l2p.release.admission import admit
from l2p.tables.schema import Target
from l2p.tables.schema.columns import Value
from l2p.tables.schema.declaring import schema_of_pair
from tests.canaries import observed
from tests.privacy.weights import BUDGET, SCHEMA, TABLE, WEIGHTED, D, Nothing, encoded, f32, rare, setup, table

BAD = {
    "too few": ((1,), "weights must be 2 numbers above 0"),
    "zero": ((1, 0), "weights must be 2 numbers above 0"),
    "negative": ((1, -1), "weights must be 2 numbers above 0"),
    "NaN": ((1, float("nan")), "weights must be 2 numbers above 0"),
    "infinite": ((1, float("inf")), "weights must be 2 numbers above 0"),
    "a text": ("12", "weights must be 2 numbers above 0"),
    "far apart": ((1, 20_000), "would be rounded to nothing"),
}


@pytest.mark.parametrize(("weights", "phrase"), BAD.values(), ids=BAD)
def test_what_is_no_weight_is_refused(weights, phrase):
    with pytest.raises(InputError, match=phrase):
        Target("sick", ("no", "yes"), weights=weights)


def test_a_number_to_predict_has_no_weights():
    with pytest.raises(InputError, match="but the target is a number"):
        Target("price", bounds=(0, 1), weights=(1, 2))
    with pytest.raises(InputError, match="but the target is a number"):
        schema_of_pair(pair(), (0, 1), None, (0, 1), {"no": 1})


def pair() -> tuple[np.ndarray, list[Value]]:
    return np.full((2, 1), 0.5), ["no", "yes"]


BY_CLASS = {
    "unknown": ({"no": 1, "maybe": 2}, "'maybe', which is none of the classes"),
    "left out": ({"no": 1}, "class 'yes' has no weight"),
    "balanced": ("balanced", "how frequent classes are is private"),
    "negative": ({"no": 1, "yes": -2}, "weights must be 2 numbers above 0"),
}


@pytest.mark.parametrize(("weights", "phrase"), BY_CLASS.values(), ids=BY_CLASS)
def test_weights_by_class_that_do_not_fit_are_refused(weights, phrase):
    with pytest.raises(InputError, match=phrase):
        l2p.private_train(pair(), "noisygd", BUDGET, bounds=(0, 1), classes=["no", "yes"], class_weights=weights)


def test_weights_without_declared_classes_quote_no_label():
    with pytest.raises(InputError, match="classes that are not declared") as refused:
        PrivateClassifier(1.0, bounds=(0, 1), class_weights={"yes": 2, "perhaps": 1}).fit(*map(np.asarray, pair()))
    assert "no'" not in str(refused.value)


@pytest.mark.parametrize("options", [{"schema": SCHEMA}, {}])
def test_weights_beside_a_schema_or_encoded_rows_are_refused(options):
    with pytest.raises(InputError, match="class_weights"):
        l2p.private_train(rare(10) if options else table(), "noisygd", BUDGET, class_weights=(1, 2), **options)


@pytest.mark.parametrize("method", sorted(HAND_DESIGNED))
def test_a_method_takes_weights_or_refuses_before_a_row_is_read(method):
    """Methods that ask for sums take weights."""
    budget = Budget(1.0, 1e-6, HAND_DESIGNED[method].adjacency or Adjacency.ZERO_OUT)
    model = "square" if method in ("adassp", "boosted_adassp", "dp_ls") else "logistic"
    check = functools.partial(admit, method, budget, model, schema=WEIGHTED, has_public=True)
    if HAND_DESIGNED[method](budget).additive:
        check()
        return
    with pytest.raises(InputError, match=r"solved on all rows at once|without noise"):
        check()
    files = {"data": "no such table.csv", "public": "nor such.csv"}
    with pytest.raises(InputError, match=r"solved on all rows at once|without noise"):
        l2p.private_train(**files, protector=method, budget=budget, schema=WEIGHTED, model=model, num_rows=200)


def test_a_solve_is_refused_by_the_oracle_before_it_is_charged():
    protector = HAND_DESIGNED["outpert"](BUDGET)
    here = Oracle(
        reader_of(jax.tree.map(jnp.asarray, encoded(TABLE))),
        setup(),
        Spending(f32(0), f32(1e9)),
        Nothing(jax.random.key(0)),
        f32(0),
    )
    params, state = protector.init(jnp.zeros(D + 1), here)
    with pytest.raises(InputError, match="solved on all rows at once"):
        protector.step(params, state, here)
    assert float(here.spending.spent) == 0


def test_a_choice_among_several_runs_refuses_weights(tmp_path):
    WEIGHTED.write(tmp_path / "schema.json")
    args = [
        "apply",
        "--data",
        "no such table.csv",
        "--schema",
        str(tmp_path / "schema.json"),
        "--out",
        str(tmp_path / "o"),
    ]
    code, output = observed(
        lambda: main([*args, "--epsilon", "1", "--delta", "1e-6", "--protector", "noisygd:private"])
    )
    assert code == 2
    assert "scores them by the share of rows whose label is predicted" in output
