"""`l2p plan`: forecasts from the cards, interpolated between bands, and bad input that gives one sentence."""

import itertools
import json
import math
import re

import jax
import numpy as np
import pytest

from l2p.checkpoints import checkpoint
from l2p.checkpoints.defaults import default_protector
from l2p.checkpoints.signal import epsilon_for, log_signal, rows_for
from l2p.commands.plan import Plan as Command
from l2p.errors import InputError
from l2p.models import NAMES, Logistic
from l2p.plan import RULE, as_deployed, at, crossing, plan
from l2p.privacy.budget import Budget
from l2p.privacy.filter import Filter
from l2p.privacy.rounded import rounded
from l2p.private_run import check
from l2p.public_facts import Setup
from meta_train.tasks.sources import parts_of
from meta_train.training.untrained import BUILDERS

BUDGET = Budget(0.1, 1e-6)
CARD = {"sources": ["adult"], "range": {"log_signal": [1.0, 9.0], "num_features": [8, 104]}}
MODELS = {card["name"]: card["models"] for card in checkpoint.available()}
#: Names in plans for logistic regression; and for all models with classes, whose accuracy a meta-test measures.
LOGISTIC = {name for name in checkpoint.first_floor() if "logistic" in MODELS[name]}
#: What was trained for several models has a meta-test for each, see below.
CLASSIFIERS = sorted(
    name for name, models in MODELS.items() if {"logistic", "svm", "mlp"} & set(models) and "square" not in models
)
#: Their proof requires so much regularisation that their support vector machines predict the majority on most tasks.
FLAT = ("outpert-tuned-svm-adult", "outpert-tuned-svm-ipums_br")
ACCOUNTANTS = ("gdp", "zcdp", "rdp", "ctcdp")


