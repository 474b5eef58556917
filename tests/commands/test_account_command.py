"""`l2p account`: cards are priced again, plans are made, and wrong combinations give one sentence."""

import json

import pytest

from l2p.commands.cli import main
from l2p.privacy.budget import Budget
from l2p.privacy.cap.envelope import EnvelopeFilter
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cap.planning import equal_steps, noise_multiplier
from l2p.privacy.card.card import Card
from l2p.privacy.card.events import encode_events
from l2p.privacy.card.learned import SIGNAL
from l2p.privacy.cost.sampling import FixedSize, FullBatch, PermutationEpochs, Poisson
from l2p.privacy.events import Adjacency

ZERO_OUT, REPLACE_ONE = Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE
ROWS = 30400


def card_of(filter, answered, adaptive=False, **changes):
    """A card of a run that ended after these queries."""
    envelope = encode_events(filter.envelope) if isinstance(filter, EnvelopeFilter) else None
    low, high = (min(q.noise_multiplier for q in answered), max(q.noise_multiplier for q in answered))
    kind = {"query": "gradient", "mechanism": "gaussian", "count": len(answered)}
    facts = {
        "epsilon": filter.budget.epsilon,
        "delta": filter.budget.delta,
        "epsilon_certified": filter.certify(answered, adaptive),
        "adjacency": filter.budget.adjacency.value,
        "unit": {"name": "row", "max_rows": 1, "how": "every row counts"},
        "num_rows": ROWS,
        "num_features": 3,
        "model": "logistic",
        "private_release": True,
        "accountant": filter.name,
        "order": filter.order if filter.order < 1e300 else None,
        "theorem": filter.theorem,
        "adaptive_noise": adaptive,
        "sampler": filter.sampler.to_json(),
        "mechanisms": [{**kind, "clip_norm": [1.0, 1.0], "noise_multiplier": [low, high]}],
        "events": encode_events(answered),
        "envelope": envelope,
        "steps": len(answered),
        "max_steps": filter.num_steps,
        "stop_reason": "max_steps",
        "randomness": "operating system",
        "seed_policy": "no seed: operating system",
        "float_mode": "float64",
        "not_private": [],
        "protector": {"name": "mine", "sha256": None, "sources": None, "range": None},
        "learned": SIGNAL,
        "warnings": [],
        "versions": {},
        "created": "2025-01-01T00:00:00+00:00",
    }
    return Card(**(facts | changes))


SAMPLERS = {
    "full batch": ("gdp", FullBatch(), ZERO_OUT),
    "full batch, Renyi": ("rdp", FullBatch(), ZERO_OUT),
    "Poisson": ("rdp", Poisson(1000 / ROWS), ZERO_OUT),
    "Poisson, ctCDP": ("ctcdp", Poisson(1000 / ROWS), ZERO_OUT),
    "fixed size": ("rdp", FixedSize(1000, ROWS), REPLACE_ONE),
    "fixed size as published": ("paper_13", FixedSize(1000, ROWS), REPLACE_ONE),
    "epochs": ("gdp", PermutationEpochs(1000, ROWS), ZERO_OUT),
    "epochs, Renyi": ("rdp", PermutationEpochs(1000, ROWS), REPLACE_ONE),
}


def run_of(name, epsilon=0.4, steps=60):
    """A filter, and 60 steps that use up almost all of its cap."""
    accountant, sampler, adjacency = SAMPLERS[name]
    budget = Budget(epsilon, 1e-8, adjacency)
    noise = noise_multiplier(budget, sampler, steps, accountant)
    return Filter(accountant, budget, sampler, steps), equal_steps(steps, noise)


