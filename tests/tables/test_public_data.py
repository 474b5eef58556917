"""Public rows: what is refused, what a card says, and that nothing tells whether a private row equals one."""

import dataclasses
import itertools
import json
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Logistic
from l2p.oracle.sums import BlockSum, exact_sum
from l2p.privacy import Adjacency, Budget
from l2p.privacy.card import html
from l2p.privacy.card.card import Card
from l2p.privacy.ledger.ledger import Cost, Ledger
from l2p.protectors import HAND_DESIGNED, PublicSubspace
from l2p.protectors.stepwise.public_rows import check_classes
from l2p.queries import ClippedGradient
from l2p.release.admission import admit
from l2p.release.planned_run import plan_run
from l2p.release.verification import verify
from l2p.run.protector import Protector
from l2p.tables import public_data, same_table
from l2p.tables.public_data import PublicRowSet, apart, on_card
from l2p.tables.schema import Number, Schema, Target
from l2p.task.exact_sums import ExactSum
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource, RemoteRows, RowSource
from l2p.task.task import Task

BUDGET, KEY, N, D = Budget(2.0, 1e-5), jax.random.key(0), 400, 2


def rows(x, y, mask=None):
    x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
    return Rows(x, y, np.ones(len(y), np.float32) if mask is None else np.asarray(mask, np.float32))


def table(num_rows=N, seed=0):
    x = np.random.default_rng(seed).uniform(size=(num_rows, D))
    return rows(x, x[:, 0] > 0.5)


def part(table_rows, index):
    return jax.tree.map(lambda leaf: leaf[index], table_rows)


@struct.dataclass
class Grateful(Protector):
    """Steps along the mean gradient of its public rows, of which it needs one of each class, and a private one."""

    num_steps: int = struct.field(pytree_node=False, default=2)
    needs_public = True
    adaptive_noise = False

    def check_public(self, public, model, kind):
        check_classes(public, model, kind)

    def init(self, params, oracle):
        return params, ()

    def step(self, params, state, oracle):
        free = oracle.setup.model.clipped_gradient_sum(params, oracle.public, FeatureMap.identity(D), jnp.ones(()))
        query = ClippedGradient(oracle.setup.model, params, FeatureMap.identity(D), jnp.ones(()), jnp.float32(20.0))
        return params - (free / oracle.public.mask.sum() + oracle.ask(query) / oracle.setup.batch_rows), state

    def finish(self, params, state, setup):
        return params


# ----------------------------------------------------------------------------------------- a row counts as one of both
PUBLIC = table(30, seed=1)


def overlapping(places=(3, 77, 210)):
    """A private table with rows of the public one, and the same with null rows in their place."""
    mine = table()
    x, y, mask = (np.array(leaf) for leaf in (mine.x, mine.y, mine.mask))
    x[list(places)], y[list(places)] = PUBLIC.x[: len(places)], PUBLIC.y[: len(places)]
    mask[list(places)] = 0
    return Rows(x, y, np.ones(N, np.float32)), Rows(x, y, mask)


@pytest.mark.slow
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("protector", [Grateful(), "noisygd"], ids=["reads public rows", "does not"])
def test_a_private_row_that_equals_a_public_one_trains_as_a_null_row(protector, streams):
    both, null = (ArraySource(source, 64) if streams else source for source in overlapping())
    params, expected = (
        l2p.private_train(Task(source, public=PUBLIC), protector, BUDGET, key=KEY).params for source in (both, null)
    )
    np.testing.assert_array_equal(params, expected)
    if protector == "noisygd":
        alone = l2p.private_train(both, protector, BUDGET, key=KEY).params
        assert not np.array_equal(alone, params)


class Elsewhere(RemoteRows):
    """Two machines of rows, to which what is asked travels as bytes."""

    num_rows, num_features = N, D

    def __init__(self, all_rows):
        self.parts = [part(all_rows, slice(0, 50)), part(all_rows, slice(50, N))]

    def exact_sum(self, summed, lines):
        assert lines is None
        sums = [pickle.loads(pickle.dumps(summed))(iter([piece])) for piece in self.parts]  # noqa: S301 - its own bytes
        return ExactSum(*(sum(getattr(part, name) for part in sums) for name in ("high", "low")), sums[0].unit)