def meta_test(gain=0.1, shares=(0.1, 0.4, 0.8, 1.0, 1.0)):
    """A made-up meta-test whose gain rises by bands of width 2 from -1 to 9, up to `gain`."""
    gains = gain * np.linspace(0.0, 1.0, len(shares))
    bands = [
        {
            "log_signal": [2.0 * i - 1, 2.0 * i + 1],
            "accuracy": [0.6 + g / 2, 0.7 + g, 0.8 + g],
            "gain": [g / 2, g, 2 * g],
            "share_of_gap": [2 * g, 4 * g, 5 * g],
            "beat_trivial": share,
        }
        for i, (g, share) in enumerate(zip(gains.tolist(), shares, strict=True))
    ]
    return {"data": "adult", "tasks": 128, "train_rows": 2048, "least_gain": 0.02, "bands": bands}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The only folder of checkpoints, with a good one and the default, which is better."""
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path,))
    put(tmp_path, "good", meta_test=meta_test(0.1))
    put(tmp_path, "universal", meta_test=meta_test(0.2))
    return tmp_path


def put(folder, name, **card):
    checkpoint.save(BUILDERS["control"](jax.random.key(0)), folder / f"{name}.safetensors", CARD | card)


def forecasts(*args):
    return {one.name: one for one in plan(*args).forecasts}


def rows_at(signal, accountant="gdp", budget=BUDGET):
    """The number of rows at which log_signal is `signal`, rounded."""
    return round(math.exp(signal - log_signal(accountant, budget, 1)))


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_log_signal_is_the_one_that_a_run_sees(accountant, adjacency):
    budget = Budget(0.3, 1e-7, adjacency)
    setup = Setup.create(Logistic(), budget.adjacency, Filter(accountant, budget).price_list(), 12_345)
    assert log_signal(accountant, budget, 12_345) == pytest.approx(float(setup.log_signal), abs=1e-4)


def test_at_a_band_s_centre_the_forecast_is_what_the_card_says(folder):
    band = meta_test(0.2)["bands"][3]
    found = forecasts(rows_at(6.0), 20, BUDGET)["universal"]
    assert found.log_signal == pytest.approx(6.0, abs=1e-4)
    assert found.noise == pytest.approx(math.exp(-found.log_signal))
    assert found.accuracy == pytest.approx(band["accuracy"], abs=1e-4)
    assert found.gain == pytest.approx(band["gain"], abs=1e-4)
    assert found.beat_trivial == pytest.approx(1.0, abs=1e-4)


def test_where_a_control_runs_instead_the_forecast_is_of_the_control(folder):
    put(folder, "control-mine", models=["logistic"], meta_test=meta_test(0.1, (0.2, 0.2, 0.2, 0.95, 0.95)))
    gains = {"log_signal": [1.0, 5.0, 9.0], "mean": [0.1, -0.1], "standard_error": [0.01, 0.01]}
    made_from = {"config": {"warm_start": "control-mine"}, "models": ["logistic"], "held_out": {"gains": gains}}
    control = checkpoint.load("control-mine").arrays_sha256
    put(folder, "mine", meta_test=meta_test(0.3), warm_start_arrays_sha256=control, **made_from)
    for signal, size, beat in ((4.0, 0.3, 0.8), (6.0, 0.1, 0.95)):
        found = forecasts(rows_at(signal), 20, BUDGET)["mine"]
        assert found.beat_trivial == pytest.approx(beat, abs=1e-3)
        assert found.gain[1] == pytest.approx(size * (signal / 8.0), abs=1e-3)
        assert any("control-mine would run instead" in said for said in found.warnings) == (signal > 5.0)


def test_between_centres_it_is_linear_and_outside_all_bands_nothing_is_said():
    figures = meta_test(0.1)
    assert at(figures, 5.0, "gain") == pytest.approx([0.03125, 0.0625, 0.125])
    assert at(figures, 8.9, "gain") == at(figures, 8.0, "gain")  # the half of the last band beyond its centre
    assert at(figures, -1.01, "gain") is None
    assert at(figures, 9.01, "gain") is None


def test_more_rows_and_more_epsilon_are_never_worse(folder):
    by_rows = [forecasts(rows, 20, BUDGET)["good"] for rows in (100, 400, 3_000, 20_000, 90_000)]
    by_epsilon = [forecasts(20_000, 20, Budget(epsilon, 1e-6))["good"] for epsilon in (0.001, 0.01, 0.05, 0.1, 0.4)]
    for found in (by_rows, by_epsilon):
        assert all(a.log_signal < b.log_signal for a, b in itertools.pairwise(found))
        for name in ("accuracy", "gain"):
            values = np.array([getattr(one, name) for one in found])
            assert (np.diff(values, axis=0) >= 0).all()
            assert values[-1, 1] > values[0, 1]
    epsilons = np.array([one.least_epsilon for one in by_rows])
    assert (np.diff(epsilons) < 0).all()
    assert (np.diff([one.least_rows for one in by_epsilon]) < 0).all()


def test_the_smallest_epsilon_is_where_the_interpolated_rule_crosses(folder):
    figures = meta_test(0.1)
    assert crossing(figures) == pytest.approx(5.0)  # halfway between 0.8 at 4 and 1.0 at 6
    least = forecasts(20_000, 20, BUDGET)["good"].least_epsilon
    for epsilon, holds in ((least * 1.001, True), (least * 0.999, False)):
        found = forecasts(20_000, 20, Budget(epsilon, 1e-6))["good"]
        assert (found.beat_trivial >= RULE) == holds
        assert any("is too little" in said for said in plan(20_000, 20, Budget(epsilon, 1e-6)).warnings) != holds
    rows = forecasts(1_000, 20, BUDGET)["good"].least_rows
    assert [forecasts(n, 20, BUDGET)["good"].beat_trivial >= RULE for n in (rows, rows - 1)] == [True, False]


def test_the_rule_must_hold_from_there_on():
    assert crossing(meta_test(shares=(0.1, 0.95, 0.8, 1.0, 1.0))) == pytest.approx(5.0)
    assert crossing(meta_test(shares=(0.1, 0.95, 0.95, 0.95, 0.8))) is None
    assert crossing(meta_test(shares=(0.9, 1.0, 1.0, 1.0, 1.0))) == 0.0  # the lowest centre; below, nothing is known


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
        found = plan(20_000, 20, BUDGET, model, classes)
    except InputError as error:
        assert "tells 2 classes apart, not 7" in str(error) or "have no classes" in str(error)  # noqa: PT017
        return
    assert found.recommended == default_protector(model) == found.forecasts[0].name
    named = f"{model}:{classes or 3}" if model == "softmax" else model
    assert check(found.recommended, BUDGET, named, None, 20_000).name == found.recommended
    assert not any("-no-" in one.name for one in found.forecasts)


def test_too_little_signal_is_warned_of_with_what_would_help(folder):
    found = plan(rows_at(0.5), 20, BUDGET)
    outside, little = found.warnings
    assert "is below the protector's range: at least epsilon" in outside
    first = found.forecasts[0]
    assert f"it takes epsilon {rounded(first.least_epsilon, up=True)}, or {first.least_rows:,} rows" in little
    helped = Budget(float(rounded(first.least_epsilon, up=True)), 1e-6)
    assert plan(rows_at(0.5), 20, helped).warnings == tuple(helped.warnings())
    assert plan(first.least_rows, 20, BUDGET).warnings == ()
    assert any("chance in the table" in note for note in found.notes)


def test_more_signal_than_was_measured_says_what_is_enough(folder):
    found = plan(300_000, 20, Budget(2.0, 1e-6))
    assert all("is above the protector's range: at most" in one.warnings[0] for one in found.forecasts)
    assert all(one.gain is None for one in found.forecasts)
    enough = float(rounded(found.forecasts[0].most_epsilon, up=False))
    assert f"at most epsilon {enough:g} on so many rows" in found.warnings[0]
    assert plan(300_000, 20, Budget(enough, 1e-6)).warnings == ()


def test_rows_in_a_warning_are_where_the_range_ends(folder):
    (said,) = plan(300_000, 20, Budget(2.0, 1e-6)).forecasts[0].warnings
    rows = int(re.search(r"or ([\d,]+) rows", said)[1].replace(",", ""))
    assert plan(rows, 20, Budget(2.0, 1e-6)).forecasts[0].warnings == ()
    assert plan(rows + 2, 20, Budget(2.0, 1e-6)).forecasts[0].warnings != ()


def test_a_large_epsilon_is_warned_of_and_one_of_ten_is_not(folder):
    for epsilon, warned in ((10.0, False), (10.1, True), (1000.0, True)):
        assert any("is above 10, which" in said for said in plan(50, 20, Budget(epsilon, 1e-6)).warnings) is warned


@pytest.mark.parametrize("features", [7, 105])
def test_features_outside_the_trained_range_are_warned_of(folder, features):
    found = plan(rows_at(7.0), features, BUDGET)
    wanted = f"{features} features are outside the protector's range, 8 to 104"
    assert all(wanted in one.warnings[0] for one in found.forecasts)
    assert wanted in found.warnings[0]
    assert all(not one.in_range and one.gain is not None for one in found.forecasts)


def test_where_its_control_would_run_a_plan_says_so(folder):
    put(folder, "control-good", range={"num_features": [2, 200]})
    control = {"config": {"warm_start": "control-good"}, "range": {"num_features": [8, 104]}}
    control["warm_start_arrays_sha256"] = checkpoint.load("control-good").arrays_sha256
    put(folder, "networks", **control)

    def said(features):
        (found,) = [one for one in plan(20_000, features, BUDGET).forecasts if one.name == "networks"]
        return any("control-good would run instead" in warning for warning in found.warnings)

    assert not said(20)
    assert said(120)


def test_without_a_meta_test_nothing_is_promised(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path,))
    put(tmp_path, "universal")
    found = plan(20_000, 20, BUDGET)
    assert (found.notes, found.warnings) == ((), ())
    assert (found.forecasts[0].accuracy, found.forecasts[0].least_epsilon) == (None, None)


def test_protectors_for_other_models_are_left_out(folder):
    put(folder, "other", models=["mlp"], meta_test=meta_test())
    assert {one.name for one in plan(20_000, 20, BUDGET).forecasts} == {"good", "universal"}


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
        Command(**options).run()
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_the_command_prints_json_and_a_table(folder, capsys):
    put(folder, "fresh")
    assert Command(20_000, 20, 0.1, 1e-6, json=True).run() == 0
    found = json.loads(capsys.readouterr().out)
    assert found["recommended"] == "universal"
    assert found["budget"] == {"epsilon": 0.1, "delta": 1e-6, "adjacency": "zero_out"}
    measured = {one["name"]: one["gain"] is not None for one in found["forecasts"]}
    assert measured == {"universal": True, "fresh": False, "good": True}
    assert Command(20_000, 20, 0.1, 1e-6, all=True).run() == 0
    printed = " ".join(capsys.readouterr().out.split())
    for said in (*found["notes"], "measured"):
        assert said in printed


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 30.0])
def test_a_plan_is_at_most_six_lines_of_80_columns_and_warns_on_standard_error(model, epsilon, capsys):
    assert Command(30_000, 100, epsilon, 1e-6, model).run() == 0
    out, err = capsys.readouterr()
    assert 1 < len(out.splitlines()) <= 6
    assert max(map(len, out.splitlines())) <= 80
    assert default_protector(model) in out.splitlines()[0]
    assert all(line.startswith("warning: ") for line in err.splitlines())
    assert ("above 10" in err) is (epsilon > 10)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_shipped_meta_tests_are_sane(name):
    figures = checkpoint.load(name).card["meta_test"]
    low, high = checkpoint.load(name).card["range"]["log_signal"]
    bands = figures["bands"]
    assert sorted(parts_of(figures["data"])) == checkpoint.load(name).card["sources"]
    assert figures["tasks"] >= 32
    assert bands[1]["log_signal"][0] == low
    assert bands[-1]["log_signal"][1] == high
    assert all(a["log_signal"][1] == b["log_signal"][0] for a, b in itertools.pairwise(bands))
    for band in bands:
        assert 0.0 <= band["accuracy"][0] <= band["accuracy"][1] <= band["accuracy"][2] <= 1.0
        assert band["gain"] == sorted(band["gain"])
        assert 0.0 <= band["beat_trivial"] <= 1.0
    # The same tasks in every band: only the noise differs, by less than a point in the median. With as many columns
    # as rows it also regularises, so that less of it can cost accuracy.
    slack = 0.01 if checkpoint.load(name).card["range"]["num_features"][1] <= 104 else 0.04
    assert (np.diff([band["gain"][1] for band in bands]) > -slack).all()
    # Below the trained range nothing can be gained, except from public knowledge about the rows.
    knows = checkpoint.load(name).card["config"].get("directions") is not None
    assert bands[0]["gain"][1] < (0.06 if knows else 0.005)
    assert bands[0]["beat_trivial"] < (0.8 if knows else 0.6)  # half of 32 tasks by chance,
    if name in FLAT:
        return
    assert bands[-1]["share_of_gap"][1] > 0.85  # and at its end almost all there is.
    safe = crossing(figures)
    # A protector behind the majority class on some tasks at the largest budgets is never recommended.
    assert (safe is None and bands[-1]["beat_trivial"] > 0.8) or 1.0 < safe < high


@pytest.mark.parametrize("model", ["logistic", "svm", "hinge", "square", "softmax", "mlp"])
def test_universal_has_a_meta_test_for_every_model_of_classes(model):
    card = checkpoint.load("universal").card
    figures = as_deployed(card, model)
    bands, (low, high) = figures["bands"], card["range"]["log_signal"]
    assert (bands[1]["log_signal"][0], bands[-1]["log_signal"][1]) == (low, high)
    assert set(parts_of(card["meta_tests"][model]["data"].replace(", ", "+"))) <= set(card["sources"])
    # Those of an mlp are tasks of 2,048 rows for 1,321 weights, which it overfits at the largest budgets.
    assert bands[-1]["share_of_gap"][1] > (0.7 if model == "mlp" else 0.85)
    assert bands[1]["gain"][1] < 0.02
    assert 0.0 < crossing(figures) < 8.0


def test_shipped_protectors_are_planned_for(capsys):
    assert Command(30_000, 100, 0.1, 1e-6, json=True).run() == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in found["forecasts"]} == LOGISTIC
    assert found["recommended"] in LOGISTIC
    least = {one["name"]: one["least_epsilon"] for one in found["forecasts"]}
    assert max(least.values()) < 0.15
    assert {one["name"] for one in found["forecasts"] if one["in_range"]} == LOGISTIC
    # A protector that leaves a set out is for scores on that set; elsewhere it is worse than the full one.
    assert not any("-no-" in name for name in LOGISTIC)


def test_what_only_studies_need_is_not_planned_with():
    found = plan(8000, 10, BUDGET, "quadratic")
    assert ["quadratic"] in MODELS.values()
    assert [one.name for one in found.forecasts] == ["noisygd"]
