"""METHOD:private, compared and released: what a run may spend, which runs are drawn, which is kept, and refusals."""

import dataclasses
import math
import re
from types import SimpleNamespace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.compare import private_choice as module
from l2p.compare import results, standings
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import load_rows
from l2p.compare.methods import find_method
from l2p.compare.private_choice import SelectionPlan, choose, draws
from l2p.compare.runner import compare
from l2p.models import MODELS
from l2p.privacy import Adjacency
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.selection import base_rho, total_epsilon
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.hand_designed import log_constant
from l2p.protectors.stepwise.projectors import Optax
from l2p.release.tuning.private_tuning import LAW, SCORE_SHARE, Score
from l2p.run.run import run
from l2p.run.simulate import simulate, split

MODEL, NUM_ROWS = MODELS["logistic"], 456
BUDGET = Budget(2.0, 1e-5)
NOISYGD = HAND_DESIGNED["noisygd"](BUDGET)
START = np.zeros(31, np.float32)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return load_rows(CompareConfig("breast_cancer", tmp_path_factory.mktemp("unused")))


@pytest.fixture
def config(tmp_path):
    methods = ("noisygd", "noisygd:private")
    return CompareConfig("breast_cancer", tmp_path, methods=methods, epsilon=(0.5, 2.0), delta=1e-5, seeds=2)


def plan(budget=BUDGET):
    return SelectionPlan.make(NOISYGD, "gdp", budget, MODEL, NUM_ROWS)


def drawing(monkeypatch, *candidates):
    """Replaces the random number of runs by one run of each of these candidates, with different keys."""

    def some(seed, budget, num_candidates):
        return [(index, jax.random.key(100 + i), jax.random.key(200 + i)) for i, index in enumerate(candidates)]

    monkeypatch.setattr(module, "draws", some)


@pytest.mark.long
def test_a_cell_certifies_all_of_its_runs_within_its_budget_competes_and_resumes(config, monkeypatch):
    rows = compare(config)
    chosen = [row for row in rows if row["method"] == "noisygd:private"]
    for row in chosen:
        rho = base_rho(LAW, row["epsilon"], row["delta"])
        assert 0.999 * row["epsilon"] < row["epsilon_certified"] < row["epsilon"]
        assert row["epsilon_certified"] == pytest.approx(total_epsilon(LAW, rho, row["delta"]), rel=1e-6)
        assert (row["accountant"], row["steps"]) == ("gdp", 50)
        assert f"The best of 10 runs on average, each with one of 12 settings and {rho:.3g}-zCDP" in row["note"]
        assert row["test_accuracy"] > 0.5
    assert set(standings.kinds(rows, "zero_out").values()) == {"private"}
    # A cell does not depend on the other cells of the comparison.
    alone = compare(dataclasses.replace(config, out=config.out / "alone", methods=config.methods[1:], epsilon=(2.0,)))
    assert [row["test_loss"] for row in alone] == pytest.approx([row["test_loss"] for row in chosen[2:]], rel=1e-3)
    monkeypatch.setattr(module, "choose", None)
    assert compare(config) == rows


@pytest.mark.long
def test_every_run_and_its_score_keep_to_their_shares(rows):
    selection = plan()
    chosen = choose([selection], rows, [0, 3], START)
    rho = base_rho(LAW, BUDGET.epsilon, BUDGET.delta)
    traces = [trace for (cell,) in chosen.traces for trace in cell]
    assert [len(cell) for (cell,) in chosen.traces] == [len(draws(seed, BUDGET, 12)) for seed in (0, 3)]
    price = Filter("gdp", BUDGET)
    for training, scoring in traces:
        # mu^2 / 2 of Gaussian queries is their rho.
        spent = price.spent(training) / 2, price.spent(scoring) / 2
        np.testing.assert_allclose(spent, [(1 - SCORE_SHARE) * rho, SCORE_SHARE * rho], rtol=1e-4)
        assert sum(spent) <= selection.rho <= rho * (1 + 1e-12)
    assert selection.certify(traces) == total_epsilon(LAW, selection.rho, BUDGET.delta) <= BUDGET.epsilon
    training, scoring = traces[0]
    for dear in ((training * 2, scoring), (training, scoring * 2)):
        with pytest.raises(RuntimeError, match="withhold the result"):
            selection.certify([*traces[1:], dear])
    with pytest.raises(RuntimeError, match="does not hold"):
        dataclasses.replace(selection, scoring=selection.training).certify([])


@pytest.mark.slow(cases=["noisygd-zero_out", "noisygd-add_remove", "noisygd:tuned-zero_out"])
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("name", ["noisygd", "agd", "noisygd:tuned"])
def test_caps_come_to_no_more_than_the_budget_whatever_their_unit(name, adjacency):
    budget = Budget(0.7, 1e-6, adjacency)
    method = find_method(f"{name}:private", [budget], MODEL, NUM_ROWS, accountant="rdp")
    assert method.accountant == ("zcdp" if name == "agd" else "gdp")
    selection = SelectionPlan.make(method.protectors[budget], method.accountant, budget, MODEL, NUM_ROWS)
    rho = base_rho(LAW, budget.epsilon, budget.delta)
    assert (1 - 1e-6) * rho < selection.rho <= rho
    assert selection.certify([]) <= budget.epsilon
    plain = find_method(name, [budget], MODEL, NUM_ROWS)
    assert (method.sha256, method.range) == (plain.sha256, plain.range)
    # Half of all fields stay unchanged; with so few fields, all may.
    assert len({str(jax.tree.leaves(candidate)) for candidate in selection.candidates}) >= 11


