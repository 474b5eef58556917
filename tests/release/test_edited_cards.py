"""`l2p account --verify` on cards that were edited: each is refused for what was edited."""

import dataclasses

import pytest

from l2p.checkpoints import checkpoint
from l2p.privacy.accountants import find
from l2p.privacy.card import learned
from l2p.privacy.card.card import SEED_POLICY, Card
from l2p.privacy.cost.sampling import Poisson
from l2p.privacy.sensitivity.engine_run import EngineRun
from tests.release.stored_cards import both, card, louder, part, set_


def poisson(fields, rate=0.05):
    fields["sampler"] = Poisson(rate).to_json()


def renamed(fields, old, new):
    """A card with one mechanism renamed."""
    for span in fields["events"]:
        span["queries"] = [[new if mechanism == old else mechanism, noise] for mechanism, noise in span["queries"]]
    for kind in fields["mechanisms"]:
        kind["mechanism"] = new if kind["mechanism"] == old else kind["mechanism"]


def without_steps(fields, dropped):
    """A card without the queries of some steps."""
    spans = [
        (step, span["queries"]) for span in fields["events"] for step in range(span["steps"][0], span["steps"][1] + 1)
    ]
    spans_left = [{"steps": [step, step], "queries": queries} for step, queries in spans if step not in dropped]
    noise = [query[1] for span in spans_left for query in span["queries"]]
    fields["events"] = spans_left
    fields["mechanisms"][0] |= {"count": len(spans_left), "noise_multiplier": [min(noise), max(noise)]}


def of_engine(num_rows):
    run = EngineRun(
        engine="a job", num_rows=num_rows, num_passes=1, updates=num_rows, step_size=0.1, first_step=0.1, last_step=0.1
    )
    return run.to_json()


def shorter(fields, steps):
    without_steps(fields, range(steps + 1, fields["max_steps"] + 1))
    fields |= {"steps": steps, "stop_reason": "budget", "epsilon_certified": 0.9}


CONTROL = checkpoint.digest("control-minibatch")


