"""OpenML's tables as sources of tasks, read from a folder."""

import jax
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.tables.public.openml import FOLDER, TABLES, TableInfo
from meta_train.config.one_source import OneSource
from meta_train.tasks import sources
from meta_train.tasks.family import TaskFamily
from meta_train.tasks.sources import class_counts, families, kind_of
from meta_train.tasks.targets import Classes, Numbers

ROWS = 60


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """Three tables, of two classes, of three and of numbers."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    targets = {"two": (2, "{n,y}", "ny"), "three": (3, "{a,b,c}", "abc"), "numbers": (None, "numeric", None)}
    for name, (classes, kind, labels) in targets.items():
        monkeypatch.setitem(TABLES, name, TableInfo(ROWS, classes))
        lines = [
            f"{i % 7},{'pqr'[i % 3]},{i / 4},{labels[i % classes] if labels and classes else i / 7}"
            for i in range(ROWS)
        ]
        head = ["a numeric", "b {p,q,r}", "c numeric", f"target {kind}"]
        text = "\n".join(["@relation x", *(f"@attribute {attribute}" for attribute in head), "@data", *lines, ""])
        (tmp_path / f"{name}.arff").write_text(text)


@pytest.mark.long(but=["openml:three-multiclass-3-Classes"])
@pytest.mark.parametrize(
    ("source", "kind", "classes", "family"),
    [
        ("openml:two", "binary", 2, TaskFamily),
        ("openml:three", "multiclass", 3, Classes),
        ("openml:numbers", "regression", None, Numbers),
    ],
)
def test_a_table_is_a_family_of_its_kind_in_two_parts(source, kind, classes, family):
    assert kind_of(source) == kind
    assert class_counts(source) == ({classes} if kind == "multiclass" else set())
    train, held_out = families(source)
    assert type(train) is type(held_out) is family
    assert train.x.shape == (48, 5)  # a, three columns for the values of b, and c
    assert held_out.x.shape == (12, 5)
    assert not {row.tobytes() for row in np.asarray(train.x)} & {row.tobytes() for row in np.asarray(held_out.x)}
    rows = jax.jit(train.draw, static_argnums=(1, 2))(jax.random.key(0), 20, 4)
    assert rows.x.shape == (20, 4)


def test_a_large_table_is_cut_at_random_and_always_alike(monkeypatch):
    monkeypatch.setattr(sources, "MAX_ROWS", 20)
    sources._some_rows.cache_clear()
    train, held_out = families("openml:two")
    c = np.sort(np.concatenate([train.x[:, -1], held_out.x[:, -1]]))
    assert (train.x.shape[0], held_out.x.shape[0]) == (16, 4)
    assert c[-1] - c[0] > 0.6  # not the first rows
    sources._some_rows.cache_clear()
    np.testing.assert_array_equal(families("openml:two")[0].x, train.x)


@pytest.mark.slow
def test_mixtures_stack_these_tables_and_take_others_beside_them():
    source = "openml:two+breast_cancer+synthetic"
    train, held_out = families(source)
    assert (kind_of(source), class_counts(source)) == ("binary", set())
    assert train.stacked == held_out.stacked == {0}
    config = OneSource(source=source, num_features=(3,))
    assert config.all_sources == ("openml:two", "breast_cancer", "synthetic")
    assert families("breast_cancer+synthetic")[0].stacked == frozenset()
    with pytest.raises(InputError, match="two kinds"):
        kind_of("openml:two+openml:three")


def test_an_unknown_table_is_refused():
    for ask in (kind_of, class_counts, families):
        with pytest.raises(InputError, match=r"unknown table 'openml:adult'"):
            ask("openml:adult")