@pytest.mark.slow
def test_other_machines_leave_out_rows_that_equal_public_ones_themselves():
    both, null = overlapping()
    query = ClippedGradient(Logistic(), jnp.ones(3), FeatureMap.identity(2), jnp.float32(0.5), jnp.ones(()))
    with jax.enable_x64(True):
        summed = BlockSum(query, None, None)
        there, everywhere = (
            apart(Elsewhere(both), PUBLIC).exact_sum(summed, None),
            Elsewhere(both).exact_sum(summed, None),
        )
        here = exact_sum(query, jax.tree.map(jnp.asarray, null))
        np.testing.assert_array_equal(there.value, here.value)
        assert not np.array_equal(everywhere.value, here.value)
    assert (apart(Elsewhere(both), PUBLIC).num_rows, Elsewhere(both).num_features) == (N, D)


def test_equal_means_features_and_target_as_a_run_reads_them():
    public = rows([[0.1, 0.0], [0.5, 0.5]], [1, 0], mask=[1, 0])
    mine = Rows(np.array([[0.1, -0.0], [0.1, 0.0], [0.1, 1e-9], [0.5, 0.5], [np.nan, 0.0]]), *np.ones((2, 5)))
    mine.y[1] = 0  # another target
    # float64 numbers are compared as the float32 ones that a run reads; a null public row is nobody's.
    assert apart(mine, public).mask.tolist() == [0, 1, 1, 1, 1]


def observed(private, caught):
    """All that a user sees of a run, but for its params and the time."""
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        result = l2p.private_train(Task(private, public=PUBLIC), Grateful(), BUDGET)
    card = dataclasses.asdict(result.card) | {"created": ""}
    return (
        card,
        result.trace,
        result.params.shape,
        [str(warning.message) for warning in caught_warnings],
        caught.readouterr(),
    )


def count(self, private):
    private_lines = [line not in self.rows for line in public_data.rows_as_bytes(private)]
    warnings.warn(f"{len(private_lines) - sum(private_lines)} rows are public", stacklevel=1)
    return private


def print_them(self, private):
    print(sum(line in self.rows for line in public_data.rows_as_bytes(private)))
    return private


@pytest.mark.slow(cases=["as it is"])
@pytest.mark.parametrize("planted", [None, count, print_them], ids=["as it is", "a count", "a print"])
def test_nothing_but_noised_answers_tells_whether_a_row_is_public(planted, monkeypatch, capsys):
    if planted is not None:
        monkeypatch.setattr(PublicRowSet, "nulled", planted)
    with_them = observed(overlapping()[0], capsys)
    assert (with_them == observed(table(), capsys)) is (planted is None)


def fewer_rows(self, private):
    is_private = np.array([line not in self.rows for line in public_data.rows_as_bytes(private)])
    return jax.tree.map(lambda leaf: leaf[is_private], private)


def null_the_whole_block(self, private):
    overlaps = any(line in self.rows for line in public_data.rows_as_bytes(private))
    return private.replace(mask=private.mask * (not overlaps))


def null_only_once(self, private):
    """The first row of each kind that is public, which depends on the rows before."""
    met, is_counted = set(), []
    for line in public_data.rows_as_bytes(private):
        is_counted.append(line not in self.rows or line in met)
        met.add(line)
    return private.replace(mask=private.mask * np.array(is_counted))


@pytest.mark.parametrize("block", [1, 3, 7])
@pytest.mark.parametrize(
    "planted", [None, null_the_whole_block, null_only_once], ids=["as it is", "a whole block", "only the first"]
)
def test_a_row_has_the_same_fate_alone_in_a_block_and_in_memory(planted, block, monkeypatch):
    if planted is not None:
        monkeypatch.setattr(PublicRowSet, "nulled", planted)
    overlap = part(overlapping()[0], np.array([0, 1, 2, 3, 3, 5, 6]))
    in_memory = apart(overlap, PUBLIC).mask.tolist()
    streamed = [
        block_rows.mask[: 7 - start]
        for start, block_rows in zip(range(0, 7, block), blocks(overlap, block), strict=True)
    ]
    alone = [apart(part(overlap, slice(i, i + 1)), PUBLIC).mask[0] for i in range(7)]
    same = alone == in_memory == np.concatenate(streamed).tolist() == [1, 1, 1, 0, 0, 1, 1]
    assert same is (planted is None)


