"""Predictions on raw tables: those of the encoding that a model was trained with, whatever a table comes as."""

import contextlib
import csv
import dataclasses
import itertools
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import l2p
from l2p.base import whole_folder
from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.models import find_model
from l2p.privacy.card.card import Card
from l2p.tables.reading import delimited, memory
from l2p.tables.schema import Category, Encoding, Ignore, Missing, Number, Schema, Target, read_rows

#: By folder: the model, the declared classes, and the target's name, of runs on numbers that no schema declares.
RUNS = {
    "logistic": ("logistic", (7.0, 3.0), "readmit"),
    "unnamed": ("svm", None, ""),
    "square": ("square", None, "price"),
    "softmax": ("softmax:3", (3.0, 5.0, 9.0), "grade"),
}
BOUNDS = {"age": (0.0, 120.0), "dose": (-1.0, 1.0), "price": (100.0, 300.0)}
TABLE = {"dose": [-1.0, 0.0, 0.5, 1.0, 0.25], "age": [10.0, 90.0, 200.0, 61.5, float("nan")]}
WORDS = ("goes home", "stays")
WARD = Schema(
    {
        "age": Number(0, 120, Missing(60)),
        "dose": Number(-1, 1),
        "ward": Category(("a", "b"), missing=Missing(indicator=True)),
        "id": Ignore(),
    },
    Target("back", classes=WORDS, aliases={"stays.": "stays"}),
)
COUNT = 400


def table(seed=0):
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 130, COUNT).round(2), rng.uniform(-1, 1, COUNT).round(3)
    ward = rng.choice(["a", "b", "?", "z"], COUNT)
    back = np.where(age / 60 + dose + (ward == "a") > 1.5, "stays", "goes home")
    return {"age": age, "dose": dose, "ward": ward, "id": np.arange(COUNT).astype(str), "back": back}


@pytest.fixture(scope="module")
def trained():
    key = jax.random.key(0)
    return l2p.private_train(table(), "noisygd", l2p.Budget(20.0, 1e-5), key=key, schema=WARD)


class Killed(BaseException):
    """The process ends here, and cleans up nothing."""


def test_a_run_that_is_killed_while_it_saves_leaves_no_model_without_its_card(trained, tmp_path, monkeypatch):
    model, card = tmp_path / "model.safetensors", tmp_path / "card.json"
    monkeypatch.setattr(whole_folder.shutil, "rmtree", lambda *_, **__: None)
    for place in itertools.count(1):  # before every write, every move and every wait for the disk, in turn
        steps_left = itertools.count(place, -1)

        def killing(function, steps_left=steps_left):
            def act(*args, **kwargs):
                if next(steps_left) == 0:
                    raise Killed
                return function(*args, **kwargs)

            return act

        with monkeypatch.context() as patch:
            for kind, name in ((Path, "write_text"), (Path, "write_bytes"), (Path, "replace"), (os, "fsync")):
                patch.setattr(kind, name, killing(getattr(kind, name)))
            with contextlib.suppress(Killed):
                trained.save(tmp_path)
        if model.exists():
            break
    assert place > 16
    assert Card.from_json(card) == trained.card


def test_a_result_is_not_written_over_another(trained, tmp_path):
    trained.save(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(l2p.InputError, match="holds a result, which may have cost a budget"):
        trained.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    trained.save(tmp_path_factory.mktemp("run"))
    return max(tmp_path_factory.getbasetemp().glob("run*"))


def with_params(result, model, target, params=None):
    """A result of another model on the same features."""
    schema = dataclasses.replace(WARD, target=target)
    trained_model = find_model(model)
    count = trained_model.num_params(len(Encoding(schema).names))
    params = np.random.default_rng(1).normal(size=count) if params is None else params
    return dataclasses.replace(result, model=trained_model, schema=schema, params=jnp.asarray(params, jnp.float32))


def write_csv(path, columns, separator=","):
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def write_arff(path, columns):
    kinds = {name: "numeric" if values.dtype.kind == "f" else "string" for name, values in columns.items()}
    cells = [[f"'{cell}'" if kinds[name] == "string" else f"{cell}" for cell in columns[name]] for name in columns]
    head = [f"@attribute {name} {kind}" for name, kind in kinds.items()]
    path.write_text("\n".join(["@relation ward", *head, "@data", *map(",".join, zip(*cells, strict=True))]) + "\n")
    return path


def write_parquet(path, columns):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), path)
    return path