@pytest.fixture
def account(tmp_path, capsys):
    """Runs the command, writing a card among the arguments to a file first; returns the exit code and the output."""

    def run(*words):
        written = []
        for word in words:
            if isinstance(word, Card):
                (tmp_path / "card.json").write_text(word.to_json())
                word = str(tmp_path / "card.json")
            written.append(word)
        code = main(["account", *written])
        out, err = capsys.readouterr()
        return code, out + err

    return run


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_card_holds_and_an_independent_library_agrees(account, name, adaptive):
    filter, answered = run_of(name)
    card = card_of(filter, answered, adaptive)
    code, out = account("--card", card, "--verify", "--json")
    report = json.loads(out)
    assert (code, report["holds"]) == (0, True)
    assert report["certified"] <= 0.4
    independent = report["independent"]
    if independent["error"] is None:
        assert name.startswith("fixed size")
        assert "only bounds" in account("--card", card, "--verify")[1]
    else:
        assert 0.3 < independent["epsilon"] <= 0.4 * (1 + independent["error"])


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_card_whose_events_cost_more_does_not_hold(account, name):
    filter, answered = run_of(name)
    card = card_of(filter, answered)
    less = [query.replace(noise_multiplier=query.noise_multiplier / 1.1) for query in answered]
    for changed in (
        card_of(filter, answered, events=encode_events(less)),
        card_of(filter, answered, epsilon=0.36, epsilon_certified=0.36),
        card_of(filter, answered, epsilon_certified=card.epsilon_certified / 2),
    ):
        code, out = account("--card", changed)
        assert code == 1
        assert "DOES NOT HOLD" in out


def test_an_envelope_is_checked_against_its_events_and_its_target(account):
    sampler, budget = Poisson(1000 / ROWS), Budget(0.1, 1e-8)
    answered = equal_steps(50, 12.0)
    filter = EnvelopeFilter("pld", budget, sampler, 50, tuple(answered))
    card = card_of(filter, answered)
    assert account("--card", card, "--verify")[0] == 0
    less = encode_events(equal_steps(50, 11.9))
    assert account("--card", card_of(filter, answered, events=less))[0] == 1
    code, out = account("--card", card_of(filter, answered, epsilon=0.09, epsilon_certified=0.09))
    assert code == 1
    assert "DOES NOT HOLD" in out


FIXED_SCHEDULES = {
    "SGD-MA": ("moments", Poisson(165 / ROWS), Budget(0.8, 1e-8, Adjacency.ADD_REMOVE)),
    "SGD-Adv": ("strong_composition", FixedSize(165, ROWS), Budget(0.2, 1e-8, REPLACE_ONE)),
    "strong composition, Poisson": ("strong_composition", Poisson(165 / ROWS), Budget(0.2, 1e-8)),
    "moments, full batch": ("moments", FullBatch(), Budget(0.8, 1e-8)),
}


@pytest.mark.parametrize("name", FIXED_SCHEDULES)
def test_a_papers_card_holds_and_an_independent_library_finds_less(account, name):
    accountant, sampler, budget = FIXED_SCHEDULES[name]
    noise = noise_multiplier(budget, sampler, 30, accountant)
    answered = equal_steps(30, noise * (1 + 1e-6))
    filter = EnvelopeFilter(accountant, budget, sampler, 30, tuple(equal_steps(30, noise)))
    code, out = account("--card", card_of(filter, answered), "--verify", "--json")
    report = json.loads(out)
    assert (code, report["holds"]) == (0, True)
    assert 0.999 * budget.epsilon < report["certified"] <= budget.epsilon
    assert report["independent"]["epsilon"] < budget.epsilon
    less = encode_events(equal_steps(30, noise * 0.99))
    assert account("--card", card_of(filter, answered, events=less))[0] == 1


def test_small_budgets_are_verified_too(account):
    # The order is in the thousands, where dp-accounting has only integer orders.
    filter, answered = run_of("Poisson", epsilon=0.01)
    assert account("--card", card_of(filter, answered, True), "--verify")[0] == 0


def test_the_table_marks_what_is_no_guarantee_for_adaptive_noise(account):
    filter, answered = run_of("Poisson")
    code, out = account("--card", card_of(filter, answered, adaptive=True), "--table")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert "*" in lines["pld"]
    assert "*" not in lines["rdp_planned"]
    assert "no theorem" in lines["gdp"]
    assert "this run's noise did" in out