def blocks(table_rows, block):
    return apart(ArraySource(table_rows, block), PUBLIC).blocks()


@pytest.mark.parametrize("planted", [None, null_the_whole_block], ids=["as it is", "a whole block"])
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_one_row_moves_the_released_sum_by_at_most_its_bound(planted, adjacency, monkeypatch):
    if planted is not None:
        monkeypatch.setattr(PublicRowSet, "nulled", planted)
    # Three kinds of rows, the first public, and a null row; every table of four of them and every neighbour.
    kinds = rows([[1, 1], [0, 1], [0, 1], [0, 0]], [1, 0, 1, 0], mask=[1, 1, 1, 0])
    public = part(kinds, slice(0, 1))
    query = ClippedGradient(Logistic(), jnp.zeros(3), FeatureMap.identity(2), jnp.float32(0.5), jnp.ones(()))
    with jax.enable_x64(True):
        summed = jax.jit(lambda private: exact_sum(query, private).value)
        sums = {
            lines: np.asarray(summed(jax.tree.map(jnp.asarray, apart(part(kinds, np.array(lines)), public))))
            for lines in itertools.product(range(4), repeat=4)
        }
    allowed = 0.5 * adjacency.sensitivity_factor * (1 + 1e-9)
    others = range(4) if adjacency is Adjacency.REPLACE_ONE else [3]
    most = max(
        np.linalg.norm(sums[lines] - sums[(*lines[:place], row, *lines[place + 1 :])])
        for lines in sums
        for place in range(4)
        for row in others
    )
    assert bool(most <= allowed) is (planted is None)
    assert most > 0.9 * allowed


def test_rows_are_never_taken_out_since_their_number_would_tell(monkeypatch):
    both, _ = overlapping()
    assert apart(both, PUBLIC).x.shape == both.x.shape
    monkeypatch.setattr(PublicRowSet, "nulled", fewer_rows)
    assert apart(both, PUBLIC).x.shape != both.x.shape


# ------------------------------------------------------------------------------------------------------------ refusals
class Untouchable(RowSource):
    num_rows, num_features = N, D

    def blocks(self):
        raise AssertionError("a private row was read")


def two_directions_of_the_total():
    """A total gradient of two classes has one."""
    adamix = HAND_DESIGNED["adamix"](BUDGET)
    return adamix.replace(projector=PublicSubspace(adamix.projector, 2, "total"))


