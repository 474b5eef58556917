import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from l2p.compare import results, standings
from l2p.compare.results import ACCURACY, ERROR

LOG = {"train_loss": 0.5, "test_loss": 0.5, "accountant": "gdp", "adjacency": "zero_out"}


def rows(scores, column="test_accuracy", epsilon=0.1, **changes):
    """Rows of {method: score per seed}, None for an empty cell."""
    return [
        dict.fromkeys(results.COLUMNS)
        | LOG
        | {"method": method, "epsilon": epsilon, "seed": seed, column: score}
        | ({"train_loss": None} if score is None else {})
        | changes
        for method, method_scores in scores.items()
        for seed, score in enumerate(method_scores)
    ]


@given(won=st.integers(0, 30), lost=st.integers(0, 30))
def test_the_sign_test_is_the_exact_binomial_one(won, lost):
    expected = binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert standings.sign_test(won, lost) == pytest.approx(expected)


def test_the_share_of_seeds_won_counts_ties_half_and_knows_which_way_is_better():
    scores = {"a": [0.5, 0.5, 0.5, 0.5], "b": [0.6, 0.7, 0.5, 0.4], "c": [None] * 4}
    assert standings.share_won(rows(scores), ACCURACY) == {"b": {0.1: "0.62 (p = 1)"}, "c": {0.1: None}}
    assert standings.share_won(rows(scores, "test_mse"), ERROR)["b"] == {0.1: "0.38 (p = 1)"}


def test_times_best_shares_ties_and_looks_at_the_seeds_that_all_have():
    scores = {"a": [0.5, 0.9, 0.5, 0.9], "b": [0.6, 0.8, 0.5], "c": [0.1, 0.2, 0.3], "none": [None] * 4}
    assert standings.times_best(results.by_seed(rows(scores), "test_accuracy"), ACCURACY) == {
        "a": {0.1: "1.5 of 3"},
        "b": {0.1: "1.5 of 3"},
        "c": {0.1: "0 of 3"},
        "none": {0.1: None},
    }


def verdict(scores, metric=ACCURACY):
    (standing,) = standings.verdicts(results.by_seed(rows(scores, metric.column), metric.column), metric)
    return standing


def test_a_lead_beyond_two_paired_standard_errors_is_said_and_a_smaller_one_is_not():
    # Means differ by far less than their spread, but the paired difference varies little between seeds.
    clear = verdict({"a": [0.50, 0.70, 0.90], "b": [0.51, 0.711, 0.91]})
    assert (clear.best, clear.second, clear.level) == ("b", "a", ())
    assert clear.lead.mean == pytest.approx(0.031 / 3)
    assert clear.sentence(ACCURACY).endswith("the next, is 0.0103 ± 0.0003 by seed, more than two standard errors.")
    level = verdict({"a": [0.5, 0.7, 0.9], "b": [0.4, 0.8, 0.91]})
    assert (level.best, level.level) == ("b", ("a",))
    assert level.sentence(ACCURACY).endswith("not more than two standard errors: the two are level.")


def test_of_errors_the_least_wins_and_a_method_that_diverged_is_last():
    standing = verdict({"a": [0.5, 0.6], "b": [0.1, 0.3], "gone": [math.nan, 0.0]}, ERROR)
    assert (standing.best, standing.second) == ("b", "a")
    assert standing.lead.mean == pytest.approx(0.35)
    assert "gone" not in standing.level
    values = results.by_seed(rows({"a": [0.5], "b": [0.1], "gone": [math.nan]}, "test_mse"), "test_mse")
    ranks = standings.mean_ranks(values, ERROR)
    assert ranks == {"a": 2.0, "b": 1.0, "gone": 3.0}


def test_one_seed_and_one_method_are_said_for_what_they_are():
    assert verdict({"a": [0.5], "b": [0.6]}).sentence(ACCURACY).endswith("from one seed, which says nothing of chance.")
    assert verdict({"a": [0.5, 0.6]}).sentence(ACCURACY).endswith("no other was scored.")
    assert standings.verdicts(results.by_seed(rows({"a": [None]}), "test_accuracy"), ACCURACY) == []


def test_ranks_average_over_the_budgets_where_a_method_was_scored_and_share_ties():
    both_budgets = rows({"a": [0.9], "b": [0.8], "c": [0.8]}) + rows({"a": [0.1], "b": [0.2], "c": [None]}, epsilon=0.2)
    ranks = standings.mean_ranks(results.by_seed(both_budgets, "test_accuracy"), ACCURACY)
    assert ranks == {"a": 1.5, "b": 1.75, "c": 2.5}


def test_only_honest_private_methods_with_the_asked_neighbours_compete():
    table = rows({"plain": [0.6]}) + rows({"paper": [0.7]}, adjacency="replace_one")
    table += rows({"plain:private": [0.5]})
    table += rows({"plain:oracle": [0.8], "plain:oracle:pretrained": [0.8]}) + rows({"top": [0.9]}, accountant="none")
    assert standings.kinds(table, "zero_out") == {
        "plain": "private",
        "paper": "paper",
        "plain:private": "private",
        "plain:oracle": "oracle",
        "plain:oracle:pretrained": "oracle",
        "top": "reference",
    }
    assert list(standings.competing(table, "zero_out", ACCURACY)) == ["plain", "plain:private"]
    assert standings.marked("paper", "paper") == "paper ‡"
    legend = standings.legend(["private", "paper"], "zero_out")
    assert legend == ["‡ its paper's own form, certified for other neighbours than zero_out: not ranked."]


def test_the_metric_of_a_regression_is_its_error():
    assert results.metric_of(rows({"a": [0.5]})) is ACCURACY
    assert results.metric_of(rows({"a": [None], "b": [0.1]}, "test_mse")) is ERROR
