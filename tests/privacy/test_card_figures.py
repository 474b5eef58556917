"""Figures of the card: spending and noise by step."""

import math
import re
from types import SimpleNamespace

import pytest

from l2p.privacy.card import html, plots
from tests.privacy.cards import Page, card, rows


def test_figures_need_a_trace_and_a_limit():
    assert Page(html.render(card())).count("figure") == 0
    assert Page(html.render(card(), [], limit=1.0)).count("figure") == 0
    assert Page(html.render(card(), rows())).count("figure") == 1
    assert Page(html.render(card(), rows(), limit=1.0)).count("figure") == 2


def test_the_figure_of_spending_stacks_steps_up_to_what_was_spent():
    text = plots.spending(rows(4), limit=2.0)
    assert "50.0000% of the budget was spent after step 4; no step took more than 12.5000%." in text
    bars = re.search(r'class="bar" d="([^"]+)"', text).group(1)
    ends = [(float(low), float(high)) for low, high in re.findall(r",([\d.]+)V([\d.]+)H", bars)]
    assert len(ends) == 4
    assert [high for _, high in ends[:-1]] == [low for low, _ in ends[1:]]
    budget = float(re.search(r'class="budget" d="M\d+,([\d.]+)', text).group(1))
    assert budget == pytest.approx(ends[0][0] - 2 * (ends[0][0] - ends[-1][1]), abs=0.2)


def test_the_figure_of_noise_is_logarithmic_and_keeps_extremes():
    def heights(multipliers):
        trace = [SimpleNamespace(step=i, query="q", noise_multiplier=m, spent=0.0) for i, m in enumerate(multipliers)]
        path = re.search(r'class="line c0" d="([^"]+)"', plots.noise(trace)).group(1)
        return [float(height) for height in re.findall(r",([\d.]+)", path)]

    first, second, third = heights([1.0, 10.0, 100.0])
    assert first - second == pytest.approx(second - third, abs=0.11)
    spike = heights([10.0] * 5000 + [1000.0] + [10.0] * 5000)
    assert len(spike) < 400
    assert min(spike) == heights([10.0, 1000.0])[1]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
def test_a_figure_leaves_out_what_has_no_place_on_it(bad):
    trace = [SimpleNamespace(step=1, query="q", noise_multiplier=bad, spent=math.nan)]
    assert plots.noise(trace) == ""
    assert plots.spending(trace, 1.0) == ""
    assert plots.spending(rows(), bad) == ""


@pytest.mark.parametrize("multiplier", [5e-324, 1.0, 1.7e308])
def test_the_figure_of_noise_takes_every_noise(multiplier):
    assert "nan" not in plots.noise([SimpleNamespace(step=1, query="q", noise_multiplier=multiplier, spent=0.0)])
