"""`l2p plan`: forecasts from tables that nobody trained on, and bad input that gives one sentence."""

import dataclasses
import itertools
import json
import math
import re

import jax
import numpy as np
import pytest

import l2p.checkpoints.forecast as plan_module
from benchmarks import forecast as benchmark
from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.checkpoints.defaults import default_protector
from l2p.checkpoints.forecast import BEATS, plan
from l2p.checkpoints.reachable_gain import Curve, Measured, measured
from l2p.checkpoints.signal import epsilon_for, log_signal, rows_for
from l2p.commands.plan import PlanCommand
from l2p.models import NAMES, Logistic, find_model
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.rounded import rounded
from l2p.release.admission import admit
from meta_train.training.untrained import BUILDERS

BUDGET = Budget(0.1, 1e-6)
CARD = {"sources": ["adult"], "range": {"log_signal": [1.0, 9.0], "num_features": [8, 104]}}
MODELS = {card["name"]: card["models"] for card in checkpoint.available()}
#: Names in plans for logistic regression; and for all models with classes, whose accuracy a meta-test measures.
LOGISTIC = {name for name in checkpoint.first_floor() if "logistic" in MODELS[name]}
ACCOUNTANTS = ("gdp", "zcdp", "rdp", "ctcdp")


#: Made up: from log(mu N) of 2 to 6 the low end rises from 0 to .8 of the gain; uneven classes cost nothing.
CURVE = Curve(0.5, 0.0, (2.0, 4.0, 6.0), (0.0, 0.2, 0.8), (0.1, 0.5, 0.9), (0.3, 0.7, 1.0))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The only folder of checkpoints, with a good one and the default, which was measured."""
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path,))
    monkeypatch.setattr(plan_module, "measured", lambda: Measured(CURVE, 28, 0.84))
    put(tmp_path, "good")
    put(tmp_path, "universal")
    return tmp_path


def put(folder, name, **card):
    checkpoint.save(BUILDERS["control"](jax.random.key(0)), folder / f"{name}.safetensors", CARD | card)


def forecasts(*args):
    return {forecast.name: forecast for forecast in plan(*args).forecasts}


def rows_at(signal, accountant="gdp", budget=BUDGET):
    """The number of rows at which log_signal is `signal`, rounded."""
    return round(math.exp(signal - log_signal(accountant, budget, 1)))


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_log_signal_is_the_one_that_a_run_sees(accountant, adjacency):
    budget = Budget(0.3, 1e-7, adjacency)
    setup = Setup.create(Logistic(), budget.adjacency, Filter(accountant, budget).price_list(), 12_345)
    assert log_signal(accountant, budget, 12_345) == pytest.approx(float(setup.log_signal), abs=1e-4)


def test_the_forecast_is_the_curve_at_log_mu_n(folder):
    forecast = forecasts(rows_at(5.0), 20, BUDGET)["universal"]
    assert forecast.log_signal == pytest.approx(5.0, abs=1e-4)
    assert forecast.noise == pytest.approx(math.exp(-forecast.log_signal))
    assert forecast.share == pytest.approx((0.5, 0.7, 0.85), abs=1e-4)
    assert forecasts(rows_at(9.0), 20, BUDGET)["universal"].share == (0.8, 0.9, 1.0)
    assert forecasts(rows_at(0.5), 20, BUDGET)["universal"].share == (0.0, 0.1, 0.3)


@pytest.mark.slow
def test_uneven_and_many_classes_cost_as_much_as_fewer_rows():
    even = plan(3_000, 20, BUDGET, majority=0.5).forecasts[0]
    for options in ({"majority": 0.95}, {"model": "softmax", "classes": 7, "majority": 0.2}):
        forecast = plan(3_000, 20, BUDGET, **options).forecasts[0]
        cost = measured().curve.cost(options.get("classes", 2), options["majority"])
        assert cost > 0.5
        fewer = plan(round(3_000 * math.exp(-cost)), 20, BUDGET, majority=0.5).forecasts[0]
        assert forecast.share == pytest.approx(fewer.share, abs=2e-3)
        assert forecast.share[1] < even.share[1] - 0.1
        assert forecast.least_epsilon > even.least_epsilon
        assert forecast.least_rows == pytest.approx(math.exp(cost) * even.least_rows, rel=1e-2)


def test_an_uneven_table_is_promised_little():
    """Stroke, of 3,577 rows with 5 % positives, gained nothing where 4 to 28 points of accuracy were foretold."""
    low, median, _ = plan(3_577, 32, Budget(1.0, 1e-6), majority=0.95).forecasts[0].share
    assert low < 0.3
    assert median < 0.8


def test_universal_and_its_control_are_foretold_alike_and_others_are_not():
    by_name = forecasts(30_000, 50, BUDGET)
    assert by_name["universal"].share == by_name["control-universal"].share
    assert {name for name, forecast in by_name.items() if forecast.share is not None} == {
        "universal",
        "control-universal",
    }


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({"majority": 0.4}, "the commonest of 2 classes has at least 1/2"),
        ({"majority": 1.0}, "fewer than all"),
        ({"majority": 0.1, "model": "softmax", "classes": 7}, "at least 1/7"),
        ({"majority": 0.9, "model": "square"}, "no number of classes is given"),
    ],
)
def test_a_share_that_no_commonest_class_has_is_refused(options, phrase):
    with pytest.raises(InputError, match=phrase):
        plan(3_000, 20, BUDGET, **options)


def test_more_rows_and_more_epsilon_are_never_worse(folder):
    by_rows = [forecasts(rows, 20, BUDGET)["universal"] for rows in (100, 400, 3_000, 20_000, 90_000)]
    by_epsilon = [
        forecasts(20_000, 20, Budget(epsilon, 1e-6))["universal"] for epsilon in (0.001, 0.01, 0.05, 0.1, 0.4)
    ]
    for ordered in (by_rows, by_epsilon):
        assert all(a.log_signal < b.log_signal for a, b in itertools.pairwise(ordered))
        values = np.array([forecast.share for forecast in ordered])
        assert (np.diff(values, axis=0) >= 0).all()
        assert values[-1, 1] > values[0, 1]
    epsilons = np.array([forecast.least_epsilon for forecast in by_rows])
    assert (np.diff(epsilons) < 0).all()
    assert (np.diff([forecast.least_rows for forecast in by_epsilon]) < 0).all()


def test_the_smallest_epsilon_is_where_nine_of_ten_runs_beat_the_constant(folder):
    least = forecasts(20_000, 20, BUDGET)["universal"].least_epsilon
    for epsilon, holds in ((least * 1.001, True), (least * 0.999, False)):
        forecast = forecasts(20_000, 20, Budget(epsilon, 1e-6))["universal"]
        assert (forecast.share[0] >= BEATS) == holds
        assert any("is too little" in warning for warning in plan(20_000, 20, Budget(epsilon, 1e-6)).warnings) != holds
    rows = forecasts(1_000, 20, BUDGET)["universal"].least_rows
    assert [forecasts(n, 20, BUDGET)["universal"].share[0] >= BEATS for n in (rows, rows - 1)] == [True, False]


def test_a_curve_that_never_beats_the_constant_has_no_least_epsilon(folder, monkeypatch):
    never = dataclasses.replace(CURVE, low=(-0.5, -0.2, 0.0))
    monkeypatch.setattr(plan_module, "measured", lambda: Measured(never, 1, 1.0))
    planned = plan(20_000, 20, BUDGET)
    assert (planned.forecasts[0].least_epsilon, planned.forecasts[0].least_rows) == (None, None)
    assert "no better than the best constant prediction." in planned.warnings[-1]


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_epsilon_and_rows_for_a_target_invert_log_signal(accountant):
    epsilon = epsilon_for(4.0, accountant, BUDGET, 5_000)
    assert log_signal(accountant, Budget(epsilon, 1e-6), 5_000) == pytest.approx(4.0, abs=1e-8)
    rows = rows_for(4.0, accountant, BUDGET)
    assert log_signal(accountant, BUDGET, rows - 1) < 4.0 <= log_signal(accountant, BUDGET, rows)


def test_targets_out_of_reach_have_no_epsilon_and_no_rows():
    assert epsilon_for(20.0, "gdp", Budget(1.0, 1e-6), 10) is None
    assert rows_for(8.0, "gdp", Budget(0.01, 1e-4)) is None  # delta would not be below 1/N


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("classes", [None, 2, 7])
def test_what_is_recommended_is_the_default_of_apply_and_trains_the_model(model, classes):
    try:
        planned = plan(20_000, 20, BUDGET, model, classes)
    except InputError as error:
        assert "tells 2 classes apart, not 7" in str(error) or "have no classes" in str(error)  # noqa: PT017
        return
    assert planned.recommended == default_protector(model) == planned.forecasts[0].name
    named = f"{model}:{classes or 3}" if model == "softmax" else model
    assert admit(planned.recommended, BUDGET, find_model(named)).for_rows(20_000).name == planned.recommended
    assert not any("-fold-" in forecast.name for forecast in planned.forecasts)


def test_too_little_signal_is_warned_of_with_what_would_help(folder):
    planned = plan(rows_at(0.5), 20, BUDGET)
    outside, little = planned.warnings
    assert "is below the protector's range: at least epsilon" in outside
    first = planned.forecasts[0]
    assert f"it takes epsilon {rounded(first.least_epsilon, up=True)}, or {first.least_rows:,} rows" in little
    helped = Budget(float(rounded(first.least_epsilon, up=True)), 1e-6)
    assert plan(rows_at(0.5), 20, helped).warnings == tuple(helped.warnings())
    assert plan(first.least_rows, 20, BUDGET).warnings == ()


def test_more_signal_than_was_measured_says_what_is_enough(folder):
    planned = plan(300_000, 20, Budget(2.0, 1e-6))
    assert all("is above the protector's range: at most" in forecast.warnings[0] for forecast in planned.forecasts)
    assert planned.forecasts[0].share == (0.8, 0.9, 1.0)
    enough = float(rounded(planned.forecasts[0].most_epsilon, up=False))
    assert f"at most epsilon {enough:g} on so many rows" in planned.warnings[0]
    assert plan(300_000, 20, Budget(enough, 1e-6)).warnings == ()


def test_rows_in_a_warning_are_where_the_range_ends(folder):
    (warning,) = plan(300_000, 20, Budget(2.0, 1e-6)).forecasts[0].warnings
    rows = int(re.search(r"or ([\d,]+) rows", warning)[1].replace(",", ""))
    assert plan(rows, 20, Budget(2.0, 1e-6)).forecasts[0].warnings == ()
    assert plan(rows + 2, 20, Budget(2.0, 1e-6)).forecasts[0].warnings != ()


def test_a_large_epsilon_is_warned_of_and_one_of_ten_is_not(folder):
    for epsilon, warned in ((10.0, False), (10.1, True), (1000.0, True)):
        assert (
            any("is above 10, which" in warning for warning in plan(50, 20, Budget(epsilon, 1e-6)).warnings) is warned
        )


@pytest.mark.parametrize("features", [7, 105])
def test_features_outside_the_trained_range_are_warned_of(folder, features):
    planned = plan(rows_at(7.0), features, BUDGET)
    wanted = f"{features} features are outside the protector's range, 8 to 104"
    assert all(wanted in forecast.warnings[0] for forecast in planned.forecasts)
    assert wanted in planned.warnings[0]
    assert all(not forecast.in_range for forecast in planned.forecasts)


def test_where_its_control_would_run_a_plan_says_so(folder):
    put(folder, "control-good", range={"num_features": [2, 200]})
    control = {"config": {"warm_start": "control-good"}, "range": {"num_features": [8, 104]}}
    control["warm_start_arrays_sha256"] = checkpoint.load("control-good").arrays_sha256
    put(folder, "networks", **control)

    def warned(features):
        (forecast,) = [
            candidate for candidate in plan(20_000, features, BUDGET).forecasts if candidate.name == "networks"
        ]
        return any("control-good would run instead" in warning for warning in forecast.warnings)

    assert not warned(20)
    assert warned(120)


def test_of_what_was_not_measured_nothing_is_promised(folder):
    put(folder, "fresh")
    planned = plan(20_000, 20, BUDGET, protector="fresh")
    assert planned.warnings == ()
    assert (planned.forecasts[0].share, planned.forecasts[0].least_epsilon) == (None, None)


def test_protectors_for_other_models_are_left_out(folder):
    put(folder, "other", models=["mlp"])
    assert {forecast.name for forecast in plan(20_000, 20, BUDGET).forecasts} == {"good", "universal"}


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"rows": 0}, "without rows"),
        ({"features": 0}, "features is 0"),
        ({"rows": 2_000_000}, "not below 1/N"),
        ({"delta": 0.1}, "not below 1/N"),
        ({"epsilon": 0.0}, "epsilon is 0.0"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"model": "forest"}, "model 'forest' is unknown"),
        ({"adjacency": "friends"}, "friends"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(change, phrase, capsys):
    options = {"rows": 30_000, "features": 100, "epsilon": 0.1, "delta": 1e-6} | change
    with pytest.raises(InputError, match=phrase) as caught:
        PlanCommand(**options).run()
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_the_command_prints_json_and_a_table(folder, capsys):
    put(folder, "fresh")
    assert PlanCommand(20_000, 20, 0.1, 1e-6, json=True).run() == 0
    report = json.loads(capsys.readouterr().out)
    assert report["recommended"] == "universal"
    assert report["budget"] == {"epsilon": 0.1, "delta": 1e-6, "adjacency": "zero_out"}
    measured = {forecast["name"]: forecast["share"] is not None for forecast in report["forecasts"]}
    assert measured == {"universal": True, "fresh": False, "good": False}
    assert PlanCommand(20_000, 20, 0.1, 1e-6, all=True).run() == 0
    printed = " ".join(capsys.readouterr().out.split())
    for phrase in (*report["notes"], "measured"):
        assert phrase in printed


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 30.0])
def test_a_plan_is_at_most_six_lines_of_80_columns_and_warns_on_standard_error(model, epsilon, capsys):
    assert PlanCommand(30_000, 100, epsilon, 1e-6, model).run() == 0
    out, err = capsys.readouterr()
    assert 1 < len(out.splitlines()) <= 6
    assert max(map(len, out.splitlines())) <= 80
    assert default_protector(model) in out.splitlines()[0]
    assert all(line.startswith("warning: ") for line in err.splitlines())
    assert ("above 10" in err) is (epsilon > 10)


def test_the_shipped_forecast_is_sane_and_held_on_tables_that_it_was_not_made_from():
    curve = measured().curve
    assert measured().covered >= 0.8
    for line in (curve.signals, curve.low, curve.median, curve.high):
        assert list(line) == sorted(line)
    lines = zip(curve.low, curve.median, curve.high, strict=True)
    assert all(low <= median <= high <= 1.0 for low, median, high in lines)
    assert curve.low[0] < 0.0 < curve.low[-1]  # at the smallest budgets the constant may be better
    assert curve.uneven > 0.3


@pytest.mark.slow
def test_without_a_share_the_range_covers_even_and_uneven_classes():
    plans = [plan(3_000, 20, BUDGET, majority=majority).forecasts[0] for majority in (0.95, 0.75, 0.5, None)]
    uneven, middle, even, either = (forecast.share for forecast in plans)
    assert either == (uneven[0], middle[1], even[2])
    assert plans[3].least_epsilon == plans[0].least_epsilon
    assert plan(3_000, 20, BUDGET, "square").forecasts[0].share == even  # numbers have no commonest class


def test_shipped_protectors_are_planned_for(capsys):
    assert PlanCommand(30_000, 100, 0.1, 1e-6, json=True).run() == 0
    report = json.loads(capsys.readouterr().out)
    assert {forecast["name"] for forecast in report["forecasts"]} == LOGISTIC
    assert report["recommended"] in LOGISTIC
    assert report["forecasts"][0]["least_epsilon"] < 0.15
    assert {forecast["name"] for forecast in report["forecasts"] if forecast["in_range"]} == LOGISTIC
    # A protector that leaves a set out is for scores on that set; elsewhere it is worse than the full one.
    assert not any("-fold-" in name for name in LOGISTIC)


def test_what_only_studies_need_is_not_planned_with():
    planned = plan(8000, 10, BUDGET, "quadratic")
    assert ["quadratic"] in MODELS.values()
    assert [forecast.name for forecast in planned.forecasts] == ["noisygd"]


@pytest.mark.long
def test_the_shipped_forecast_is_what_the_committed_runs_give():
    runs = benchmark.measured()
    assert len({benchmark.set_of(cell) for cell in runs}) == measured().tables
    calibrated, shipped = benchmark.calibrated(runs), measured().curve
    assert (calibrated.many, calibrated.uneven) == pytest.approx((shipped.many, shipped.uneven), abs=0.02)
    for line in ("low", "median", "high"):
        assert getattr(calibrated, line) == pytest.approx(getattr(shipped, line), abs=0.02)
    for judged in benchmark.unseen(runs).values():
        for low, high in benchmark.BANDS:
            assert benchmark.covered(entry for entry in judged if low <= entry[0].signal < high)[0] >= benchmark.INSIDE


def test_a_calibration_finds_what_uneven_classes_cost_and_ranges_that_hold_eight_in_ten():
    """Made-up tables whose shares follow a curve exactly, but for a spread that is the same everywhere."""
    draws, runs = np.random.default_rng(0), []
    for number in range(40):
        majority = float(draws.choice([0.5, 0.9, 0.97]))
        cost = 1.2 * math.log(0.5 / (1 - majority))
        for signal in np.arange(1.0, 11.0, 1.0):
            shares = 1 / (1 + np.exp(-1.5 * (signal - cost - 4.0))) + draws.uniform(-0.1, 0.1, 8)
            table = benchmark.Table(1000, 10, 2, majority)
            runs.append(benchmark.Runs(f"made-up-{number}", "logistic", table, signal, shares))
    curve = benchmark.calibrated(runs[:200])
    assert curve.uneven == pytest.approx(1.2, abs=0.2)
    assert np.mean([benchmark.inside(curve, cell)[0].mean() for cell in runs[200:]]) == pytest.approx(0.8, abs=0.08)


def test_ranges_hold_on_eight_of_ten_unseen_tables_where_few_tables_were_measured():
    """Made-up tables that differ more than runs on one of them: each is as good as one draw."""
    draws, held = np.random.default_rng(0), []
    for _ in range(20):
        tables = [(f"made-up-{number}", draws.normal(0.0, 0.2)) for number in range(24)]
        runs = [
            benchmark.Runs(name, "square", benchmark.Table(1000, 10, None, None), signal, shares)
            for name, offset in tables
            for signal in (2.0, 4.0, 6.0)
            for shares in [(signal - 2.0) / 8.0 + offset + draws.normal(0.0, 0.02, 4)]
        ]
        curve = benchmark.calibrated(runs[: 3 * 12])
        held += [benchmark.inside(curve, cell)[0].mean() for cell in runs[3 * 12 :]]
    assert np.mean(held) >= 0.8
