import itertools
import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from l2p.base.drawing import COLOURS, DARK_COLOURS, DARK_PAGE, PAGE, End, name_lines, save, spread
from l2p.compare.figures import MAX_LINES, against_epsilon, against_step
from l2p.compare.results import Estimate

MANY = {f"method {index}": {0.1: Estimate(0.7, 0.01), 0.2: Estimate(0.8, 0.01)} for index in range(25)}


def cells(*means):
    return {0.1 * (1 + place): Estimate(mean, 0.0) for place, mean in enumerate(means)}


def names(axis):
    return [text.get_text() for text in axis.texts]


def drawn(figure):
    figure.canvas.draw()
    return figure


def test_methods_and_empty_cells_against_epsilon():
    table = {
        "agd": {0.1: Estimate(0.7, 0.01), 0.2: None},
        "nonprivate": {0.1: Estimate(0.9, float("nan")), 0.2: Estimate(0.9, float("nan"))},
        "failed": {0.1: None, 0.2: None},
    }
    figure = drawn(against_epsilon({"test accuracy": table, "train loss": table}, dashed=("nonprivate",)))
    accuracy, loss = figure.axes
    assert [axis.get_ylabel() for axis in figure.axes] == ["test accuracy", "train loss"]
    assert names(accuracy) == names(loss) == ["agd", "nonprivate"]
    assert loss.get_xscale() == "log"


def test_curves_show_mean_and_band_and_end_with_the_run():
    share = np.array([[0.5, 0.5, 0.0], [0.3, 0.7, 0.0]])
    figure = drawn(against_step({"agd": np.ones((2, 3))}, {"agd": share}))
    line = figure.axes[1].get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), [0.4, 0.6, np.nan])
    assert len(figure.axes[1].collections) == 1


@pytest.mark.parametrize("kind", ["epsilon", "step"])
def test_of_many_methods_a_few_are_named_in_colours_of_their_own_and_the_rest_is_grey(kind):
    if kind == "epsilon":
        figure = against_epsilon({"test loss": MANY}, ["method 20", *MANY], dashed=("method 3",))
        assert {"method 20", "method 3"} <= set(names(figure.axes[0]))
    else:
        curves = {name: np.ones((2, 3)) for name in MANY}
        figure = against_step(curves, curves)
    axis = drawn(figure).axes[0]
    colours = [text.get_color() for text in axis.texts]
    assert len(colours) == len(set(colours)) == MAX_LINES + (kind == "epsilon")  # and the reference
    assert len(axis.get_lines()) >= len(MANY)


def test_labels_do_not_overlap_and_nothing_is_cut_off():
    figure = against_epsilon({"test loss": MANY, "train loss": MANY}, list(MANY))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    for axis in figure.axes:
        boxes = sorted((Text.get_window_extent(text, renderer) for text in axis.texts), key=lambda box: box.y0)
        assert len(boxes) == MAX_LINES
        assert all(low.y1 <= high.y0 + 1 for low, high in itertools.pairwise(boxes))
        assert all(box.x1 <= figure.bbox.x1 for box in boxes)


def test_grey_lines_that_are_far_off_do_not_flatten_the_labelled_ones():
    table = {"ours": cells(0.4, 0.3), "rival": cells(0.6, 0.5), "far": cells(11.0, 1.0)}
    (axis,) = against_epsilon({"test loss": table}, ("ours", "rival")).axes
    low, high = axis.get_ylim()
    assert (low, high) == pytest.approx((0.285, 0.765))
    (axis,) = against_epsilon({"test loss": table | {"far": cells(0.7, 0.6)}}, ("ours", "rival")).axes
    assert axis.get_ylim()[1] > 0.7


def test_labels_stay_in_order_and_move_no_further_than_they_must():
    assert spread([0.0, 0.5, 1.0], 0.1) == [0.0, 0.5, 1.0]
    heights = spread([0.2, 0.2, 0.21, 0.9], 0.1)
    np.testing.assert_allclose(heights, [0.20333 - 0.1, 0.20333, 0.30333, 0.9], atol=1e-4)
    np.testing.assert_allclose(spread([-0.3, 0.97, 0.99, 1.2], 0.1), [0.0, 0.8, 0.9, 1.0])


def test_losses_of_several_orders_of_magnitude_are_drawn_on_a_logarithmic_axis():
    score, loss = ({"agd": {0.1: Estimate(high, 0.0), 0.2: Estimate(0.5, 0.0)}} for high in (0.9, 90.0))
    figure = against_epsilon({"test accuracy": score, "train loss": loss})
    assert [axis.get_yscale() for axis in figure.axes] == ["linear", "log"]


