"""Noise on weights that another engine has trained: what comes back, what the card says, and what is refused unpaid."""

import dataclasses
import json

import numpy as np
import pytest

import l2p
from l2p import Budget, EngineRun, InputError, bolt_on
from l2p.commands.cli import main
from l2p.privacy.ledger.ledger import Cost, Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.release.engine import EngineWeights

PURE = Budget(1.0, 0.0)
WEIGHTS = [0.3, -0.2, 0.1]
FIELDS = {
    "engine": "a job 1.0",
    "num_rows": 1000,
    "num_passes": 2,
    "updates": 200,
    "batch_size": 10,
    "step_size": 0.5,
    "first_step": 0.5,
    "last_step": 0.5,
}
RUN = EngineRun(**FIELDS)


def ledger_at(folder, budget=PURE):
    return Ledger.create(folder / "ward.ledger", "ward", budget, "basic", limit_of("basic", budget))


def verified(card, folder, capsys):
    (folder / "card.json").write_text(card.to_json())
    code = main(["account", "--card", str(folder / "card.json"), "--verify", "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("budget", [PURE, Budget(1.0, 1e-6, "replace_one")], ids=str)
def test_a_release_states_its_guarantee_charges_it_and_verifies(tmp_path, capsys, budget):
    ledger = ledger_at(tmp_path, budget)
    noised = bolt_on(WEIGHTS, RUN, budget, ledger=ledger)
    card = noised.card
    assert noised.weights.shape == (3,)
    assert not np.allclose(noised.weights, WEIGHTS)
    assert [kind["mechanism"] for kind in card.mechanisms] == ["gamma" if budget is PURE else "gaussian"]
    assert card.mechanisms[0]["clip_norm"][0] == pytest.approx(RUN.passes.sensitivity(), rel=1e-4)
    (entry,) = ledger.entries()
    assert entry.counted == Cost(card.epsilon_certified, budget.delta)
    assert any("has seen its weights alone, no row and no pass" in sentence for sentence in card.not_private)
    assert not any("clipped silently" in sentence for sentence in card.not_private)
    assert all(" ".join(sentence.split()) in " ".join(card.to_text().split()) for sentence in RUN.vouched)
    code, report = verified(card, tmp_path, capsys)
    assert (code, report["known_by"], report["rehearsed"]) == (0, "declaration", True)
    assert any("nobody checked" in remark for remark in report["remarks"])


def test_the_weights_come_back_in_their_places():
    """At the weakest budget that there is, noise is a millionth of the sensitivity."""
    for weights in (np.array(WEIGHTS), np.array([WEIGHTS]), np.arange(12.0).reshape(3, 4) / 10):
        noised = bolt_on(weights, RUN, Budget(1e6, 0.0)).weights
        np.testing.assert_allclose(noised, weights, atol=1e-4)


def test_a_saved_result_holds_its_weights_and_says_who_predicts(tmp_path):
    noised = bolt_on(WEIGHTS, RUN, PURE)
    noised.save(tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "card.html",
        "card.json",
        "card.registry.yaml",
        "card.txt",
        "model.safetensors",
        "trace.csv",
        "weights.json",
    ]
    assert json.loads((tmp_path / "run/weights.json").read_text()) == noised.weights.tolist()
    assert "Vouched for" in (tmp_path / "run/card.html").read_text()
    assert l2p.Card.from_json(tmp_path / "run/card.json").engine_run == RUN
    for predict in (noised.predict, noised.predict_proba):
        with pytest.raises(InputError, match="belong to another engine"):
            predict([[1.0, 2.0]])
    with pytest.raises(InputError, match="not a model that l2p saved"):
        l2p.load_model(tmp_path / "run")


def test_sentences_vouch_for_every_digit_that_is_declared():
    digits = {"norm_bound": 1.0000001, "ridge": 0.0100000001, "radius": 1e3 + 1e-9}
    sentences = " ".join(dataclasses.replace(RUN, **digits).vouched)
    assert all(repr(number) in sentences for number in digits.values())
    assert "0.5 in every step" in sentences


# -------------------------------------------------------------------------------------------------------- bad input
def declared(**fields):
    return {"fields": fields}


def given(weights):
    return {"weights": weights}


REFUSED = {
    "a sum that is not a mean": (declared(gradient="sum"), "moves batch_size times as far"),
    "another number of rows": (declared(num_rows=1010), "are 202, so it read other rows"),
    "a batch that does not divide them": (declared(batch_size=30), "a shorter last batch"),
    "no rows": (declared(num_rows=0), "do not divide 0 rows"),
    "stopped early": (declared(updates=150), "stopped when it saw fit"),
    "decreasing steps declared as constant": (declared(last_step=0.03), "last_step was 0.03, but constant steps"),
    "other steps from the first": (declared(first_step=1.0), "first_step was 1, but"),
    "steps that are too long": (declared(step_size=9.0, first_step=9.0, last_step=9.0), "exceeds 2 / beta"),
    "no step size": (declared(step_size=0.0), "step_size is 0.0"),
    "steps that follow the loss": (declared(rule="adaptive"), "known before the first row is read"),
    "rows that repeat": (declared(order="with_replacement"), "drawn twice in a pass"),
    "a loss without a bound": (declared(loss="hinge"), "loss 'hinge' has no proof here"),
    "a ridge below 0": (declared(ridge=-1.0), "ridge, step size, shift and power"),
    "more iterates than steps": (declared(averaged=201), "no more iterates than there were steps"),
    "rows of any length": (declared(norm_bound=float("inf")), "norm_bound is inf"),
    "a huge step": (declared(step_size=10**400), "step_size is a huge number"),
    "a huge table": (declared(num_rows=10**400), "num_rows is a huge number"),
    "rows whose square is no number": (declared(norm_bound=1e200), "rows are no longer than"),
    "steps of no length": (declared(rule="decreasing", power=400.0), "choose a smaller power"),
    "steps that end at no length": (declared(rule="inverse_power", power=400.0), "choose a smaller power"),
    "a sensitivity that vanishes": (
        {"fields": {"norm_bound": 1e-20}, "weights": [0.0, 0.0, 0.0]},
        "noise in numbers of 32 bits vanishes",
    ),
    "half a pass": (declared(num_passes=2.5), "num_passes is 2.5"),
    "a nameless engine": (declared(engine=" "), "must know what trained"),
    "weights outside of their ball": (declared(radius=0.1), "outside of the ball that is declared"),
    "weights farther than the steps": (given([300.0, 0.0, 0.0]), "longer than these steps can make them"),
    "weights that are not finite": (given([np.nan, 0.0, 0.0]), "not finite"),
    "weights of another shape": (given(np.zeros((2, 2, 2))), "have shape"),
    "no weights": (given([]), "have shape"),
    "words": (given(["a"]), "other than numbers"),
    "numbers as words": (given(["0.3", "0.1"]), "other than numbers"),
    "complex numbers": (given(np.array([0.3 + 1j])), "other than numbers"),
    "a number that no array holds": (given([10**400]), "other than numbers"),
    "single precision": (given(np.array(WEIGHTS, np.float32)), "train in 64 bits"),
    "ragged weights": (given([[0.1], [0.1, 0.2]]), "other than numbers"),
    "another adjacency": ({"budget": Budget(1.0, 0.0, "add_remove")}, "under add_remove"),
    "noise that is not pure": ({"accountant": "gdp"}, "certifies no epsilon there"),
    "a large delta": ({"budget": Budget(0.5, 0.01), "limit": Budget(1.0, 0.5)}, "not below 1/N"),
    "more than is left": ({"budget": Budget(2.0, 0.0)}, "it must not start"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_in_a_sentence_and_costs_nothing(tmp_path, case):
    changed, words = REFUSED[case]
    ledger = ledger_at(tmp_path, changed.get("limit", PURE))
    budget, accountant = changed.get("budget", PURE), changed.get("accountant")

    def release():
        run = EngineRun(**FIELDS | changed.get("fields", {}))
        return bolt_on(changed.get("weights", WEIGHTS), run, budget, ledger=ledger, accountant=accountant)

    with pytest.raises(InputError, match=words) as refused:
        release()
    assert not ledger.entries()
    assert str(refused.value).endswith(".")
    assert not {"300", "0.3", "-0.2"} & set(str(refused.value).replace(",", " ").split())


def test_other_methods_do_not_run_on_such_weights():
    with pytest.raises(InputError, match=r"call l2p\.bolt_on"):
        l2p.private_train(EngineWeights(np.array(WEIGHTS), RUN), "bolt_on", PURE)
    with pytest.raises(InputError, match=r"call l2p\.bolt_on"):
        l2p.private_train(EngineWeights(np.array(WEIGHTS), RUN), "noisygd", Budget(1.0, 1e-6))


def test_edited_declarations_are_found_out(tmp_path, capsys):
    card = bolt_on(WEIGHTS, RUN, PURE).card
    a_little_longer = {"step_size": 0.504, "first_step": 0.504, "last_step": 0.504}
    for changed in ({"num_passes": 4, "updates": 400}, a_little_longer):
        code, report = verified(dataclasses.replace(card, engine=RUN.to_json() | changed), tmp_path, capsys)
        assert code == 1
        assert any("bounds a row's contribution" in problem for problem in report["problems"])
    code, report = verified(dataclasses.replace(card, engine=None), tmp_path, capsys)
    assert code == 1
    for engine in (
        RUN.to_json() | {"num_rows": 100, "updates": 20},
        RUN.to_json() | {"updates": 1},
        RUN.to_json() | {"num_rows": 10**400},
        RUN.to_json() | {"loss": "svm", "step_size": 0.4, "first_step": 0.4, "last_step": 0.4},
        {"engine": "x"},
    ):
        (tmp_path / "card.json").write_text(dataclasses.replace(card, engine=engine).to_json())
        assert main(["account", "--card", str(tmp_path / "card.json")]) == 2
        assert "in field 'engine" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------- the command line
def words_for(folder, numbers=WEIGHTS, fields=FIELDS, **options):
    (folder / "weights.json").write_text(json.dumps(numbers))
    (folder / "fit.json").write_text(json.dumps(fields))
    options = {"weights": folder / "weights.json", "declaration": folder / "fit.json", "out": folder / "out"} | options
    options = {"epsilon": 1, "delta": 0} | options
    return ["bolt-on", *(word for name, value in options.items() for word in (f"--{name}", str(value)))]


def test_the_command_writes_what_python_does(tmp_path, capsys):
    ledger = ledger_at(tmp_path)
    assert main([*words_for(tmp_path), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert all(sentence in out for sentence in RUN.vouched)
    assert "noise        gamma, accountant basic" in out
    assert not (tmp_path / "out").exists()
    np.save(tmp_path / "w.npy", np.array(WEIGHTS))
    assert main(words_for(tmp_path, ledger=ledger.path)) == 0
    assert "(epsilon = 1, delta = 0)-differential privacy" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "out/weights.json").read_text())) == 3
    assert [entry.counted for entry in ledger.entries()] == [Cost(1.0, 0.0)]
    assert main(words_for(tmp_path, weights=tmp_path / "w.npy", out=tmp_path / "of_an_array")) == 0


BAD_FILES = {
    "an unknown field": ({"fields": FIELDS | {"passes": 2}}, "names passes, which l2p does not know"),
    "a field that is missing": ({"fields": {"engine": "x"}}, "does not declare num_rows"),
    "a text for a number": ({"fields": FIELDS | {"ridge": "much"}}, "ridge is"),
    "a list": ({"fields": [1]}, "holds no JSON object"),
    "a sum": ({"fields": FIELDS | {"gradient": "sum"}}, "declare gradient mean"),
    "an object of weights": ({"weights": {"a": 1}}, "other than numbers"),
    "no such file": ({"declaration": "nowhere.json"}, "cannot be read as JSON"),
    "no array": ({"weights_file": b"numbers"}, "holds no array of weights"),
    "half an archive": ({"weights_file": b"PK\x03\x04"}, "holds no array of weights"),
    "half a header": (
        {"weights_file": b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', ".ljust(117) + b"\n"},
        "holds no array of weights",
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_the_command_refuses_in_a_sentence_and_leaves_nothing(tmp_path, capsys, case):
    changed, message = BAD_FILES[case]
    changed = dict(changed)
    options = {name: changed[name] for name in ("declaration",) if name in changed}
    if "weights_file" in changed:
        options["weights"] = tmp_path / "fit.npy"
        options["weights"].write_bytes(changed["weights_file"])
    words = words_for(tmp_path, changed.get("weights", WEIGHTS), changed.get("fields", FIELDS), **options)
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
