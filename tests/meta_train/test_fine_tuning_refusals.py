"""Tables, schemas, starts and minutes that make no fine-tuning are refused before anything is compiled."""

import json

import pytest

import meta_train
from l2p.base.errors import InputError
from meta_train import __main__, fine_tuning
from meta_train.recipes import resolve
from tests.meta_train.own_files import write


def edit(path, change):
    """A schema file with something changed."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


BAD = {
    "no schema": (lambda t, s: ([t], []), "1 tables and 0 schemas"),
    "a schema too many": (lambda t, s: ([t], [s, s]), "1 tables and 2 schemas"),
    "no such table": (lambda t, s: ([t.with_name("none.csv")], [s]), "there is no file"),
    "no such schema": (lambda t, s: ([t], [s.with_name("none.json")]), "cannot be read"),
    "a kind of file that nobody reads": (lambda t, s: ([t.rename(t.with_suffix(".xlsx"))], [s]), "of no kind"),
    "a schema that is a table": (lambda t, s: ([t], [t]), "cannot be read as JSON"),
    "one table twice": (lambda t, s: ([t, t], [s, s]), "given twice"),
}
BAD_SCHEMAS = {
    "a column that is not declared": (lambda c: c["columns"].pop("age"), "not declare"),
    "bounds not filled in": (lambda c: c["columns"]["age"].update(bounds=None), "not declared yet"),
    "private bounds": (lambda c: c["columns"]["age"].update(bounds="private"), "are private"),
    "class weights": (lambda c: c["target"].update(weights=[1, 2]), "class weights"),
    "labels of another table": (lambda c: c["target"].update(classes=["left", "right"]), "0 rows that are valid"),
    "a class that no row has": (lambda c: c["target"]["classes"].append("never"), "0 rows of class 'never'"),
}


@pytest.fixture
def no_training(monkeypatch):
    """Nothing is compiled."""

    def begun(*_):
        raise AssertionError("a training began")

    monkeypatch.setattr(fine_tuning, "train", begun)


def refusal(data, schemas, out, **options):
    """The sentence that a fine-tuning is refused with."""
    with pytest.raises(InputError) as caught:
        __main__.main(out, data=data, schema=schemas, **options)
    assert "\n" not in str(caught.value)
    assert not (out / "config.json").exists()
    return str(caught.value)


@pytest.mark.parametrize("case", BAD)
def test_tables_and_schemas_that_make_no_pairs_are_refused(no_training, tmp_path, case):
    make, phrase = BAD[case]
    assert phrase in refusal(*make(*write(tmp_path, "ward")), tmp_path / "out")


@pytest.mark.parametrize("case", BAD_SCHEMAS)
def test_a_schema_that_does_not_fit_is_refused(no_training, tmp_path, case):
    change, phrase = BAD_SCHEMAS[case]
    data, schema = write(tmp_path, "ward")
    edit(schema, change)
    assert phrase in refusal([data], [schema], tmp_path / "out")


@pytest.mark.parametrize(
    ("kind", "options", "phrase"),
    [
        ("regression", {"start": "minibatch"}, "start from universal (--start universal)"),
        ("multiclass", {"start": "minibatch"}, "start from universal (--start universal)"),
        ("binary", {"start": "universall"}, "no shipped protector 'universall'"),
        ("binary", {"start": "noisygd"}, "no shipped protector 'noisygd'"),
        ("binary", {"start": "mine/mine.safetensors"}, "no shipped protector"),
        ("binary", {"start": "../universal"}, "no shipped protector"),
        ("binary", {"start": "noisygd-tuned-logistic-adult"}, "cannot start from yours"),
        ("binary", {"start": "paper-adult"}, "cannot start from yours"),
        ("binary", {"minutes": 0}, "minutes is 0"),
        ("binary", {"minutes": -3.0}, "minutes is -3.0"),
    ],
)
def test_a_start_that_does_not_fit_is_refused_with_one_that_does(no_training, tmp_path, kind, options, phrase):
    data, schema = write(tmp_path, "ward", kind=kind)
    assert phrase in refusal([data], [schema], tmp_path / "out", **options)


def test_few_rows_and_kinds_that_the_start_does_not_learn_are_refused(no_training, tmp_path):
    few = write(tmp_path, "few", rows=199)
    assert "has 199 rows" in refusal([few[0]], [few[1]], tmp_path / "out")
    many = [write(tmp_path, kind, kind=kind) for kind in ("binary", "multiclass")]
    message = refusal(*map(list, zip(*many, strict=True)), tmp_path / "out", start="minibatch")
    assert "multiclass, which is one of several classes" in message


def test_minutes_that_leave_no_time_are_refused_before_anything_is_done(no_training, tmp_path):
    data, schema = write(tmp_path, "ward")
    assert "leave no time to train" in refusal([data], [schema], tmp_path / "out", minutes=0.1)


def test_a_recipe_that_minutes_leave_no_time_for_is_refused_before_anything_is_done(tmp_path):
    with pytest.raises(InputError, match="leave no time to train"):
        fine_tuning.train(resolve.resolve("paper-adult"), tmp_path / "out", fine_tuning.Watch(0.1))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_what_cannot_be_resumed_is_refused(monkeypatch, tmp_path):
    (data, schema), out = write(tmp_path, "ward"), tmp_path / "out"
    monkeypatch.setattr(
        fine_tuning,
        "train",
        lambda config, out, watch: (out / "config.json").write_text(json.dumps(config.flat())) and out,
    )
    meta_train.fine_tune([data], [schema], out)
    second_table = write(tmp_path, "other", seed=5)
    with pytest.raises(InputError, match="holds a training on other tables"):
        meta_train.fine_tune([second_table[0]], [second_table[1]], out)
    data.write_text(data.read_text() + "1,0.5,a,no\n")
    with pytest.raises(InputError, match="is not what it was"):
        __main__.main(out, resume=True)
    (out / "tables.json").write_text("{}")
    with pytest.raises(InputError, match="are not known"):
        __main__.main(out, resume=True)
    with pytest.raises(InputError, match="minutes bound trainings by meta-gradients"):
        __main__.train(resolve.resolve("noisygd-tuned-logistic-adult"), out, fine_tuning.Watch(1.0))
