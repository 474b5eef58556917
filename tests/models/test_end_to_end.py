"""Models with many classes or numeric targets, from a table to predictions in its own labels and units."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import l2p
from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.compare import results
from l2p.compare.config import CompareConfig
from l2p.compare.runner import compare
from l2p.compare.summary import report
from l2p.models import find_model
from l2p.release.prediction import saved
from l2p.tables.public.catalog import num_classes
from l2p.tables.schema import Ignore, Number, Schema, Target

N = 600
BOUNDS = {"age": (0, 100), "dose": (-1, 1)}
PRICES = (50.0, 250.0)
GRADE = Target("grade", classes=(3, 5, 9))


def columns(seed=0):
    random = np.random.default_rng(seed)
    return random.uniform(0, 100, N), random.uniform(-1, 1, N), random.normal(size=N)


def write(path, seed=0):
    """Columns age, dose, and two targets: grade (3, 5 or 9) and price."""
    age, dose, noise = columns(seed)
    grade = np.array([3, 5, 9])[np.digitize(age + 10 * dose + 4 * noise, [33, 66])]
    price = 100 + age + 20 * dose + 3 * noise
    lines = [f"{a:.4f},{d:.4f},{g},{p:.4f}" for a, d, g, p in zip(age, dose, grade, price, strict=True)]
    path.write_text("age,dose,grade,price\n" + "\n".join(lines) + "\n")
    return path


def cells_of(path):
    """A file's columns as numbers, by name."""
    names, *lines = (line.split(",") for line in path.read_text().splitlines())
    return dict(zip(names, np.array(lines, float).T, strict=True))


@pytest.fixture
def ward(tmp_path):
    """Writes a table, its schema with one target and a test table; returns the options that name them."""

    def make(target):
        write(tmp_path / "ward.csv")
        write(tmp_path / "test.csv", 1)
        numbers = {name: Number(*pair) for name, pair in BOUNDS.items()}
        unused = {"grade": "price", "price": "grade"}[target.column]
        Schema(numbers | {unused: Ignore()}, target).write(tmp_path / "schema.json")
        return {
            "--protector": "noisygd",
            "--data": str(tmp_path / "ward.csv"),
            "--schema": str(tmp_path / "schema.json"),
            "--epsilon": "20",
            "--delta": "1e-5",
            "--out": str(tmp_path / "out"),
            "--test": str(tmp_path / "test.csv"),
        }

    return make


def apply(options):
    words = [word for option, value in options.items() for word in (option, *value.split())]
    return main(["apply", *words])


@pytest.mark.slow
def test_softmax_from_a_table_of_labels_to_predicted_labels(ward, tmp_path, capsys):
    options = ward(GRADE) | {"--model": "softmax"}
    assert apply(options) == 0
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["accuracy"] > 0.6  # one class in three
    card = l2p.Card.from_json(tmp_path / "out" / "card.json")
    assert (card.model, card.private_release, card.num_features) == ("softmax:3", True, 2)
    model, test = l2p.load_model(tmp_path / "out"), cells_of(tmp_path / "test.csv")
    predicted = model.predict(test)
    assert set(predicted) <= {3, 5, 9}
    assert (predicted == test["grade"]).mean() == pytest.approx(metrics["accuracy"], abs=1e-6)
    arrays = load_file(tmp_path / "out" / "model.safetensors")
    x = np.stack([test["age"] / 100, test["dose"] / 2 + 0.5], axis=1)
    by_hand = np.array([3, 5, 9])[(x @ arrays["weights"] + arrays["bias"]).argmax(1)]
    assert (by_hand == predicted).mean() > 0.995
    capsys.readouterr()


@pytest.mark.slow
def test_square_from_a_table_of_numbers_to_predicted_numbers(ward, tmp_path):
    options = ward(Target("price", bounds=PRICES)) | {"--model": "square"}
    assert apply(options) == 0
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    test = cells_of(tmp_path / "test.csv")
    predicted = saved.load_model(tmp_path / "out" / "model.safetensors").predict(test)
    prices = np.clip(test["price"], *PRICES)
    error = np.mean((predicted - prices) ** 2)
    assert metrics["rmse"] == pytest.approx(error**0.5, rel=1e-3)  # in the target's own units
    assert metrics["r2"] == pytest.approx(1 - error / np.var(prices), abs=1e-3)
    assert metrics["r2"] > 0.5
    assert set(metrics) == {"rmse", "r2", "test_loss", "outside_guarantee"}
    # An empty cell has no prediction, and the test table needs no target.
    table = {"dose": np.array([0.5, np.nan]), "age": np.array([40.0, 40.0])}
    predictions = saved.load_model(tmp_path / "out").predict(table)
    assert np.isfinite(predictions[0])
    assert np.isnan(predictions[1])
    with pytest.raises(InputError, match="has no column 'dose'"):
        saved.load_model(tmp_path / "out").predict({"age": np.zeros(1)})