FORMS = {
    "columns": lambda folder, columns: columns,
    "csv": lambda folder, columns: write_csv(folder / "t.csv", columns),
    "semicolons": lambda folder, columns: write_csv(folder / "t.data", columns, ";"),
    "arff": lambda folder, columns: write_arff(folder / "t.arff", columns),
    "parquet": lambda folder, columns: write_parquet(folder / "t.parquet", columns),
    "arrow": lambda folder, columns: pytest.importorskip("pyarrow").table(columns),
    "pandas": lambda folder, columns: pytest.importorskip("pandas").DataFrame(columns),
    "polars": lambda folder, columns: pytest.importorskip("polars").DataFrame(columns),
}


@pytest.mark.slow(but=["arff", "parquet", "arrow", "pandas"])
@pytest.mark.parametrize("form", FORMS)
def test_a_tables_form_and_the_order_of_its_columns_make_no_difference(trained, run, tmp_path, form):
    columns = table(1)
    order = np.random.default_rng(len(form)).permutation(list(columns))
    data = FORMS[form](tmp_path, {name: columns[name] for name in order if name not in ("id", "back")})
    for predictor in (trained, l2p.load_model(run)):
        np.testing.assert_array_equal(predictor.predict(data), trained.predict(columns))
        np.testing.assert_array_equal(predictor.predict_proba(data), trained.predict_proba(columns))


@given(st.permutations(range(COUNT)), st.integers(1, COUNT))
@settings(max_examples=15)
def test_what_is_predicted_for_a_row_depends_on_that_row_alone(trained, order, block):
    columns = table(1)
    expected, likely = trained.predict(columns), trained.predict_proba(columns)
    order = np.array(order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "BLOCK", block)
        moved = {name: values[order] for name, values in columns.items()}
        np.testing.assert_array_equal(trained.predict(moved), expected[order])
        np.testing.assert_array_equal(trained.predict_proba(moved), likely[order])


def test_rows_are_encoded_as_in_training(trained):
    rows, model = read_rows(table(1), Encoding(WARD)), trained.model
    margins = np.asarray(rows.x, np.float64) @ np.asarray(trained.params[:-1], np.float64) + 0.5 * float(
        trained.params[-1]
    )
    np.testing.assert_array_equal(trained.predict(table(1)) == "stays", margins > 0)
    np.testing.assert_allclose(trained.predict_proba(table(1))[:, 1], 1 / (1 + np.exp(-margins)), atol=1e-6)
    assert ((trained.predict(table(1)) == "stays") == np.asarray(rows.y)).mean() > 0.85
    assert model.gives_probabilities


def test_an_array_has_the_schemas_columns_with_or_without_those_that_are_not_needed(trained):
    columns = table(1)
    expected = trained.predict(columns)
    for names in (("age", "dose", "ward", "id", "back"), ("age", "dose", "ward", "id"), ("age", "dose", "ward")):
        data = np.array([columns[name].astype(object) for name in names]).T
        np.testing.assert_array_equal(trained.predict(data), expected)


TARGETS = {
    "booleans": ("logistic", Target("back", classes=(False, True)), {False, True}),
    "numbers": ("svm", Target("back", classes=(7, 3)), {7, 3}),
    "three words": ("softmax:3", Target("back", classes=("low", "mid", "high")), {"low", "mid", "high"}),
    "a network": ("mlp", Target("back", classes=("n", "y")), {"n", "y"}),
}


@pytest.mark.parametrize("name", TARGETS)
def test_classes_come_back_as_they_were_declared(trained, name):
    model, target, classes = TARGETS[name]
    result = with_params(trained, model, target)
    predictions = result.predict(table(1))
    assert set(predictions.tolist()) == classes
    if find_model(model).gives_probabilities:
        likely = result.predict_proba(table(1))
        np.testing.assert_allclose(likely.sum(1), 1, atol=1e-6)
        np.testing.assert_array_equal(np.array(target.classes, object)[likely.argmax(1)], predictions)
    else:
        with pytest.raises(InputError, match=r"without probabilities.*logistic, mlp or softmax"):
            result.predict_proba(table(1))


def test_numbers_come_back_in_their_own_units(trained):
    target, params = Target("cost", bounds=(100, 300)), np.zeros(6)
    params[0], params[-1] = 0.5, 0.5  # a quarter, and half the age
    result = with_params(trained, "square", target, params)
    predictions = result.predict({"age": [0, 60, 120, None], "dose": [0, 0, 0, 0], "ward": ["a", "b", "a", "a"]})
    np.testing.assert_allclose(predictions, [150, 200, 250, 200], rtol=1e-5)
    with pytest.raises(InputError, match="predicts a number"):
        result.predict_proba(table(1))