#: What is edited, how, and the phrase of the refusal.
IN_LEDGER = {
    "data_set": "ward", "unit": "gdp: mu^2", "reservation": "0123456789ab", "spent_before": 0.0, "counted": 1.0,
    "limit": 9.0,
}  # fmt: skip
EDITS = {
    # What a card claims of delta, noise and sampling.
    "delta of a half": ("noisygd", set_("delta", to=0.5), "is not below 1/N for N = 2000"),
    "adaptive noise as fixed": (
        "agd",
        set_("adaptive_noise", to=False),
        "depends on earlier answers, so that only its cap",
    ),
    "full batch as Poisson": ("agd", poisson, "where agd has full batch"),
    # The protector.
    "learned, adaptive as fixed": (
        "paper",
        set_("adaptive_noise", to=False),
        "noise was fixed in advance, but that of paper-adult",
    ),
    "another file": (
        "universal",
        set_("protector", "sha256", to=CONTROL),
        "is that of control-minibatch, so one of the two is wrong",
    ),
    "another name": ("universal", set_("protector", "name", to="minibatch"), "is that of universal"),
    "a method's name": (
        "universal",
        both(set_("protector", "name", to="noisygd"), set_("protector", "sha256", to=None)),
        "sources of noisygd",
    ),
    "sources": ("universal", set_("protector", "sources", to=["synthetic"]), "says other sources of universal than"),
    "range": ("universal", set_("protector", "range", to=None), "says other range of universal than"),
    "model": ("paper", set_("model", to="svm"), "was made for logistic, not for svm"),
    "no model": ("universal", set_("model", to="forest"), "model 'forest' is unknown"),
    # The queries and their number.
    "mechanism": (
        "noisygd",
        both(part(renamed, "gaussian", "laplace"), set_("accountant", to="zcdp"), set_("mu", to=None)),
        "laplace noise, but noisygd",
    ),
    "cheaper mechanism": ("agd", part(renamed, "gaussian", "exponential"), "was granted other queries than agd asks"),
    "last steps": ("noisygd", part(shorter, 40), "holds other noise than noisygd adds"),
    "every other step": (
        "noisygd",
        part(without_steps, range(2, 51, 2)),
        "was granted different queries in different steps",
    ),
    "a step too many": ("agd", lambda fields: fields.update(steps=fields["steps"] - 1), "was granted all of step"),
    "more steps allowed": (
        "noisygd",
        both(set_("max_steps", to=60), set_("stop_reason", to="budget")),
        "allows 60 steps",
    ),
    "steps of a file": (
        "paper",
        both(set_("max_steps", to=60), set_("stop_reason", to="budget")),
        "allows 60 steps where paper-adult takes 50",
    ),
    "why it stopped": ("noisygd", set_("stop_reason", to="budget"), "stopped by budget after 50 of 50 steps"),
    "stopped after nothing": ("agd", set_("stop_reason", to="max_steps"), "stopped by max_steps after"),
    # The noise.
    "noise": (
        "noisygd",
        both(part(louder, 1.1), set_("epsilon_certified", to=0.95)),
        "holds other noise than noisygd adds",
    ),
    "noise in one place": (
        "noisygd",
        part(louder, 1.1, mechanisms=False),
        "lists gaussian noise other than that of its events",
    ),
    "learned noise": (
        "minibatch, at a rate",
        part(louder, 1.1),
        "other noise than minibatch@0.1 adds",
    ),
    "envelope": (
        "dpsgd, pld",
        part(louder, 1.1, events=False, mechanisms=False, envelope=True),
        "costs more than its cap",
    ),
    "envelope and noise": ("dpsgd, pld", part(louder, 1.1, envelope=True), "holds other noise than dpsgd adds"),
    # The budget and the accountant.
    "certificate": ("noisygd", set_("epsilon_certified", to=0.5), "certifies less than its events cost"),
    "target": ("noisygd", set_("epsilon", to=2.0), "holds other noise than noisygd adds"),
    "target of a filter": ("agd", both(set_("epsilon", to=2.0), set_("epsilon_certified", to=2.0)), "counts at order"),
    "delta": ("minibatch, at a rate", set_("delta", to=1e-5), "holds other noise than minibatch@0.1 adds"),
    "adjacency": (
        "minibatch, at a rate",
        set_("adjacency", to="add_remove"),
        "N as it was declared",
    ),
    "adjacency of a proof": ("sgd_adv", set_("adjacency", to="zero_out"), "no price under adjacency zero_out"),
    "accountant": ("noisygd", both(set_("accountant", to="zcdp"), set_("mu", to=None)), "the theorem of gdp"),
    "accountant and theorem": (
        "noisygd",
        both(set_("accountant", to="zcdp"), set_("theorem", to=find("zcdp").theorem), set_("mu", to=None)),
        "costs more than its cap",
    ),
    "accountant of a paper": (
        "sgd_adv",
        both(set_("accountant", to="rdp"), set_("envelope", to=None)),
        "calibrated by accountant 'strong_composition'",
    ),
    "theorem": ("noisygd", set_("theorem", to=find("rdp").theorem), "but the theorem of rdp"),
    "order": ("agd", set_("order", to=30.0), "counts at order 30.0, but rdp fixes"),
    "an order where there is none": ("noisygd", set_("order", to=30.0), "counts at order 30.0, but gdp fixes None"),
    # The table.
    "rows of a solve": (
        "outpert",
        set_("num_rows", to=4000),
        "contribution to descent differently than outpert does for 4000 rows",
    ),
    "rows": ("minibatch, at a rate", set_("num_rows", to=20_000), "holds other noise than minibatch@0.1 adds"),
    "few features": (
        "minibatch, at a rate",
        set_("num_features", to=3),
        "control-minibatch runs instead of minibatch@0.1",
    ),
    "rate": (
        "dpsgd",
        part(poisson, 0.01),
        "(sampling_rate 0.01) where dpsgd has Poisson sampling (sampling_rate 0.05)",
    ),
    "rate that was asked for": (
        "minibatch, at a rate",
        part(poisson, 0.02),
        "where minibatch@0.1 has Poisson sampling (sampling_rate 0.1)",
    ),
    # What is around the run.
    "a unit of nobody's": (
        "noisygd",
        both(set_("card_version", to=2), set_("unit", to={"name": "patient", "max_rows": 10**6, "how": "x"})),
        "says otherwise which rows of a unit count",
    ),
    "a simulation as a release": (
        "noisygd, simulation",
        both(set_("private_release", to=True), set_("seed_policy", to=SEED_POLICY[True])),
        "says that it is a release, but its noise is that of the other",
    ),
    "what it counts for": (
        "noisygd",
        set_("composition", to=IN_LEDGER | {"counted": 0.0}),
        "counts for 0.0 in its ledger, where its queries cost",
    ),
    "a ledger that takes every run": (
        "agd",
        set_("composition", to=IN_LEDGER | {"counted": 1e-9}),
        "a ledger that adds up mu^2, which has no price for its queries",
    ),
    "more than it cost": (
        "ledger",
        set_("composition", "counted", to=0.2),
        "counts for 0.2 in its ledger, where its queries cost",
    ),
    "a unit of no ledger": (
        "noisygd",
        set_("composition", to=IN_LEDGER | {"unit": "points"}),
        "a ledger that counts 'points', which none does",
    ),
    "earlier runs that cost nothing": (
        "ledger",
        both(set_("composition", "earlier", to=[]), set_("composition", "spent_before", to=0.05)),
        "lists earlier runs of its ledger that do not add up to what was spent before it",
    ),
    "a reservation of no ledger": (
        "ledger",
        set_("composition", "reservation", to="mine"),
        "has reservation 'mine' in its ledger, which gives none like it",
    ),
    "a ledger for other runs": (
        "objpert",
        set_("composition", to=IN_LEDGER),
        "stands in a ledger that adds up mu^2, which takes no run like it",
    ),
    "whole runs for less": (
        "ledger of whole runs",
        set_("composition", "counted", to=0.1),
        "counts for 0.1 in its ledger, where its queries cost",
    ),
    "nothing that is not private": ("noisygd", set_("not_private", to=[]), "leaves out of not_private"),
    "one sentence less": ("agd", lambda fields: fields["not_private"].pop(2), "leaves out of not_private"),
    "what made it": (
        "universal",
        lambda fields: fields["not_private"].pop(),
        "The protector was made from public data",
    ),
    "public rows unsaid": ("ppgd", lambda fields: fields["not_private"].pop(), "public rows, which the protector read"),
    "no warnings": ("large epsilon", set_("warnings", to=[]), "leaves out of warnings what a run like it says"),
    "no warning of its range": (
        "a control stands in",
        set_("warnings", to=[]),
        "(sampling_rate 0.1) where control-minibatch",
    ),
    "renamed queries": (
        "noisygd",
        set_("mechanisms", 0, "query", to="nothing"),
        "its events were not answers to (noth",
    ),
    "renamed, adaptive": ("agd", set_("mechanisms", 0, "query", to="nothing"), "its events were not answers to"),
    "clip norm": ("noisygd", set_("mechanisms", 0, "clip_norm", to=[1e-9, 1e-9]), "contribution to clipped_gradient"),
    "clip norm, learned": (
        "minibatch, at a rate",
        set_("mechanisms", -1, "clip_norm", to=[1e-9, 1e-9]),
        "row's contribution to",
    ),
    "clip norm, envelope": ("dpsgd, pld", set_("mechanisms", 0, "clip_norm", to=[9.0, 9.0]), "row's contribution to"),
    "certified for more": ("dpsgd", set_("epsilon_certified", to=1.0), "for what its events cost"),
    "mu": ("noisygd", set_("mu", to=0.9), "says that mu is 0.9, where"),
    "no mu": ("noisygd", set_("mu", to=None), "says that mu is None, where"),
    "adaptive where it is fixed": ("noisygd", set_("adaptive_noise", to=True), "is fixed in advance"),
    "an engine that trained": (
        "noisygd",
        lambda fields: fields.update(engine=of_engine(fields["num_rows"])),
        "says that another engine trained, which no card of protector noisygd does",
    ),
    "a theorem in other words": ("noisygd", set_("theorem", to="It holds."), "words the theorem of gdp as no run"),
    "randomness": ("noisygd", set_("randomness", to="dice"), "words randomness as no run does"),
    "arithmetic": ("noisygd", set_("float_mode", to="exact"), "words float_mode as no run does"),
    "learned": ("noisygd", set_("learned", to="Everything."), "words what was learned as no run does"),
    "learned from answers that do not tell": (
        "outpert",
        set_("learned", to=learned.SIGNAL),
        "says of what was learned what its events do not show",
    ),
    "learned nothing": ("noisygd", set_("learned", to=learned.NOTHING), "what its events do not show"),
    "never moved, unwarned": ("noisygd", set_("learned", to=learned.UNMOVED), "leaves out of warnings"),
    "an idle run": (
        "agd",
        lambda fields: fields.update(mechanisms=[], events=[], steps=0, stop_reason="budget", learned=learned.SIGNAL),
        "may have been learned, where a run like it says: Nothing",
    ),
    "choice": ("the best of several", set_("not_private", to=[]), "leaves out of not_private"),
    "theorem of a choice": (
        "the best of several",
        lambda fields: fields.update(theorem=fields["theorem"].replace(find("gdp").theorem, "It holds.")),
        "states a choice among several runs as none does",
    ),
    "commands for a terminal": ("noisygd", set_("protector", "name", to="noisygd\x1b[8m"), "does not match"),
    "no end of rows": ("noisygd", set_("num_rows", to=10**400), "greater than the maximum"),
    "no end of queries": (
        "noisygd",
        both(
            set_("events", 0, "steps", to=[1, 2**31 - 1]), set_("max_steps", to=2**31 - 1), set_("steps", to=2**31 - 1)
        ),
        "more than any run asks",
    ),
}


