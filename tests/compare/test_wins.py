"""The win table: who is compared with whom, and what counts as better."""

import numpy as np
import pytest

from l2p.compare import results, wins

SEEDS = 10


def rows_of(method: str, mean: float, spread: float = 0.0, epsilon: float = 0.1, **changes) -> list[results.Row]:
    """Runs of one method whose accuracies have this mean over seeds."""
    offsets = spread * np.linspace(-1.0, 1.0, SEEDS)
    facts = {"method": method, "epsilon": epsilon, "data": "adult", "model": "logistic", "adjacency": "zero_out"}
    return [
        dict.fromkeys(results.COLUMNS)
        | facts
        | {"accountant": "gdp", "seed": seed, "test_accuracy": mean + offset, "train_loss": 0.5}
        | changes
        for seed, offset in enumerate(offsets)
    ]


FIELD = (
    *rows_of("census", 0.80),
    *rows_of("control-other", 0.81),
    *rows_of("control", 0.70),
    *rows_of("noisygd:tuned", 0.78, spread=0.01),
    *rows_of("hyfree", 0.79, spread=0.5),
    *rows_of("paper", 0.9),
    *rows_of("agd:oracle", 0.80, epsilon_certified=float("inf")),
    *rows_of("objpert_paper", 0.95, adjacency="add_remove"),
    *rows_of("nonprivate", 0.99, accountant="none"),
)


def test_a_protector_meets_the_best_hand_designed_method_its_control_and_the_oracle():
    (cell,) = wins.wins(FIELD, "zero_out")
    assert (cell.data, cell.model, cell.epsilon, cell.protector) == ("adult", "logistic", 0.1, "census")
    # Not other learned ones, those certified for another adjacency, or non-private ones.
    assert cell.opponents == {"best hand-designed": "hyfree", "control": "control-other", "oracle": "agd:oracle"}
    assert {name: wins.verdict(lead) for name, lead in cell.leads.items()} == {
        "best hand-designed": "level",
        "control": "worse",
        "oracle": "same",
    }
    assert cell.leads["control"].mean == pytest.approx(-0.01)
    assert (
        wins.totals([cell, cell])[1]
        == "Against control, of 2 cells: better in 0 (0%), level in 0 (0%), worse in 2 (100%)."
    )
    header, (line,) = wins.table([cell])
    assert len(header) == len(line)
    assert line[5] == "control-other: -0.0100 ± 0.0000, worse"


def test_another_metric_may_see_a_lead_where_accuracy_sees_none():
    rows = [*rows_of("census", 0.8, test_loss=0.41), *rows_of("control", 0.8, test_loss=0.42), *rows_of("agd", 0.7)]
    rows = [row | {"test_loss": row["test_loss"] or 0.4} for row in rows]
    by_accuracy, by_loss = (wins.wins(rows, "zero_out", metric)[0] for metric in (None, results.LOSS))
    assert (wins.verdict(by_accuracy.leads["control"]), wins.verdict(by_loss.leads["control"])) == ("same", "better")
    assert by_loss.leads["control"].mean == pytest.approx(0.01)
    assert wins.verdict(by_loss.leads["best hand-designed"]) == "worse"


def test_leads_are_paired_by_seed():
    noisy = [*rows_of("census", 0.80, spread=0.2), *rows_of("control", 0.79, spread=0.2), *rows_of("agd", 0.79)]
    (cell,) = wins.wins(noisy, "zero_out")
    assert wins.verdict(cell.leads["control"]) == "better"
    assert wins.verdict(cell.leads["best hand-designed"]) == "level"


@pytest.mark.parametrize(("apart", "verdict"), [(6e-8, "same"), (6e-6, "worse")])
def test_last_digits_of_a_float32_are_no_difference(apart, verdict):
    cell = wins.wins([*rows_of("census", 0.967), *rows_of("control", 0.967 + apart)], "zero_out")[0]
    assert wins.verdict(cell.leads["control"]) == verdict


def test_lower_errors_are_better():
    moved = [row | {"test_accuracy": None, "test_mse": row["test_accuracy"]} for row in FIELD]
    (cell,) = wins.wins(moved, "zero_out")
    assert cell.opponents["best hand-designed"] == "noisygd:tuned"
    assert cell.leads["control"].mean == pytest.approx(0.01)


def test_a_comparison_of_something_else_has_no_cells_and_an_empty_cell_no_lead():
    assert wins.wins([*rows_of("agd", 0.8), *rows_of("control", 0.7)], "zero_out") == []
    assert wins.wins([*rows_of("census", 0.8), *rows_of("agd", 0.7)], "zero_out") == []
    empty = [row | {"test_accuracy": None, "train_loss": None} for row in rows_of("control", 0.7)]
    (cell,) = wins.wins([*rows_of("census", 0.8), *empty, *rows_of("agd", 0.7)], "zero_out")
    assert set(cell.leads) == {"best hand-designed"}
