"""Comparisons with public rows: which rows they are, who reads them, and that results are never mixed."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints.method_name import MethodName
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import load_rows, resolve_methods
from l2p.compare.leaderboard import command, read_comparison
from l2p.compare.methods import find_method, reads_public
from l2p.compare.public_part import PER_CLASS, SHARE, Division, PublicPart
from l2p.compare.runner import compare
from l2p.models import MODELS, find_model
from l2p.oracle.setup import Setup
from l2p.privacy import Budget
from l2p.privacy.cap.filter import Filter
from l2p.protectors.by_hand.gradient_descent import noisygd
from l2p.protectors.hand_designed import Problem
from l2p.protectors.with_public_rows.warm_start import WarmStart
from l2p.run.run import run
from l2p.run.simulate import noise_key, simulate, split
from l2p.tables.schema import Number, Schema, Target
from l2p.task.rows import Rows

N, D = 500, 3


def table(classes=2, num_rows=N):
    x = np.random.default_rng(0).uniform(size=(num_rows, D)).astype(np.float32)
    y = np.floor(classes * x[:, 0] * 0.9999).astype(np.float32)
    return Rows(x, y, np.ones(num_rows, np.float32))


def part(model="logistic", kind="binary", **options):
    options = {f"public_{name}": value for name, value in options.items()}
    return PublicPart.of(CompareConfig("adult", None, **options), find_model(model), kind)


def keys(rows):
    return sorted(map(bytes, np.column_stack([rows.x, rows.y])))


# ------------------------------------------------------------------------------------------------- which rows they are
@pytest.mark.parametrize(
    ("public", "classes", "size"),
    [
        (part(), 2, 2),  # a thousandth of 400 rows, but one of each class
        (part(share=0.1), 2, 40),
        (part("square", "regression"), 2, 1),
        (part("softmax:4", "multiclass"), 4, 8),
        (part("softmax:4", "multiclass", share=0.001), 4, 4),
        (part(per_class=3, shift=2.0), 2, 6),
    ],
)
def test_every_seed_has_as_many_public_rows_some_of_each_class_and_no_row_twice(public, classes, size):
    rows = table(classes)
    assert public.size(400) == size
    for seed in range(5):
        simple, task = split(rows, seed), public.task(rows, seed)
        assert task.public.x.shape == (size, D)
        assert task.private.x.shape == (400 - size, D)
        assert keys(simple.private) == sorted(keys(task.private) + keys(task.public))
        np.testing.assert_array_equal(task.test.x, simple.test.x)
        if public.labels is not None:
            counts = [int((task.public.y == label).sum()) for label in public.labels]
            assert min(counts) >= (public.per_class or 1)
            assert public.per_class is None or set(counts) == {public.per_class}
    again = public.task(rows, 0).public
    np.testing.assert_array_equal(again.x, public.task(rows, 0).public.x)
    assert keys(again) != keys(public.task(rows, 1).public)


def test_defaults_are_those_of_the_conventions():
    assert (SHARE, PER_CLASS) == (0.001, 2)
    assert (part().share, part().per_class) == (0.001, None)
    assert (part("softmax:3", "multiclass").share, part("softmax:3", "multiclass").per_class) == (None, 2)


@pytest.mark.parametrize(("shift", "low", "high"), [(0.0, -0.06, 0.06), (1.0, 0.9, 1.1), (2.0, 1.4, 2.1)])
def test_a_shift_moves_public_rows_by_so_many_standard_deviations(shift, low, high):
    # Normally distributed features, a small part of many rows.
    x = np.random.default_rng(1).normal(size=(20_000, D))
    rows = Rows(x, (x[:, 0] > 0).astype(np.float32), np.ones(len(x)))
    public = part(share=0.05, shift=shift)
    draw = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.fold_in(jax.random.key(4), 3))))
    along = x @ draw.normal(size=D)
    moved = (along[public.chosen(rows, 4)].mean() - along.mean()) / along.std()
    assert low < moved < high


def test_public_parts_are_frozen():
    # Results on disk are of these rows.
    assert part(share=0.02).chosen(split(table(), 3).private, 3).tolist() == FROZEN


FROZEN = [396, 330, 45, 310, 278, 14, 284, 211]


def test_private_rows_that_equal_public_ones_are_null_as_in_a_release():
    rows = table(num_rows=10)
    rows = jax.tree.map(lambda leaf: np.tile(leaf, (50,) + (1,) * (leaf.ndim - 1)), rows)  # 50 copies of every row
    task = part(per_class=1).task(rows, 0)
    public = {bytes(line) for line in np.column_stack([task.public.x, task.public.y])}
    counted = jax.tree.map(lambda leaf: leaf[task.private.mask > 0], task.private)
    assert not public & set(keys(counted))
    assert 0 < task.private.mask.sum() < len(task.private.y)


# ------------------------------------------------------------------------------------------------------- who reads them
@pytest.fixture
def config(tmp_path):
    methods = ("noisygd", "noisygd:pretrained")
    return CompareConfig("breast_cancer", tmp_path / "out", methods=methods, epsilon=(1.0,), delta=1e-5, seeds=2)


@pytest.mark.long
def test_a_vmapped_seed_reads_its_own_public_rows():
    budget, rows, model = Budget(1.0, 1e-5), table(), find_model("square")
    division = Division(part("square", "binary", share=0.05), True)
    assert division.num_private(rows) == 380
    protector = WarmStart(noisygd(Problem(budget)))
    setup = Setup.create(model, budget.adjacency, Filter("gdp", budget).price_list(), 380)
    outcome = simulate([protector], [setup], rows, [3, 4], divide=division)
    for i, seed in enumerate((3, 4)):
        private, public = (
            jax.tree.map(jnp.asarray, getattr(division(rows, seed), name)) for name in ("private", "public")
        )
        params, *_ = jax.jit(run)(protector, model.init(D), private, setup, noise_key(seed), public)
        np.testing.assert_allclose(outcome.params[i, 0], params, rtol=2e-3, atol=2e-3)


@pytest.mark.long
def test_who_reads_no_public_rows_has_all_of_them_as_private_ones(config):
    plain = compare(dataclasses.replace(config, methods=("noisygd",)))
    shared = dataclasses.replace(config, out=config.out.with_name("shared"), public_share=0.05)
    rows = compare(shared)
    same = ("test_accuracy", "train_loss", "test_loss", "steps", "epsilon_certified")
    assert [[row[name] for name in same] for row in rows[:2]] == [[row[name] for name in same] for row in plain]
    assert all(row["test_loss"] is not None for row in rows)
    assert [row["test_loss"] for row in rows[2:]] != [row["test_loss"] for row in rows[:2]]
    # Nothing changes in a comparison without public rows; one with them says so, and the two are never mixed.
    before = json.loads((config.out / "inputs.json").read_text())
    after = json.loads((shared.out / "inputs.json").read_text())
    assert set(after) - set(before) == {"public_share", "public_per_class", "public_shift", "public_sha256"}
    assert all(after[name] == before[name] for name in set(before) - {"protectors", "versions"})
    for change in ({"public_share": 0.06}, {"public_shift": 1.0}, {"public_share": None, "public_per_class": 3}):
        with pytest.raises(InputError, match="differs in public_"):
            compare(dataclasses.replace(shared, **change))
    with pytest.raises(InputError, match="differs in public_"):
        compare(dataclasses.replace(shared, public_share=None, methods=("noisygd",)))
    with pytest.raises(InputError, match="differs in public_"):
        compare(dataclasses.replace(shared, out=config.out))
    assert compare(shared) == rows  # it is resumed
    (shared.out / "cells").rename(config.out / "away")
    assert compare(shared) == rows  # and read back from its table
    assert "--public-share 0.05" in command(read_comparison(shared.out))


@pytest.mark.long
def test_a_method_that_needs_public_rows_brings_a_public_part(config, tmp_path, monkeypatch):
    (tmp_path / "mine_public.py").write_text(
        "from l2p.protectors.by_hand.gradient_descent import noisygd\n"
        "from l2p.protectors.with_public_rows.warm_start import WarmStart\n"
        "def Warm(problem):\n    return WarmStart(noisygd(problem))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = dataclasses.replace(config, methods=("noisygd", "mine_public:Warm"), seeds=1)
    rows = compare(config)
    assert json.loads((config.out / "inputs.json").read_text())["public_share"] == 0.001
    assert rows[1]["test_loss"] is not None
    pretrained = dataclasses.replace(
        config, methods=("noisygd:pretrained",), public_share=0.001, out=config.out.with_name("two")
    )
    assert compare(pretrained)[0]["test_loss"] == pytest.approx(rows[1]["test_loss"], rel=1e-6)


@pytest.mark.parametrize(("name", "reads"), [("ppsgd", True), ("pnsgd", True), ("adamix", True), ("sgd_adv", False)])
def test_a_papers_form_reads_public_rows_whatever_neighbours_are_compared(name, reads):
    """`ppsgd` exists for replaced rows alone: asked for added ones, it seemed to need no public rows, and got none."""
    assert reads_public(MethodName.parse(name), Budget(1.0, 1e-5), MODELS["logistic"]) is reads


def test_n_is_the_number_of_rows_that_are_left():
    rows, budget, public = table(), Budget(1.0, 1e-5), part(share=0.05)
    for reads, expected in ((True, 380), (False, 400)):
        division = Division(public, reads)
        name = "noisygd:pretrained" if reads else "noisygd"
        method = find_method(name, [budget], MODELS["logistic"], division.num_private(rows), division=division)
        assert method.prepare(budget, find_model("logistic"), rows).setup.num_rows == expected


def test_a_class_that_is_missing_gives_an_empty_cell_with_the_reason():
    rows = dataclasses.replace(table(), y=np.zeros(N, np.float32))
    with pytest.raises(InputError, match="a public part needs 1 rows of each class"):
        part().task(rows, 0)


# ---------------------------------------------------------------------------------------------------------------- files
@pytest.mark.slow
def test_a_file_of_public_rows_is_read_by_some_and_private_for_the_others(tmp_path):
    rows_of_both = table(num_rows=330)
    cells = np.column_stack([rows_of_both.x, rows_of_both.y])
    for name, order, some in (("a.csv", (0, 1, 2, 3), slice(0, 300)), ("b.csv", (3, 2, 0, 1), slice(300, 330))):
        header = ",".join(np.array(["u", "v", "w", "label"])[list(order)])
        np.savetxt(tmp_path / name, cells[some][:, order], delimiter=",", header=header, comments="", fmt="%.9g")
    Schema(dict.fromkeys("uvw", Number(0, 1)), Target("label", classes=(0, 1))).write(tmp_path / "schema.json")
    config = CompareConfig(
        *(str(tmp_path / "a.csv"), tmp_path / "out", tmp_path / "schema.json"),
        *("logistic", ("noisygd", "noisygd:pretrained"), (1.0,), 1e-5, 1),
        public=(tmp_path / "b.csv",),
    )
    rows = compare(config)
    assert all(row["test_loss"] is not None for row in rows)
    facts = json.loads((config.out / "inputs.json").read_text())
    assert (facts["public_share"], facts["public_per_class"]) == (None, None)
    table_of_file = load_rows(config)
    reader, plain = (method.division for method in reversed(resolve_methods(config, table_of_file)))
    np.testing.assert_array_equal(
        reader(table_of_file, 0).public.x, rows_of_both.x[300:]
    )  # columns in the order of the other
    assert (reader.num_private(table_of_file), plain.num_private(table_of_file)) == (240, 270)
    assert plain(table_of_file, 0).private.x.shape == (270, D)
    with pytest.raises(InputError, match="the private table itself"):
        compare(dataclasses.replace(config, public=(tmp_path / "a.csv",)))


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"public_share": 0.1, "public_per_class": 2}, "leave out one of the two"),
        ({"public_share": 1.5}, "no share of the rows"),
        ({"public_per_class": 0}, "each class needs a row"),
        ({"public_shift": -1.0}, "no distance"),
        ({"public_per_class": 500}, "the training rows of seed 0 lack them"),
        ({"public_share": 0.999}, "leaves no private row|lack"),
        ({"public": ("b.csv",)}, "is a public set, of which a part is drawn"),
    ],
)
def test_options_that_make_no_sense_cost_a_sentence_and_run_nothing(config, change, phrase):
    with pytest.raises(InputError, match=phrase):
        compare(dataclasses.replace(config, **change))
    assert not config.out.exists() or not list(config.out.iterdir())