def test_a_row_that_cannot_be_read_has_a_place_without_a_prediction(trained):
    rows = {"age": [30, None, np.inf, 30], "dose": [0.5, 0.5, 0.5, None], "ward": ["a", None, "a", "never seen"]}
    predictions, likely = trained.predict(rows), trained.predict_proba(rows)
    assert [value in WORDS for value in predictions] == [True, True, False, False]
    assert predictions[2] is predictions[3] is None
    np.testing.assert_array_equal(np.isnan(likely).any(1), [False, False, True, True])
    number = with_params(trained, "square", Target("cost", bounds=(0, 1))).predict(rows)
    assert number.dtype == np.float64
    np.testing.assert_array_equal(np.isnan(number), [False, False, True, True])


def test_an_empty_table_has_no_predictions(trained):
    rows = {"age": np.zeros(0), "dose": np.zeros(0), "ward": np.zeros(0, object)}
    assert trained.predict(rows).shape == (0,)
    assert trained.predict_proba(rows).shape == (0, 2)


# ------------------------------------------------------------------------------------------- rows that came encoded
@pytest.mark.slow
def test_a_model_of_encoded_rows_predicts_for_such_rows():
    x = np.random.default_rng(0).uniform(size=(900, 2)).astype(np.float32)
    rows = l2p.Rows(x, (x[:, 0] > 0.5).astype(np.float32), np.ones(900, np.float32))
    result = l2p.private_train(rows, "noisygd", l2p.Budget(20.0, 1e-5), key=jax.random.key(0))
    assert (result.predict(rows) == rows.y).mean() > 0.9
    np.testing.assert_array_equal(result.predict(x), result.predict(jnp.asarray(x)))
    assert result.predict_proba(x).shape == (900, 2)
    classifier = l2p.private_train(
        rows, "noisygd", l2p.Budget(20.0, 1e-5), key=jax.random.key(0), model="square", kind="binary"
    )
    assert set(classifier.predict(x).tolist()) == {0, 1}
    for data, phrase in ((2 * x, "outside"), (x[:, :1], "rows of 2 features"), ({"x0": [1]}, "without a schema")):
        with pytest.raises(InputError, match=phrase):
            result.predict(data)


# ------------------------------------------------------------------------------------------------- folders of runs
@pytest.fixture(scope="module")
def bounded(trained, tmp_path_factory):
    """A folder with a run of each of `RUNS`."""
    folder = tmp_path_factory.mktemp("bounded")
    for name, (model, classes, target) in RUNS.items():
        params = np.random.default_rng(3).normal(size=find_model(model).num_params(2))
        result = dataclasses.replace(
            trained, model=find_model(model), schema=None, params=jnp.asarray(params, jnp.float32)
        )
        result.save(folder / name, ["age", "dose"], BOUNDS, classes, target)
    return folder


def from_arrays(path, name):
    """Predictions for `TABLE` from the arrays of a model's file, as `Result.save` documents them; NaN for none."""
    arrays = safetensors.numpy.load_file(path / "model.safetensors")
    ends = np.array([BOUNDS[column] for column in ("age", "dose")])
    x = np.stack([TABLE["age"], TABLE["dose"]], 1).clip(*ends.T)
    scores = (x - ends[:, 0]) / (ends[:, 1] - ends[:, 0]) @ arrays["weights"] + arrays["bias"]
    if name == "square":
        low, high = BOUNDS["price"]
        return low + (high - low) * scores.reshape(-1)
    classes = np.array(RUNS[name][1] or (0.0, 1.0))
    places = scores.argmax(1) if name == "softmax" else (scores.reshape(-1) > 0).astype(int)
    return np.where(np.isnan(x).any(1), np.nan, classes[places])


@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_bounded_numbers_predicts_by_the_arrays_of_its_file(bounded, name):
    model = l2p.load_model(bounded / name)
    np.testing.assert_allclose(np.array(model.predict(TABLE), float), from_arrays(bounded / name, name), rtol=1e-5)
    assert model.classes == tuple(RUNS[name][1] or (() if name == "square" else (0.0, 1.0)))


def test_a_schema_that_is_not_the_one_of_training_is_refused(trained, tmp_path):
    trained.save(tmp_path)
    written = (tmp_path / "schema.json").read_text()
    (tmp_path / "schema.json").write_text(written.replace("[0.0, 120.0]", "[0.0, 100.0]"))
    with pytest.raises(InputError, match=r"is not what model\.safetensors beside it was trained with"):
        l2p.load_model(tmp_path)
    (tmp_path / "schema.json").write_text(written.replace(": ", ":  "))  # spaces say nothing
    assert l2p.load_model(tmp_path).classes == WORDS
    (tmp_path / "schema.json").unlink()
    with pytest.raises(InputError, match="there is no such file"):
        l2p.load_model(tmp_path)