@pytest.mark.long
def test_noise_steps_and_epsilon_are_planned(account):
    target, rate = ("--epsilon", ".1", "--delta", "1e-8"), ("--sampling-rate", str(1000 / ROWS))
    code, out = account(*target, "--steps", "50", *rate, "--accountant", "rdp", "--json")
    planned = json.loads(out)
    assert (code, planned["what"]) == (0, "noise_multiplier")
    noise = planned["accountants"][0]["value"]
    assert noise == pytest.approx(11.75, abs=0.01)
    code, out = account(*target, "--noise-multiplier", str(noise), *rate, "--accountant", "rdp", "--json")
    assert json.loads(out)["accountants"][0]["value"] == 50
    code, out = account("--delta", "1e-8", "--steps", "50", "--noise-multiplier", str(noise), *rate, "--json")
    by_name = {line["accountant"]: line["value"] for line in json.loads(out)["accountants"]}
    assert by_name["gdp"] is None
    assert by_name["pld"] < by_name["rdp_all_orders"] <= 0.1 + 1e-6 < by_name["ctcdp"]


def test_a_plan_names_every_accountant_and_why_some_have_no_answer(account):
    sizes = ("--batch-size", "1000", "--rows", str(ROWS), "--adjacency", "replace_one")
    code, out = account("--epsilon", "1", "--delta", "1e-8", "--steps", "50", *sizes)
    assert code == 0
    for name in ("gdp", "zcdp", "rdp", "ctcdp", "paper_13", "pld", "moments", "strong_composition", "rdp_all_orders"):
        assert any(line.startswith(name) for line in out.splitlines())
    assert "no theorem" in out


TARGET = ["--epsilon", ".1", "--delta", "1e-8"]
WRONG = {
    "nothing": ([], "--card"),
    "too little": (["--delta", "1e-8", "--steps", "5"], "--noise-multiplier"),
    "no delta": (["--epsilon", "1", "--steps", "5"], "--delta"),
    "too much": ([*TARGET, "--steps", "5", "--noise-multiplier", "9"], "find the third"),
    "a card and a plan": (["--card", "card.json", "--steps", "5"], "--steps"),
    "verify without a card": (["--verify", *TARGET, "--steps", "5"], "--card"),
    "two samplers": ([*TARGET, "--steps", "5", "--sampling-rate", ".1", "--batch-size", "5"], "pass one"),
    "batches of an unknown table": ([*TARGET, "--steps", "5", "--batch-size", "5"], "--rows"),
    "fixed size under zero_out": ([*TARGET, "--steps", "5", "--batch-size", "5", "--rows", "50"], "adjacency"),
    "unknown accountant": ([*TARGET, "--steps", "5", "--accountant", "magic"], "unknown"),
    "no theorem": ([*TARGET, "--steps", "5", "--sampling-rate", ".1", "--accountant", "gdp"], "no theorem"),
    "impossible rate": ([*TARGET, "--steps", "5", "--sampling-rate", "2"], "probability"),
    "impossible delta": (["--epsilon", "1", "--delta", "2", "--steps", "5"], "delta is 2.0"),
    "no steps": ([*TARGET, "--steps", "0"], "at least one step"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_combination_costs_one_sentence(account, case):
    words, phrase = WRONG[case]
    code, out = account(*words)
    assert code == 2
    assert phrase in out
    assert out.count("\n") == 1


def test_what_dp_accounting_cannot_price_is_said(account):
    sampler, budget = Poisson(1000 / ROWS), Budget(0.4, 1e-8, REPLACE_ONE)
    card = card_of(Filter("rdp", budget, sampler, 20), equal_steps(20, 20.0))
    code, out = account("--card", card, "--verify")
    assert code == 2
    assert "replace_one" in out