@pytest.mark.long(
    cases=[
        "envelope*",
        "clip norm, envelope",
        "rate",
        "learned noise",
        "certified for more",
        "clip norm, learned",
        "few features",
        "rows",
        "rate that was asked for",
    ]
)
@pytest.mark.slow(
    cases=[
        "learned noise",
        "*envelope*",
        "clip norm, learned",
        "few features",
        "certified*",
        "delta",
        "adjacency",
        "rows*",
        "rate*",
    ]
)
@pytest.mark.parametrize("name", EDITS)
def test_an_edited_card_is_refused_for_what_was_edited(verify, name):
    base, edit, phrase = EDITS[name]
    edited = card(base)
    edit(edited)
    code, output = verify(edited)
    assert code in (1, 2)
    assert phrase in output
    assert "the card holds" not in output
    if code == 1:
        assert "THE CARD DOES NOT HOLD: it" in output


#: For each field of a card, an edit of it that is refused, or what the verdict says of it.
FIELDS = {
    "card_version": "does not match",
    "epsilon": "target",
    "delta": "delta",
    "epsilon_certified": "certified for more",
    "mu": "mu",
    "adjacency": "adjacency",
    "unit": "a unit of nobody's",
    "num_rows": "rows",
    "num_features": "numbers of rows and features",
    "model": "model",
    "private_release": "a simulation as a release",
    "accountant": "accountant",
    "order": "order",
    "theorem": "a theorem in other words",
    "adaptive_noise": "adaptive where it is fixed",
    "sampler": "rate",
    "mechanisms": "renamed queries",
    "events": "every other step",
    "envelope": "envelope and noise",
    "engine": "an engine that trained",
    "steps": "a step too many",
    "max_steps": "more steps allowed",
    "stop_reason": "why it stopped",
    "randomness": "randomness",
    "seed_policy": "a simulation as a release",
    "float_mode": "arithmetic",
    "composition": "more than it cost",
    "public": "which rows were public",
    "not_private": "nothing that is not private",
    "protector": "sources",
    "learned": "learned",
    "table": "on which rows",
    "statements": "what a caller stated",
    "warnings": "no warnings",
    "versions": "by this version",
    "created": "took place, and when",
}


def test_every_field_is_checked_or_named_as_not_shown(verify):
    assert set(FIELDS) == {field.name for field in dataclasses.fields(Card)}
    _, output = verify(card("noisygd"))
    unsaid = [case for case in FIELDS.values() if case not in EDITS and case not in output]
    assert unsaid == ["does not match", "by this version"]  # the schema's, and a remark's: see above