# ------------------------------------------------------------------------------------------------- the command line
def predict(run, data, out, *more):
    return main(["predict", "--model", str(run), "--data", *map(str, data), "--out", str(out), *more])


def lines_of(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_predictions_have_a_line_per_row_in_order(run, trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 7)
    columns = table(1)
    columns["dose"] = columns["dose"].astype(object)
    columns["dose"][[3, 19]] = ["?", "inf"]
    parts = []
    for place, part in enumerate((slice(0, 30), slice(30, COUNT))):
        parts.append(write_csv(tmp_path / f"{place}.csv", {name: values[part] for name, values in columns.items()}))
    assert predict(run, parts, tmp_path / "found.csv", "--probabilities") == 0
    header, *lines = lines_of(tmp_path / "found.csv")
    assert header == ["prediction", *WORDS]
    assert [line[0] or None for line in lines] == trained.predict(columns).tolist()
    likely = np.array([[float(cell or "nan") for cell in line[1:]] for line in lines])
    np.testing.assert_allclose(likely, trained.predict_proba(columns), rtol=1e-6)
    assert lines[3] == lines[19] == ["", "", ""]
    out, err = capsys.readouterr()
    assert str(tmp_path / "found.csv") in out
    assert err.startswith("Some rows have no prediction")
    assert predict(run, parts, tmp_path / "found.csv") == 0  # an older file is replaced
    assert lines_of(tmp_path / "found.csv") == [["prediction"], *([line[0]] for line in lines)]


def test_predictions_of_numbers_and_of_numbered_classes_are_written_in_their_units(bounded, tmp_path):
    write_csv(tmp_path / "new.csv", {name: ["" if v != v else v for v in values] for name, values in TABLE.items()})
    for name in RUNS:
        assert predict(bounded / name, [tmp_path / "new.csv"], tmp_path / "found.csv") == 0
        header, *lines = lines_of(tmp_path / "found.csv")
        assert header == ["prediction"]
        expected = from_arrays(bounded / name, name)
        if name == "square":
            np.testing.assert_allclose([float(line[0] or "nan") for line in lines], expected, rtol=1e-5)
        else:
            assert lines == [["" if np.isnan(value) else f"{value:g}"] for value in expected]


def test_costs_and_a_rate_decide_on_the_class_without_training_anew(run, trained, tmp_path):
    columns = table(1) | {"dose": np.where(np.arange(COUNT) == 3, np.nan, table(1)["dose"])}
    likely = trained.predict_proba(columns)[:, 1]
    by_costs = trained.predict(columns, costs={"stays": 9, "goes home": 1.0})
    readable = ~np.isnan(likely)
    np.testing.assert_array_equal(by_costs[readable] == "stays", likely[readable] > 0.1)
    assert by_costs[3] is None
    assert (trained.predict(columns, costs={"stays": 2, "goes home": 2}) == trained.predict(columns)).all()
    for share, count in ((0.25, 99), (0, 0), (1, 399)):  # of 399 rows that can be read
        by_rate = trained.predict(columns, rate={"stays": share})
        assert sum(by_rate == "stays") == count
        assert not count or likely[by_rate == "stays"].min() > np.max(likely[by_rate == "goes home"], initial=0)
    write_csv(tmp_path / "new.csv", {name: ["" if v != v else v for v in cells] for name, cells in columns.items()})
    for options, expected in (
        (("--costs", "stays=9", "goes home=1"), by_costs),
        (("--rate", "stays=1"), by_rate),
    ):
        assert predict(run, [tmp_path / "new.csv"], tmp_path / "found.csv", *options) == 0
        assert [line[0] or None for line in lines_of(tmp_path / "found.csv")[1:]] == expected.tolist()


def test_costs_are_those_of_mistakes_whatever_weights_a_model_was_trained_with(trained):
    weighted = dataclasses.replace(
        trained, schema=dataclasses.replace(WARD, target=dataclasses.replace(WARD.target, weights=(1, 9)))
    )
    costs = {"goes home": 1, "stays": 9}
    np.testing.assert_array_equal(weighted.predict(table(1), costs=costs), trained.predict(table(1)))


def test_rows_that_tie_at_the_border_of_a_rate_are_all_left_out_and_a_model_without_probabilities_ranks(trained):
    tied = {"age": [10.0, 90.0, 90.0, 90.0], "dose": [0.5] * 4, "ward": ["a"] * 4}
    for name in ("logistic", "svm"):
        result = with_params(trained, name, Target("back", classes=WORDS))
        scores = np.array([result.predict(tied, rate={"stays": share}) == "stays" for share in (0.25, 0.5, 0.75, 1)])
        assert scores.sum(axis=1).tolist() in ([0, 0, 3, 4], [1, 1, 1, 4])


BAD = {
    "costs of svm": ({"model": "svm", "more": ("--costs", "stays=2", "goes home=1")}, "without probabilities"),
    "costs of numbers": ({"bounded": "square", "more": ("--costs", "a=1")}, "there is no class to decide on"),
    "costs of one class": ({"more": ("--costs", "stays=2")}, "not for 'goes home'"),
    "costs of no class": ({"more": ("--costs", "staying=2", "goes home=1")}, "names 'staying', which is no class"),
    "costs below 0": ({"more": ("--costs", "stays=-2", "goes home=1")}, "none below 0 and one above it"),
    "costs of nothing": ({"more": ("--costs", "stays=0", "goes home=0")}, "none below 0 and one above it"),
    "costs that are no number": ({"more": ("--costs", "stays=nan", "goes home=1")}, "must be finite numbers"),
    "costs in words": ({"more": ("--costs", "stays=dear", "goes home=1")}, "is not CLASS=NUMBER"),
    "costs twice": ({"more": ("--costs", "stays=1", "stays=2")}, "names 'stays' twice"),
    "a rate above 1": ({"more": ("--rate", "stays=1.5")}, "write a number from 0 to 1"),
    "a rate that is no number": ({"more": ("--rate", "stays=nan")}, "write a number from 0 to 1"),
    "rates of both": ({"more": ("--rate", "stays=.5", "goes home=.5")}, "a rate is about one class"),
    "a rate of three classes": ({"bounded": "softmax", "more": ("--rate", "3=.5")}, "but the model has 3"),
    "costs and a rate": (
        {"more": ("--rate", "stays=.5", "--costs", "stays=1", "goes home=2")},
        "only one can be declared",
    ),
    "no folder": ({"run": "nowhere"}, "not a model that l2p saved"),
    "no table": ({"data": "nowhere.csv"}, "there is no file"),
    "another kind": ({"data": "table.xlsx"}, "of no kind that can be read"),
    "a column missing": ({"columns": ("age", "ward")}, "has no column 'dose'"),
    "a column misspelt": ({"columns": ("age", "Dose", "ward")}, "did you mean 'Dose'"),
    "ragged": ({"text": "age,dose,ward\n61,0.5\n"}, "more or fewer cells"),
    "no text": ({"text": b"age,dose,ward\n\xff\xfe,1,a\n"}, "is no text in UTF-8; name its encoding"),
    "over its own table": ({"out": "new.csv"}, "is the table to read"),
    "a folder to write to": ({"out": "."}, "is a folder"),
    "no folder to write to": ({"out": "nowhere/found.csv"}, "cannot be written"),
    "probabilities of svm": ({"model": "svm", "more": ("--probabilities",)}, "without probabilities"),
    "probabilities of numbers": ({"bounded": "square", "more": ("--probabilities",)}, "predicts a number"),
    "two columns of one name": (
        {"classes": ("prediction", "b"), "more": ("--probabilities",)},
        "is called 'prediction'",
    ),
    "a separator": ({"more": ("--separator", ";;")}, "must be one character"),
    "names and a header": ({"more": ("--columns", "age,dose,ward")}, "the first line of the table is taken to name"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_predicted_is_one_sentence_and_leaves_no_file(trained, bounded, tmp_path, capsys, name):
    changes, phrase = BAD[name]
    result = trained
    if "model" in changes or "classes" in changes:
        target = Target("back", classes=changes.get("classes", WORDS))
        result = with_params(trained, changes.get("model", "logistic"), target)
    result.save(tmp_path / "run")
    table_file = tmp_path / changes.get("data", "new.csv")
    if "text" in changes:
        text = changes["text"]
        table_file.write_bytes(text if isinstance(text, bytes) else text.encode())
    elif "data" not in changes:
        names = changes.get("columns", ("age", "dose", "ward"))
        write_csv(table_file, {name: ["61.0625"] for name in names})
    else:
        (tmp_path / "table.xlsx").write_bytes(b"PK")
    run = bounded / changes["bounded"] if "bounded" in changes else tmp_path / changes.get("run", "run")
    before = sorted(tmp_path.iterdir())
    assert predict(run, [table_file], tmp_path / changes.get("out", "found.csv"), *changes.get("more", ())) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert phrase in err
    assert "61.06" not in err
    assert sorted(tmp_path.iterdir()) == before
