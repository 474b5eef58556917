"""Names of methods: parsed and formatted, refused where they cannot be parsed, and spelled in one place."""

import ast
import itertools
import json
from pathlib import Path

import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import method_name
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.method_name import ORACLE, PRETRAINED, PRIVATE, PROJECTED, TUNED, VARIANTS, MethodName
from l2p.compare import results
from l2p.privacy import Budget

ROOT = Path(method_name.__file__).parents[2]
RESULTS = sorted(ROOT.glob("benchmarks/results/**/results.csv"))
EXPERIMENTS = sorted(ROOT.glob("benchmarks/experiments/*.json"))


def test_a_name_is_its_base_and_suffixes():
    parsed = MethodName.parse("minibatch@0.02:tuned:projected:private")
    assert (parsed.base, parsed.sampling_rate) == ("minibatch", 0.02)
    assert (parsed.tuned, parsed.projected, parsed.private) == (True, True, True)
    assert (parsed.pretrained, parsed.oracle) == (False, False)
    assert parsed.variants == {PROJECTED, PRIVATE}
    plain = MethodName.parse("noisygd")
    assert (plain.base, plain.sampling_rate, plain.suffixes, plain.variants) == ("noisygd", None, (), frozenset())


def test_parts_of_a_name_are_left_out_one_by_one():
    parsed = MethodName.parse("dpsgd@.5:tuned:oracle:pretrained")
    assert str(parsed.protector) == "dpsgd@.5:tuned"
    assert str(parsed.without_rate()) == "dpsgd:tuned:oracle:pretrained"
    assert str(parsed.without(ORACLE)) == "dpsgd@.5:tuned:pretrained"
    assert MethodName.parse(parsed) is parsed


@pytest.mark.parametrize(
    "base", ["noisygd", "paper-adult", "a:b@c/mine.safetensors", "./mine:own", "mine@home.safetensors", ""]
)
def test_every_name_comes_back_as_it_was_written(base):
    rates = ("@0.02", "@.5", "@1e-3", "@2") if base else ("",)
    settings = {"", TUNED, *rates, *(rate + TUNED for rate in rates), *(TUNED + rate for rate in rates)}
    orders = [order for size in range(3) for order in itertools.permutations(VARIANTS, size)]
    names = {base + first + "".join(order) for first in settings for order in orders}
    for name in names if base else {base}:
        parsed = MethodName.parse(name)
        assert str(parsed) == name
        assert parsed.base == base
        assert parsed.variants == {variant for variant in VARIANTS if variant in name}
        assert parsed.tuned is (TUNED in name)
        assert (parsed.sampling_rate is None) is not any(rate in name for rate in rates if rate)


def test_names_in_committed_results_and_experiments_come_back_as_they_were_written():
    names = {row["method"] for path in RESULTS for row in results.read(path)}
    for path in EXPERIMENTS:
        names.update(json.loads(path.read_text(encoding="utf-8")).get("methods", []))
    assert any(PRETRAINED in name for name in names)
    assert {name: str(MethodName.parse(name)) for name in names} == {name: name for name in names}


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("agd:tunde", "':tunde' is not a suffix"),
        ("agd:tunde:private", "':tunde' is not a suffix"),
        ("agd:", "':' is not a suffix"),
        ("minibatch@fast", "'@fast' is not a suffix"),
        ("minibatch@", "'@' is not a suffix"),
        ("minibatch@-0.1", "'@-0.1' is not a suffix"),
        ("a:oracle:oracle", ":oracle is asked for twice"),
        ("a:tuned:tuned", ":tuned is asked for twice"),
        ("a@0.1@0.2", "a sampling rate is asked for twice"),
        ("a:private:tuned", "a variant precedes"),
        ("a:private@0.1", "a variant precedes"),
    ],
)
def test_a_name_that_cannot_be_read_costs_one_sentence(name, phrase):
    with pytest.raises(InputError, match=phrase) as refused:
        MethodName.parse(name)
    sentence = str(refused.value)
    assert sentence.endswith("each once.")
    assert repr(name) in sentence
    assert all(suffix in sentence for suffix in (TUNED, *VARIANTS))


@pytest.mark.parametrize("name", ["agd:private", "agd:tuned:oracle", "noisygd:projected:oracle"])
def test_a_protector_is_not_what_a_variant_of_it_is(name):
    with pytest.raises(InputError, match=f"protector '{name}' is unknown"):
        resolve(name, Budget(1.0, 1e-6), "logistic")


def spelled(path):
    """Strings in a module's code, except docstrings and help, that contain a suffix."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings]
    suffixes = (TUNED, *VARIANTS, *(suffix.removeprefix(":") for suffix in (PRETRAINED, PROJECTED)))
    return [node.value for node in texts if isinstance(node.value, str) and any(end in node.value for end in suffixes)]


def test_no_other_module_knows_how_a_suffix_is_written():
    modules = {path for folder in ("l2p", "meta_train") for path in (ROOT / folder).rglob("*.py")}
    home = Path(method_name.__file__).resolve()
    assert home in modules
    assert spelled(home)
    assert {path: suffixes for path in modules - {home} if (suffixes := spelled(path))} == {}