@pytest.mark.slow
def test_the_number_of_runs_follows_its_law_and_candidates_are_drawn_evenly():
    runs_by_seed = [draws(seed, BUDGET, 4) for seed in range(400)]
    counts = np.array([len(runs) for runs in runs_by_seed])
    ends = [1, 3, 8, 25, 2000]
    chances = np.diff([0.0, *np.cumsum(np.exp(LAW.log_pmf(np.arange(1, 2001))))[np.array(ends) - 1]])
    counted = np.diff([0, *(np.sum(counts <= end) for end in ends)])
    expected = 400 * chances
    assert chances.sum() == pytest.approx(1.0)
    assert np.sum((counted - expected) ** 2 / expected) < 28.5  # chi squared of 4 degrees: 1 in 100,000
    chosen = np.bincount([candidate for runs in runs_by_seed for candidate, *_ in runs])
    assert chosen / chosen.sum() == pytest.approx([0.25] * 4, abs=5 * math.sqrt(0.1875 / chosen.sum()))


def test_draws_are_frozen():
    # As computed with NumPy 2.4 and JAX 0.10.
    cells = [[candidate for candidate, *_ in draws(seed, Budget(0.2, 1e-8), 12)] for seed in range(6)]
    assert [len(cell) for cell in cells] == [2, 5, 7, 3, 1, 1]
    assert [cell[:3] for cell in cells] == [[4, 1], [1, 1, 0], [6, 8, 10], [5, 5, 11], [8], [7]]
    key = draws(0, Budget(0.2, 1e-8), 12)[0][1]
    assert jax.random.key_data(key).tolist() == [2888309374, 174964788]


def test_no_two_runs_share_a_key():
    cells = [draws(seed, dataclasses.replace(BUDGET, epsilon=epsilon), 12) for seed in range(8) for epsilon in (1, 2)]
    keys = [np.asarray(jax.random.key_data(key)).tobytes() for cell in cells for _, *both in cell for key in both]
    assert len(keys) > 100
    assert len(set(keys)) == len(keys)
    assert len({len(cell) for cell in cells}) > 4


@pytest.mark.slow
def test_runs_have_independent_noise(rows, monkeypatch):
    # All rows are null, so that only noise moves the params.
    nothing = dataclasses.replace(rows, mask=0 * rows.mask)
    drawing(monkeypatch, *[0] * 40)
    selection = plan()
    (runs,) = module._of_seed([selection], nothing, 0, START)
    correlations = np.corrcoef([run.params for run in runs])[np.triu_indices(40, 1)]
    assert np.abs(correlations).max() < 0.9
    assert abs(correlations.mean()) < 0.04
    scores = np.array([run.score for run in runs])
    sigma = 1 / math.sqrt(2 * SCORE_SHARE * base_rho(LAW, BUDGET.epsilon, BUDGET.delta)) / NUM_ROWS
    assert abs(scores.mean()) < 5 * sigma / math.sqrt(40)
    assert scores.std(ddof=1) == pytest.approx(sigma, rel=5 / math.sqrt(78))
    # With a seed's own key, all runs would have the same.
    shared = simulate([NOISYGD] * module.BLOCK, [selection.setups[0]] * module.BLOCK, nothing, [0])
    assert np.corrcoef(shared.params[0]).min() > 0.999


@pytest.mark.slow
def test_runs_are_those_of_the_library_one_by_one_and_the_best_score_is_kept(rows, monkeypatch):
    order = [3, 0, 7]
    drawing(monkeypatch, *order)
    selection = plan()
    chosen = choose([selection], rows, [1], START)
    private = jax.tree.map(jnp.asarray, split(rows, 1).private)
    params, scores = [], []
    for i, candidate in enumerate(order):
        trained = run(selection.candidates[candidate], START, private, selection.setups[0], jax.random.key(100 + i))
        score = run(Score(), trained[0], private, selection.setups[1], jax.random.key(200 + i))[0]
        params.append(trained[0])
        scores.append(float(score[0]))
    np.testing.assert_allclose(chosen.params[0, 0], params[int(np.argmax(scores))], rtol=1e-3, atol=1e-4)
    assert chosen.steps.tolist() == [[50]]


