import numpy as np

from l2p.compare.figures import against_epsilon, against_step
from l2p.compare.results import Estimate


def test_methods_and_empty_cells_against_epsilon(tmp_path):
    table = {
        "agd": {0.1: Estimate(0.7, 0.01), 0.2: None},
        "nonprivate": {0.1: Estimate(0.9, float("nan")), 0.2: Estimate(0.9, float("nan"))},
        "failed": {0.1: None, 0.2: None},
    }
    figure = against_epsilon(table, table, dashed=("nonprivate",))
    accuracy, loss = figure.axes
    assert [axis.get_ylabel() for axis in figure.axes] == ["test accuracy", "train loss"]
    assert accuracy.get_legend_handles_labels()[1] == ["agd", "nonprivate"]
    assert loss.get_xscale() == "log"
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0


def test_curves_show_mean_and_band_and_end_with_the_run():
    share = np.array([[0.5, 0.5, 0.0], [0.3, 0.7, 0.0]])
    figure = against_step({"agd": np.ones((2, 3))}, {"agd": share})
    line = figure.axes[1].get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), [0.4, 0.6, np.nan])
    assert len(figure.axes[1].collections) == 1


def test_many_methods_are_told_apart_and_listed_beside_the_panels(tmp_path):
    table = {f"method {index}": {0.1: Estimate(0.7, 0.01), 0.2: Estimate(0.8, 0.01)} for index in range(25)}
    figure = against_epsilon(table, table, apart=("method 3",))
    styles = {
        (line.get_color(), line.get_marker()) for line in figure.axes[0].get_lines() if line.get_marker() in "osD^v"
    }
    assert len(styles) == 25
    assert figure.axes[0].get_legend() is None
    assert len(figure.legends) == 1
    figure.savefig(tmp_path / "figure.png")


def test_losses_of_several_orders_of_magnitude_are_drawn_on_a_logarithmic_axis():
    score, loss = ({"agd": {0.1: Estimate(high, 0.0), 0.2: Estimate(0.5, 0.0)}} for high in (0.9, 90.0))
    assert [axis.get_yscale() for axis in against_epsilon(score, loss).axes] == ["linear", "log"]