def test_a_line_that_looks_like_another_is_drawn_wider_behind_it():
    same, different = cells(0.5, 0.6, 0.7), cells(0.8, 0.7, 0.6)
    axis = drawn(against_epsilon({"test loss": {"universal": same, "agd": different, "control-universal": same}})).axes[
        0
    ]
    lines = {line.get_label(): line for line in axis.get_lines()}
    control, universal = lines["control-universal"], lines["universal"]
    assert control.get_linewidth() > 2 * universal.get_linewidth()
    assert control.get_zorder() < universal.get_zorder()
    assert lines["agd"].get_linewidth() == universal.get_linewidth()


def test_no_line_from_a_label_to_its_curve_crosses_another_label():
    table = {f"a method with a long name {index}": cells(0.5, 0.6 + index / 1000) for index in range(MAX_LINES)}
    figure = against_epsilon({"test loss": table | {"far": cells(0.1, 0.99)}}, list(table))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = figure.axes[0].texts
    for label in texts:
        path = label.arrow_patch.get_path().transformed(label.arrow_patch.get_transform())
        others = [
            Text.get_window_extent(neighbour, canvas.get_renderer()) for neighbour in texts if neighbour is not label
        ]
        assert not any(path.intersects_bbox(box, filled=False) for box in others), label.get_text()


def test_a_reference_at_zero_stays_off_a_logarithmic_axis():
    table = {"universal": cells(0.9, 0.02), "no_features": cells(1.0, 1.0), "nonprivate": cells(0.0, 0.0)}
    (axis,) = drawn(against_epsilon({"excess": table}, dashed=("no_features", "nonprivate"))).axes
    assert axis.get_yscale() == "log"
    assert names(axis) == ["universal", "no_features"]
    (axis,) = against_epsilon({"excess": table | {"universal": cells(0.9, -0.02)}}, dashed=("nonprivate",)).axes
    assert axis.get_yscale() == "linear"
    assert "nonprivate" in names(axis)


def test_a_loss_that_is_infinite_or_unknown_sets_no_limit():
    table = {"universal": cells(0.5, 0.4), "far": cells(float("inf"), float("nan")), "agd": cells(float("nan"), 0.6)}
    (axis,) = drawn(against_epsilon({"test loss": table}, ("universal", "agd"))).axes
    assert axis.get_ylim() == pytest.approx((0.39, 0.61))


def test_a_line_that_ends_outside_is_named_at_the_edge_with_an_arrow():
    figure = against_epsilon({"test loss": {"agd": cells(0.5, 0.6)}})
    (axis,) = figure.axes
    axis.set_ylim(0.0, 0.55)
    name_lines(axis, {"agd": End(0.2, 0.6, "black")})
    assert names(axis)[-1] == "agd ↑"


def test_a_file_is_the_same_each_time_and_has_colours_for_dark_pages(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        save(against_epsilon({"test loss": MANY}, title="digits, model logistic"), tmp_path / name / "figure.svg")
    first, second = ((tmp_path / name / "figure.svg").read_text() for name in ("a", "b"))
    assert first == second
    assert "prefers-color-scheme: dark" in first
    assert "digits, model logistic</text>" in first
    drawn_in = set(re.findall(r"(?:stroke|fill): (#\w{6})", first.replace("opacity", "")))
    for light, dark in zip(COLOURS, DARK_COLOURS, strict=True):
        assert {light, dark} <= drawn_in


#: Linear RGB without red cones, and without green ones (Machado et al. 2009, severity 1).
CONES = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour):
    values = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIELAB of linear RGB; a distance of about 2 is just seen."""
    x, y, z = np.cbrt(np.maximum(TO_XYZ @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089], 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("cones", CONES)
@pytest.mark.parametrize(("colours", "page"), [(COLOURS, PAGE), (DARK_COLOURS, DARK_PAGE)], ids=["light", "dark"])
def test_colours_are_told_apart_by_the_colour_blind_and_read_as_text(colours, page, cones):
    points = [lab(np.array(CONES[cones]) @ linear(colour)) for colour in colours]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(points, 2)) > 20
    for colour in colours:
        dark, light = sorted(TO_XYZ[1] @ linear(each) for each in (colour, page))
        assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG 2.2, level AA