@pytest.mark.parametrize(
    ("target", "changes", "phrase"),
    [
        (Target("grade", (3, 5, 9)), {"--model": "forest"}, "model 'forest' is unknown"),
        (Target("grade", (3, 5, 9)), {"--model": "svm"}, "which model svm does not learn; choose softmax"),
        (Target("grade", (3, 5)), {"--model": "quadratic"}, "which model quadratic does not learn"),
        (Target("grade", bounds=(0, 9)), {"--model": "softmax"}, "how many classes"),
        (Target("grade", (3, 5)), {"--model": "logistic"}, "labels other than"),
        (Target("grade", (3, 5, 9)), {"--model": "softmax", "--protector": "minibatch"}, "was made for logistic"),
    ],
)
def test_what_a_model_cannot_learn_costs_one_sentence_and_nothing_else(ward, tmp_path, capsys, target, changes, phrase):
    assert apply(ward(target) | changes) == 2
    error = capsys.readouterr().err
    assert phrase in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_private_training_takes_its_classes_from_the_models_name_only():
    age, dose, _ = columns()
    y = np.digitize(age, [33, 66]).astype(np.float32)
    rows = l2p.Rows(np.c_[age / 100, (dose + 1) / 2].astype(np.float32), y, np.ones(N, np.float32))
    budget = l2p.Budget(20.0, 1e-5)
    result = l2p.private_train(rows, "noisygd", budget, model="softmax:5", key=jax.random.key(0))
    assert (str(result.model), result.params.shape, result.card.model) == ("softmax:5", (15,), "softmax:5")
    assert np.mean(np.asarray(result.model.predict(result.params, rows.x)) == y) > 0.6
    with pytest.raises(InputError, match="how many classes"):
        l2p.private_train(rows, "noisygd", budget, model="softmax")
    network = l2p.private_train(rows.replace(y=(y > 1).astype(np.float32)), "noisygd", budget, model="mlp")
    assert network.params.shape == (81,)
    with pytest.raises(InputError, match=r"softmax:5 on these columns has \[15\]"):
        l2p.private_train(rows, "noisygd", budget, model="softmax:5", params=jnp.zeros(3))


@pytest.mark.long
@pytest.mark.parametrize("name", ["mlp", "quadratic", "hinge"])
def test_every_saved_model_comes_back_as_it_was(tmp_path, name):
    model = find_model(name)
    start = model.init(2) + 0.1
    result = l2p.private_train(
        l2p.Rows(jnp.ones((900, 2)), jnp.ones(900), jnp.ones(900)), "noisygd", l2p.Budget(1.0, 1e-5), model=name
    )
    result = dataclasses.replace(result, params=start)
    if "regression" in model.kinds:
        with pytest.raises(InputError, match="bounds name no 'y'"):
            result.save(tmp_path, ["age", "dose"], BOUNDS, None, "y")
    classes = None if "regression" in model.kinds else (7.0, 8.0)
    result.save(tmp_path, ["age", "dose"], BOUNDS | {"y": (0.0, 10.0)}, classes, "y")
    again = saved.load_model(tmp_path)
    np.testing.assert_array_equal(again.params, start)
    cells = np.random.default_rng(0).uniform(-1, 1, (20, 2)) * [100, 1]
    table = dict(zip(("age", "dose"), cells.T, strict=True))
    x = jnp.asarray(np.clip(cells / [100, 2] + [0, 0.5], 0, 1), jnp.float32)
    expected = np.asarray(model.predict(start, x), float)
    np.testing.assert_allclose(again.predict(table), 7 + expected if classes else 10 * expected, rtol=1e-5)


def test_a_file_that_is_no_saved_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="not a model that l2p saved"):
        saved.load_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"rubbish")
    with pytest.raises(InputError, match="not a model that l2p saved"):
        saved.load_model(tmp_path)


# ---------------------------------------------------------------------------------------------------------- comparison


@pytest.mark.long
def test_many_classes_are_compared_by_accuracy(tmp_path):
    config = CompareConfig(
        "digits", tmp_path, model="softmax", methods=("noisygd",), epsilon=(8.0,), delta=1e-5, seeds=1
    )
    (row,) = compare(config)
    assert (row["model"], row["test_mse"]) == ("softmax:10", None)
    assert row["test_accuracy"] > 0.6
    assert row["test_auc"] > 0.9  # each class against the rest
    assert results.is_scored(row)
    assert compare(config) == [row]  # read back
    assert (num_classes("digits"), num_classes("mnist:3,5"), num_classes("california")) == (10, 2, None)


@pytest.mark.long
def test_numbers_are_compared_by_squared_error(ward, tmp_path, capsys):
    options = ward(Target("price", bounds=PRICES))
    config = CompareConfig(
        options["--data"],
        tmp_path / "cmp",
        schema=Path(options["--schema"]),
        model="square",
        methods=("noisygd", "nonprivate"),
        epsilon=(8.0,),
        delta=1e-5,
        seeds=2,
    )
    rows = compare(config)
    assert all(row["test_accuracy"] is row["test_auc"] is None and results.is_scored(row) for row in rows)
    private, best = (np.mean([row["test_mse"] for row in rows if row["method"] == name]) for name in config.methods)
    assert best < private < 0.5 * (100**2 / 12 + 400 / 3) / 200**2
    assert best == pytest.approx((3 / 200) ** 2, rel=0.25)  # the noise on prices
    assert compare(config) == rows
    report(rows, config)
    assert "Test mean squared error" in capsys.readouterr().out
    with pytest.raises(InputError, match="needs a binary target, but that of 'digits' is multiclass"):
        compare(dataclasses.replace(config, data="digits", model="mlp", schema=None, out=tmp_path / "no"))


def test_a_comparison_made_before_there_were_regressions_is_still_read(tmp_path):
    old = [column for column in results.COLUMNS if column not in ("test_mse", "test_auc")]
    values = {"data": "x", "model": "logistic", "method": "agd", "accountant": "rdp", "epsilon": 0.1, "seed": 0}
    line = ",".join(str(values.get(column, 0.5 if column.startswith(("test", "train")) else "")) for column in old)
    (tmp_path / "results.csv").write_text(",".join(old) + "\n" + line + "\n")
    (row,) = results.read(tmp_path / "results.csv")
    assert results.cell(row) == ("agd", 0.1, 0)
    assert row["test_mse"] is row["test_auc"] is None
    assert row["test_accuracy"] == 0.5
