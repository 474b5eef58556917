"""Runs with class weights: what is learned follows them, and the card says so."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import l2p
from l2p.commands.cli import main
from l2p.estimators import PrivateClassifier
from l2p.privacy import Budget
from l2p.tables.schema import Target
from l2p.tables.schema.declaring import schema_of_pair
from tests.canaries import observed
from tests.privacy.weights import SCHEMA, WEIGHTED, rare


def train(schema, **changes):
    options = {"schema": schema, "key": jax.random.key(0)} | changes
    return l2p.private_train(rare(), "auto_clip", Budget(4.0, 1e-5), **options)


@pytest.fixture(scope="module")
def trained():
    return {"none": train(SCHEMA), "weighted": train(WEIGHTED)}


def recall(result):
    fresh = rare(seed=1)
    return (result.predict(fresh) == "yes")[fresh["sick"] == "yes"].mean()


def test_weights_raise_the_recall_of_a_rare_class(trained):
    assert recall(trained["none"]) < 0.1
    assert recall(trained["weighted"]) > 0.6


def test_weights_all_alike_train_the_same_model(trained):
    alike = dataclasses.replace(SCHEMA, target=Target("sick", ("no", "yes"), weights=(5, 5)))
    np.testing.assert_array_equal(train(alike).params, trained["none"].params)


def test_only_the_ratio_of_weights_matters(trained):
    scaled = dataclasses.replace(SCHEMA, target=Target("sick", ("no", "yes"), weights=(0.5, 6)))
    np.testing.assert_array_equal(train(scaled).params, trained["weighted"].params)


def test_the_card_says_that_classes_were_weighted(trained):
    sentences = [line for line in trained["weighted"].card.not_private if "weight" in line]
    assert len(sentences) == 1
    assert "public by declaration: 1 for class no, 12 for class yes" in sentences[0]
    assert not any("weight" in line for line in trained["none"].card.not_private)
    assert trained["weighted"].card.epsilon_certified == trained["none"].card.epsilon_certified


@pytest.mark.filterwarnings("ignore:simulation_seed is set")
def test_bounds_and_classes_take_weights_by_class(trained):
    data = rare()
    X, y = np.stack([data["a"], data["b"]], 1), data["sick"]
    options = {"bounds": (0, 1), "classes": ["no", "yes"], "class_weights": {"yes": 12, "no": 1}}
    schema = schema_of_pair((X, y), (0, 1), ["no", "yes"], class_weights={"yes": 12, "no": 1})
    assert schema.target.weights == (1.0, 12.0)
    result = l2p.private_train((X, y), "auto_clip", Budget(4.0, 1e-5), key=jax.random.key(0), **options)
    np.testing.assert_array_equal(result.params, trained["weighted"].params)
    classifier = PrivateClassifier(4.0, protector="auto_clip", simulation_seed=0, **options).fit(X, y)
    assert (classifier.predict(X) == "yes").mean() > 0.2
    assert any("12 for class yes" in line for line in classifier.card_.not_private)


@pytest.mark.slow
def test_apply_weighs_classes_keeps_the_schema_and_scores_all_rows_alike(tmp_path):
    WEIGHTED.write(tmp_path / "schema.json")
    for name, seed in (("ward", 0), ("test", 1)):
        rows = rare(seed=seed)
        text = "\n".join(["a,b,sick", *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))])
        (tmp_path / f"{name}.csv").write_text(text)
    args = ["apply", "--data", str(tmp_path / "ward.csv"), "--schema", str(tmp_path / "schema.json")]
    args += ["--epsilon", "4", "--delta", "1e-5", "--protector", "auto_clip", "--out", str(tmp_path / "run")]
    code, output = observed(lambda: main([*args, "--dry-run"]))
    assert code == 0, output
    assert "1 for class no, 12 for class yes" in output
    code, output = observed(lambda: main([*args, "--test", str(tmp_path / "test.csv"), "--seed", "0"]))
    assert code == 0, output
    predictor = l2p.load_model(tmp_path / "run")
    assert predictor.schema.target.weights == (1.0, 12.0)
    accuracy = (predictor.predict(rows) == rows["sick"]).mean()
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["accuracy"] == pytest.approx(accuracy)
