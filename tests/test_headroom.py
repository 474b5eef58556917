"""Headroom: what a search may read, what it moves, and how cells are counted."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.headroom import cases, search, summary
from l2p.checkpoints.checkpoint import load
from l2p.protectors import Eigenbasis
from l2p.protectors.conditioning import Covariates, between_knots, value
from l2p.task.rows import Rows

LABELLED = np.random.default_rng(1).integers(0, 2, 60).astype(np.float32)
AT = Covariates(jnp.float32(5.3), 0.4, 0.5, 0.0, 1.0, 1.0)


@pytest.fixture(scope="module")
def control():
    """The shipped constants at one budget."""
    return search.at_budget(load("control-universal").protector, AT)


def cell(control, searched, error=0.001, **fields):
    """A cell of a table whose start has loss .7, best constant .6, and model without privacy .5."""
    losses = {"start": 0.7, "constant": 0.6, "nonprivate": 0.5, "control": control, "searched": searched}
    over = {name: [control - loss, error] for name, loss in losses.items()}
    defaults = {"data": "openml:vote", "model": "logistic", "kind": "binary", "epsilon": 1.0, "log_signal": 5.0}
    defaults |= {"rows": 500, "features": 20}
    above = [searched - 0.6, error]
    return {"losses": losses, "over": over, "searched_over_floor": above} | defaults | fields


def test_a_protector_at_a_budget_has_the_values_of_its_curves_there(control):
    whole = load("control-universal").protector
    elsewhere = Covariates(jnp.float32(1.0), -2.0, 2.0, 1.0, 0.0, 0.0)  # one value each: the same everywhere
    for name in ("log_spread", "log_width"):
        expected = between_knots(getattr(whole.projector, name), AT)
        assert jnp.allclose(between_knots(getattr(control.projector, name), elsewhere), expected, atol=1e-5)
    power = value(whole.purchase(Eigenbasis).log_power, AT.log_signal)
    assert jnp.allclose(control.purchase(Eigenbasis).log_power, power[None])
    assert search.constants(control)["eigenbasis.log_power"] == pytest.approx(float(power))


def test_rows_to_search_on_stand_for_all_and_the_others_are_judged_on():
    rows = Rows(np.zeros((10, 2), np.float32), np.arange(10.0), np.ones(10, np.float32))
    first, second = (search.validation(rows, seed) for seed in (0, 1))
    assert first.test.mask.sum() == 2
    assert first.private.mask.sum() == pytest.approx(10)
    assert (first.private.mask * first.test.mask == 0).all()
    assert (first.test.mask != second.test.mask).any()


def test_what_a_constant_is_worth_is_lost_where_it_is_put_back(control):
    moved = control.replace(
        scheduler=control.scheduler.replace(log_clip_norm=control.scheduler.log_clip_norm.at[0, 0].add(1.0)),
        projector=control.projector.replace(log_spread=control.projector.log_spread.at[0, 0].add(-0.5)),
    )

    def losses_of(protectors):  # a clipping norm makes three quarters of the gain
        start = search.constants(control)
        moves = [{name: last - start[name] for name, last in search.constants(each).items()} for each in protectors]
        return np.array([1.0 - 0.3 * m["scheduler.log_clip_norm"] + 0.2 * m["projector.log_spread"] for m in moves])

    assert search.moves(control, moved, losses_of) == {
        "moved": {"scheduler.log_clip_norm": 1.0, "projector.log_spread": -0.5},
        "worth": {"scheduler.log_clip_norm": 0.75, "projector.log_spread": 0.25},
    }
    assert search.moves(control, control, losses_of) == {"moved": {}, "worth": {}}


def test_bases_differ_in_the_eigenbasis_alone(control):
    options = [search.constants(option) for option in search.with_bases(control)]
    changed = {name for option in options for name in option if option[name] != options[0][name]}
    assert changed == {"eigenbasis.log_least_ratio", "eigenbasis.logit_share"}
    assert len({tuple(option.values()) for option in options}) == len(options) == search.TOGETHER - 1


def test_a_standard_error_counts_noise_and_test_rows():
    assert cases.compared(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0])) == [1.5, 1.118034]
    rng = np.random.default_rng(0)
    rows = rng.normal(size=400)
    mean, error = cases.compared(rows + rng.normal(size=(50, 1)), np.zeros(400))
    assert mean == pytest.approx(rows.mean(), abs=0.5)
    assert error == pytest.approx(math.sqrt(1 / 400 + 1 / 50), rel=0.2)


def test_cells_are_counted_in_their_groups():
    near, half, none = cell(0.503, 0.503), cell(0.6, 0.55), cell(0.65, 0.65, kind="regression", rows=5000)
    assert [summary.has_headroom(each) for each in (near, half, none)] == [False, True, True]
    groups = summary.groups([near, half, none])
    assert summary.figures(groups["two classes"]) == ["2", "1", "50 %", "25 %", "0.0500", "100 %", "0 %", "0 %"]
    assert summary.figures(groups["numbers"]) == ["1", "1", "0 %", "0 %", "0.0000", "0 %", "100 %", "100 %"]
    assert [len(groups[name]) for name in ("all", "log(mu N) 4.0 to 5.7", "4,000 rows and more")] == [3, 3, 1]
    assert summary.figures([near])[2:6] == ["-", "-", "-", "-"]


def test_a_model_without_privacy_that_is_no_better_than_the_start_leaves_no_headroom():
    useless = cell(0.6, 0.6)
    useless["losses"]["nonprivate"] = 0.8
    assert not summary.has_headroom(useless)


def test_constants_are_ranked_where_the_search_surely_gains():
    fields = {"worth": {"a": 0.1, "b": 0.6}, "moved": {"a": 1.0, "b": -2.0}}
    unsure = cell(0.6, 0.599, worth={"a": 9.0}, moved={"a": 9.0})
    lines = summary.of_constants([cell(0.6, 0.55, **fields), unsure])
    assert lines[0] == ("constant", "all (1)", "4.0 to 5.7 (1)")
    assert lines[2:] == [("b", *["60 %, -2.00 (0.00)"] * 2), ("a", *["10 %, +1.00 (0.00)"] * 2)]


def test_a_case_has_a_line_with_the_gain_at_each_budget():
    unsure, near = cell(0.6, 0.55, error=0.1, epsilon=3.0), cell(0.501, 0.4, epsilon=10.0)
    lines = summary.of_cases([near, unsure, cell(0.6, 0.55), cell(0.6, 0.55, data="adult")])
    assert lines[0] == ("epsilon", "1", "3", "10")
    assert lines[2:] == [
        ("adult, logistic, 500 x 20", "50 %*", "", ""),
        ("vote, logistic, 500 x 20", "50 %*", "50 %", "none"),
    ]


def test_choices_of_an_eigenbasis_are_told_apart():
    features = 10  # of log(mu N) 5.0: log(mu N / d) is 2.7
    for least, expected in ((1.5, "another share"), (3.0, "bought, too")):
        moved = {"eigenbasis.log_least_ratio": search.ALWAYS - least}
        assert summary.basis(cell(0.6, 0.55, moved=moved, features=features)) == expected
    assert summary.basis(cell(0.6, 0.55, moved={"a": 1.0})) == "as the control"
    without = cell(0.6, 0.55, moved={"eigenbasis.log_least_ratio": 18.0}, features=features)
    assert summary.basis(without) == "not bought"
    lines = summary.of_bases([without, cell(0.6, 0.6)])
    assert [line for line in lines[2:] if set(line[1:]) != {"0"}] == [("2 to 3", "0", "0", "0", "1: 25 %")]