@pytest.mark.slow
def test_with_next_to_no_noise_the_best_candidate_is_kept(rows, monkeypatch):
    rates = (1e-9, 0.5, 1e-5)
    drawing(monkeypatch, 0, 1, 2)
    ample = plan(Budget(3000.0, 1e-5))
    candidates = tuple(
        NOISYGD.replace(
            projector=Optax("sgd", NOISYGD.projector.hyperparameters | {"learning_rate": log_constant(rate)})
        )
        for rate in rates
    )
    chosen = choose([dataclasses.replace(ample, candidates=candidates)], rows, range(3), START)
    (runs,) = module._of_seed([dataclasses.replace(ample, candidates=candidates)], rows, 0, START)
    private = split(rows, 0).private
    right = [np.mean(np.asarray(MODEL.classify(run.params, private.x)) == private.y) for run in runs]
    assert [run.score for run in runs] == pytest.approx(right, abs=2e-3)
    assert right[1] > max(right[0], right[2]) + 0.01
    assert np.array_equal(chosen.params[0, 0], runs[1].params)
    assert np.abs(chosen.params[:, 0]).max(axis=1).min() > 0.1  # also at the other seeds: the others hardly move


@pytest.mark.slow
def test_without_a_run_the_start_is_released(rows, monkeypatch):
    monkeypatch.setattr(
        module,
        "draws",
        lambda seed, budget, _: [(0, jax.random.key(1), jax.random.key(2))] if budget.epsilon > 1 else [],
    )
    start = np.linspace(0, 1, 31, dtype=np.float32)
    small = plan(Budget(0.5, 1e-5))
    chosen = choose([small, plan()], rows, [0], start)
    assert np.array_equal(chosen.params[0, 0], start)
    assert not np.allclose(chosen.params[0, 1], start)
    assert chosen.steps.tolist() == [[0, 50]]
    assert chosen.traces[0][0] == []
    assert small.certify([]) == small.certify(chosen.traces[0][1][:0]) <= 0.5


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("dpsgd:private", "candidate dpsgd reads its rows by Poisson sampling .* one order only"),
        ("sgd_ma:private", "one order only"),
        ("objpert:private", "cannot price"),
        ("objpert_paper:private", "is its paper's method, calibrated by accountant 'basic'"),
    ],
)
def test_what_no_theorem_covers_gives_empty_cells_that_say_so(config, method, words):
    (row,) = compare(dataclasses.replace(config, methods=(method,), epsilon=(2.0,), seeds=1))
    assert not results.is_scored(row)
    assert row["epsilon_certified"] is None
    assert re.search(words, row["note"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": ("noisygd:private:oracle",)}, "asks for settings that are both charged and not charged"),
        ({"methods": ("noisygd:oracle:private",)}, "choose noisygd:private, which is private"),
        ({"methods": ("nonprivate:private",)}, "nothing for :private to change"),
        ({"methods": ("nosuch:private",)}, "'nosuch' is unknown"),
        ({"methods": ("noisygd:private",), "data": "california", "model": "square"}, "a regression has no labels"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(config, changes, words, monkeypatch, rows):
    if "data" in changes:
        monkeypatch.setattr("l2p.compare.runner.load_rows", lambda _: rows)  # its file may be missing
    with pytest.raises(InputError, match=words):
        compare(dataclasses.replace(config, **changes))
    assert list(config.out.iterdir()) == []


# ------------------------------------------------------------------------------------------------------------ releases
@pytest.mark.slow(cases=["universal:private"])
@pytest.mark.parametrize(
    "name",
    [
        "noisygd:private",
        "agd:private",
        "noisygd:tuned:private",
        "universal:private",
    ],
)
def test_a_release_chooses_among_what_a_comparison_simulates(rows, monkeypatch, name):
    arguments, rows = {}, jax.tree.map(lambda leaf: leaf[:NUM_ROWS], rows)

    def tuning(data, candidates, budget, **options):
        arguments.update(options, data=data, candidates=candidates, budget=budget)
        return SimpleNamespace(result="the best run")

    monkeypatch.setattr(module, "private_tuning", tuning)
    named = module.admit_choice(name, BUDGET, MODEL)
    released = module.release(rows, named, BUDGET, model=MODEL, ledger="a ledger", num_rows=NUM_ROWS)
    assert released == "the best run"
    method = find_method(name, [BUDGET], MODEL, NUM_ROWS)
    expected = SelectionPlan.make(method.protectors[BUDGET], method.accountant, BUDGET, MODEL, NUM_ROWS).candidates
    assert len(arguments["candidates"]) == len(expected) == 12
    for candidate, protector in zip(arguments["candidates"], expected, strict=True):
        chex.assert_trees_all_equal(candidate.protector, protector)
        assert (candidate.name, candidate.sha256, candidate.range, candidate.control) == (
            name,
            method.sha256,
            method.range,
            None,
        )
    assert (arguments["repetitions"], arguments["score_share"], arguments["ledger"]) == (LAW, SCORE_SHARE, "a ledger")
    assert (arguments["data"], arguments["budget"], arguments["key"]) == (rows, BUDGET, None)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("dpsgd:private", {}, "candidate dpsgd reads its rows by Poisson sampling .* one order only"),
        ("objpert:private", {}, "cannot price"),
        ("nosuch:private", {}, "'nosuch' is unknown"),
        ("noisygd:private", {"accountant": "rdp"}, "holds its runs by the one that choosing among them needs"),
    ],
)
def test_a_release_that_no_theorem_covers_is_refused(name, options, words):
    with pytest.raises(InputError, match=words):
        module.admit_choice(name, BUDGET, MODEL, **options)