BAD = {
    "no public rows": (None, Grateful(), "none are given; name a file of rows that anybody may see"),
    "none for a warm start": (None, "noisygd:pretrained", "'noisygd:pretrained' learns from public rows too"),
    "all null": (rows([[0.5, 0.5]], [1], mask=[0]), Grateful(), "there is no public row to read"),
    "not a row": (rows(np.ones((0, D)), []), "noisygd", "there is no public row to read"),
    "weights": (rows([[0.5, 0.5]], [1], mask=[2]), "noisygd", "values other than 0 and 1"),
    "another width": (rows([[0.5]], [1]), "noisygd", "have 1 features and the private ones 2"),
    "NaN": (rows([[0.5, np.nan]], [1]), "noisygd", "not finite"),
    "an infinite target": (rows([[0.5, 0.5]], [np.inf]), "noisygd", "not finite"),
    "unscaled": (rows([[0.5, 7.0]], [1]), "noisygd", "public rows cannot be read as they are: x holds values outside"),
    "another class": (rows([[0.5, 0.5]], [2]), "noisygd", "labels other than 0 and 1"),
    "a class missing": (rows([[0.5, 0.5]], [1]), Grateful(), "no row of 1 of the 2 declared classes"),
    "an array": (np.ones((3, D)), "noisygd", "public rows came as ndarray"),
    "shapes": (Rows(np.ones((3, D)), np.ones(2), np.ones(3)), "noisygd", "the public rows do not fit"),
    "all alike": (rows([[0.5, 0.5]] * 3, [1, 0, 1]), "noisygd:projected", "no directions in which they vary"),
    "more directions than the rank": (
        table(9),
        two_directions_of_the_total(),
        "has rank 1, and singular vectors beyond",
    ),
    "not of length 1": (table(9), "adamix_theory", "rows of length 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_public_rows_cost_a_sentence_and_nothing_else(name, tmp_path):
    public, protector, phrase = BAD[name]
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "gdp", Cost(1.0))
    with pytest.raises(InputError, match=phrase):
        l2p.private_train(Task(Untouchable(), public=public), protector, BUDGET, ledger=ledger)
    assert not list(ledger.entries())


def test_public_rows_of_a_raw_table_are_refused_before_a_private_cell_is_read():
    schema = Schema({"age": Number(0, 9)}, Target("back", classes=("no", "yes")))
    private, public = {"age": ["private"], "back": ["yes"]}, {"age": [1, 2], "back": ["yes", "yes"]}
    with pytest.raises(InputError, match="no row of 1 of the 2 declared classes"):
        l2p.private_train(private, Grateful(), BUDGET, schema=schema, public=public)


@pytest.mark.slow
@pytest.mark.parametrize("protector", ["noisygd", Grateful()])
def test_the_private_table_is_not_its_own_public_part(protector):
    mine = table()
    source = Untouchable()
    named = admit(protector, BUDGET, Logistic(), has_public=True)
    for private, public in ((mine, mine), (mine, mine.replace(y=mine.y.copy())), (source, source)):
        with pytest.raises(InputError, match="the public rows are the private table itself"):
            plan_run(Task(private, public=public), named, BUDGET, Logistic())
    # Equal rows in another array are no error, which would tell that they are equal.
    twin = jax.tree.map(np.copy, mine)
    assert l2p.private_train(Task(mine, public=twin), protector, BUDGET).card.public["num_rows"] == N


def test_the_same_table_in_python_is_refused_by_object_and_by_file(tmp_path):
    x, y = np.random.default_rng(0).uniform(size=(N, D)), np.repeat(["no", "yes"], N // 2)
    declared = {"bounds": (0, 1), "classes": ("no", "yes")}
    with pytest.raises(InputError, match="the private table itself"):
        l2p.private_train((x, y), "noisygd", BUDGET, **declared, public=(x, y))
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    (tmp_path / "copy.csv").write_bytes(path.read_bytes())
    for source in (str(path), [tmp_path / "copy.csv"]):
        with pytest.raises(InputError, match="the private table itself"):
            same_table.refuse_same([path], source)
    (tmp_path / "copy.csv").write_text("a,b\n1,3\n")
    same_table.refuse_same(str(path), tmp_path / "copy.csv")
    same_table.refuse_same(path, tmp_path / "missing.csv")


# ------------------------------------------------------------------------------------------------------------ the card
@pytest.mark.slow
def test_the_card_names_the_public_rows_by_number_and_digest_and_still_holds(tmp_path):
    marked = PUBLIC.replace(mask=np.where(np.arange(30) < 5, 0, PUBLIC.mask))
    card = l2p.private_train(Task(table(), public=marked), "noisygd:pretrained", BUDGET).card
    assert card.public == on_card(part(PUBLIC, slice(5, None)))
    assert card.public["num_rows"] == 25
    path = tmp_path / "card.json"
    path.write_text(card.to_json())
    assert Card.from_json(path) == card
    assert f"25, sha256 {card.public['sha256']}" in " ".join(card.to_text().split())
    assert card.public["sha256"] in html.render(card)
    verification = verify(card)
    assert (verification.problems, verification.known_by) == ([], "name")
    assert any("reads public rows" in remark for remark in verification.remarks)
    (problem,) = verify(dataclasses.replace(card, public=None)).problems
    assert problem.startswith("names no public rows")
    changed = on_card(part(PUBLIC, slice(4, 29)))
    assert changed["sha256"] != card.public["sha256"]


@pytest.mark.parametrize("change", [{"num_rows": 0}, {"sha256": "12"}, {"first": [0.1]}])
def test_a_card_with_public_rows_of_another_form_is_refused(change, tmp_path):
    card = l2p.private_train(Task(table(), public=PUBLIC), "noisygd", BUDGET).card
    content = json.loads(card.to_json())
    content["public"] |= change
    path = tmp_path / "card.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="field 'public"):
        Card.from_json(path)
    del content["public"]  # as a card from before has it
    path.write_text(json.dumps(content))
    assert Card.from_json(path).public is None
