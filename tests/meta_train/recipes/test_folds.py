"""Recipes of folds: derived from one row, without the sets of the fold in any source or in what they start from."""

import pytest

from l2p.base.errors import InputError
from l2p.checkpoints.overlaps import overlaps
from meta_train.recipes import resolve

FILE = """
[groups]
tables = ["adult", "breast_cancer"]
images = ["digits", "mnist"]

[folds]
without = [["adult", "digits:odd"], ["@tables", "ipums_br"], ["diabetes"]]

[defaults]
protector = "noisygd"
steps = 4

[names.control-tiny]
kind = "every_model"
num_features = [4, 8, 16]
sources = ["@tables+synthetic", "@images", "adult"]
models = ["logistic", "softmax", "svm"]
sampling_rates = [0.1, 0.2, 0.3]

[names.tiny]
source = "@tables+synthetic"
steps = 2
warm_start = "control-tiny"

[examples.toy]
source = "@tables+synthetic"
steps = 1
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the recipe files, with one."""
    (tmp_path / "tiny.toml").write_text(FILE)
    monkeypatch.setattr(resolve, "FOLDER", tmp_path)
    return tmp_path


def test_a_group_stands_for_its_sources(folder):
    assert resolve.resolve("tiny").tasks.source == "adult+breast_cancer+synthetic"
    assert resolve.resolve("control-tiny").tasks.sources == ("adult+breast_cancer+synthetic", "digits+mnist", "adult")


def test_every_name_of_a_file_with_folds_has_as_many(folder):
    folds = [f"{name}-fold-{number}" for name in ("tiny", "control-tiny") for number in (1, 2, 3)]
    assert {name for name in resolve.names() if "tiny" in name} == {"tiny", "control-tiny", *folds}
    assert not [name for name in resolve.names() if "toy" in name]
    assert [resolve.num_folds(name) for name in ("tiny", "tiny-fold-1", "toy")] == [3, 0, 3]


def test_a_fold_is_its_recipe_without_the_sets_and_from_the_same_fold(folder):
    recipe, fold = resolve.resolve("tiny"), resolve.resolve("tiny", fold=1)
    assert fold == resolve.resolve("tiny-fold-1")
    assert (fold.name, fold.start.warm_start, fold.tasks.source) == (
        "tiny-fold-1",
        "control-tiny-fold-1",
        "breast_cancer+synthetic",
    )
    same = {name: recipe.flat()[name] for name in ("name", "warm_start", "source")}
    assert fold.but(**same) == recipe


def test_a_shape_without_a_source_is_dropped_from_every_list(folder):
    tasks = resolve.resolve("control-tiny-fold-1").tasks
    assert tasks.sources == ("breast_cancer+synthetic", "mnist")
    assert (tasks.num_features, tasks.models) == ((4, 8), ("logistic", "softmax"))
    assert tasks.sampling_rates == (0.1, 0.2)
    assert resolve.resolve("control-tiny-fold-2").tasks.sources == ("synthetic", "digits+mnist")
    assert resolve.resolve("control-tiny-fold-3").shapes == resolve.resolve("control-tiny").shapes


def test_folds_leave_their_sets_out_of_everything_that_they_are_made_from(folder):
    for number, sets in enumerate((("adult", "digits"), ("adult", "breast_cancer", "ipums_br")), 1):
        config = resolve.resolve("tiny", fold=number)
        start = resolve.resolve(config.start.warm_start)
        assert start.start.warm_start is None
        assert not any(overlaps(source, sets) for source in (*config.tasks.all_sources, *start.tasks.all_sources))


def test_a_set_is_left_out_of_the_sources_of_shapes_by_name_too(folder):
    without_adult = resolve.resolve("control-tiny", without="adult")
    assert without_adult.tasks.sources == ("breast_cancer+synthetic", "digits+mnist")
    with pytest.raises(InputError, match=r"not made from california.* adult, breast_cancer, synthetic, digits, mnist"):
        resolve.resolve("control-tiny", without="california")


def test_a_warm_start_of_another_file_may_not_be_made_from_what_a_fold_leaves_out(folder):
    (folder / "other.toml").write_text(
        '[defaults]\nprotector = "noisygd"\nsource = "adult"\n[names.other]\nsteps = 3\n'
        '[names.apart]\nsource = "synthetic"\n'
    )
    for start in ("apart", "other"):
        path = folder / f"from_{start}.toml"
        path.write_text(
            f'[folds]\nwithout = [["adult"]]\n[defaults]\nprotector = "noisygd"\nsource = "adult+synthetic"\n'
            f'[names.from-{start}]\nwarm_start = "{start}"\n'
        )
    resolve.every.cache_clear()
    assert resolve.resolve("from-apart", fold=1).start.warm_start == "apart"
    with pytest.raises(InputError, match=r"warm start other is made from it and has no such fold in from_other.toml"):
        resolve.resolve("from-other", fold=1)


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        (lambda text: text.replace("@images", "@pictures"), "has no group '@pictures'"),
        (lambda text: text.replace('["diabetes"]', "[]"), "leaves nothing out"),
        (lambda text: text.replace('["diabetes"]', '["a"], ["b"], ["c"]'), "in at most 4 lists"),
        (lambda text: text.replace('["diabetes"]', '["@tables", "synthetic"]'), "no source is left"),
    ],
)
def test_a_file_that_makes_no_folds_is_refused(folder, change, phrase):
    (folder / "tiny.toml").write_text(change(FILE))
    with pytest.raises(InputError, match=phrase):
        resolve.resolve("tiny", fold=3)


@pytest.mark.parametrize(
    ("name", "fold", "phrase"), [("tiny", 4, "from 1 to 3"), ("tiny", 0, "no fold 0"), ("toy", 4, "from 1 to 3")]
)
def test_a_fold_that_there_is_not_is_refused(folder, name, fold, phrase):
    with pytest.raises(InputError, match=phrase):
        resolve.resolve(name, fold=fold)


def test_a_file_without_folds_says_how_to_leave_a_set_out():
    with pytest.raises(InputError, match=r"'minibatch' has no fold 1; .* --without"):
        resolve.resolve("minibatch", fold=1)
