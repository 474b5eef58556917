"""The registry: names, lists and tables follow from it, and a new accountant is one file and one line."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import jax
import jax.numpy as jnp
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.commands import apply, ledger
from l2p.commands.cli import main
from l2p.privacy import Adjacency, Budget, Filter, FullBatch, Poisson, accountants
from l2p.privacy.accountants import Listed, either, every, find, for_runs, run_names, tables
from l2p.privacy.accountants.base import RunAccountant
from l2p.privacy.cap import planning
from l2p.privacy.cost import sampling
from l2p.privacy.cost.sampling import PermutationEpochs
from l2p.privacy.events import Event
from l2p.privacy.ledger.ledger import UNITS
from tests.privacy.accountants import properties

ROOT = Path(__file__).parents[3]
FOLDER = Path(accountants.__file__).parent
#: Files that all accountants share; every other file is one accountant.
SHARED = {"__init__", "base", "families", "gaussians", "least_target", "tables"}


def test_every_file_is_one_listed_accountant_of_its_name():
    listed = [accountant.name for accountant in accountants.LISTED]
    assert len(set(listed)) == len(listed)
    assert {path.stem for path in FOLDER.glob("*.py")} == {*listed, *SHARED}
    assert [accountant.name for accountant in every()] == listed
    assert all(isinstance(accountant, RunAccountant) for accountant in for_runs())
    assert all(
        not isinstance(accountant, RunAccountant) for accountant in every() if accountant.name not in run_names()
    )


def test_every_accountant_says_in_a_sentence_why_it_holds():
    for accountant in every():
        assert "20" in accountant.theorem  # the years of its sources
        assert accountant.theorem.endswith(".")
        assert "\n" not in accountant.theorem


def test_choices_of_the_command_line_are_those_of_the_registry():
    assert get_args(apply.Accountant) == run_names()
    assert get_args(ledger.Unit) == UNITS == tuple(accountants.ledger_amounts())
    assert set(UNITS) <= set(run_names())


def test_names_are_listed_without_jax():
    code = "import sys; from l2p.privacy.accountants import run_names; run_names(); print('jax' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "False"


def test_an_unknown_name_is_refused_with_those_there_are():
    for name in ("renyi", "tcdp", "rdp_all_orders"):  # the last two certify finished traces only
        with pytest.raises(InputError, match=f"{name}.* is unknown.*{', '.join(run_names())}"):
            find(name)


def test_either():
    assert [either(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a or b", "a, b or c"]


def test_samplers_name_no_accountant_and_every_sampler_is_covered():
    assert {type(sampler) for sampler in tables.EXAMPLES} == set(sampling.SAMPLERS.values())
    source = Path(sampling.__file__).read_text(encoding="utf-8")
    assert not [accountant.name for accountant in every() if f'"{accountant.name}"' in source]
    for sampler in tables.EXAMPLES:
        for adjacency in sampler.adjacencies:
            assert any(accountant.covers(sampler, adjacency) for accountant in for_runs())


def test_the_tables_in_the_docs_are_those_of_the_accountants():
    page = (ROOT / "docs/accounting.md").read_text(encoding="utf-8")
    assert tables.written(page) == page, f"run {tables.COMMAND}"


def test_a_page_without_a_place_for_a_table_is_refused():
    with pytest.raises(InputError, match="lacks the lines"):
        tables.written("# How l2p counts\n")


NEW = '''
"""zCDP at {factor} times its price."""

from l2p.privacy.accountants.base import RHO, RunAccountant
from l2p.privacy.cost import convert
from l2p.privacy.cost.sampling import FullBatch
from l2p.privacy.cost import convert


class New(RunAccountant):
    name = row = "new"
    unit = counts = "rho"
    theorem = "As zCDP (Bun & Steinke 2016), of which it makes {factor} times as much."
    samplers = (FullBatch,)
    coefficients = {{mechanism: {factor} * rho for mechanism, rho in RHO.items()}}
    budgeting = on_adaptive = "as `zcdp`"

    def limit(self, terms):
        return convert.zcdp_rho(terms.budget.epsilon, terms.budget.delta)

    def epsilon(self, spent, terms):
        return convert.zcdp_epsilon(spent, terms.budget.delta)


ACCOUNTANT = New()
'''


@pytest.fixture
def new(tmp_path):
    """Adds an accountant as anyone would: one file, and one line in the list."""
    with pytest.MonkeyPatch.context() as patch:

        def add(factor):
            (tmp_path / "new.py").write_text(NEW.format(factor=factor))
            patch.setattr(accountants, "__path__", [*accountants.__path__, str(tmp_path)])
            patch.setattr(accountants, "LISTED", (*accountants.LISTED, Listed("new")))
            importlib.invalidate_caches()
            importlib.reload(apply)  # as a new process would

        yield add
    sys.modules.pop("l2p.privacy.accountants.new")
    importlib.reload(apply)


def test_a_new_accountant_is_one_file_and_one_line(new, capsys):
    new(2.0)
    budget = Budget(1.0, 1e-6)
    # It plans, and twice the price asks for sqrt(2) times the noise.
    noise = {name: planning.noise_multiplier(budget, FullBatch(), 10, name) for name in ("zcdp", "new")}
    assert noise["new"] == pytest.approx(noise["zcdp"] * 2**0.5, rel=1e-5)
    assert planning.num_steps(budget, FullBatch(), noise["new"], "new") == 10
    # The command line lists it, for plans both ways.
    for options in (["--epsilon", "1"], ["--noise-multiplier", "30"]):
        assert main(["account", "--delta", "1e-6", "--steps", "10", *options, "--json"]) == 0
        lines = {line["accountant"]: line for line in json.loads(capsys.readouterr().out)["accountants"]}
        assert lines["new"]["value"] > lines["zcdp"]["value"] > 0
    # So do the choices of `l2p apply`, messages and tables.
    assert get_args(apply.Accountant)[-1] == "new"
    with pytest.raises(InputError, match=r"no theorem for full batch.*or new"):
        Filter("pld", budget)
    with pytest.raises(InputError, match="'new' has no theorem for Poisson"):
        Filter("new", budget, Poisson(0.1))
    assert "| `new` | rho | as `zcdp` | as `zcdp` |" in tables.theorems()
    assert "| `new` | all | – | – | – | `gaussian`, " in tables.coverage()
    # A run is stopped by it, and its card is priced again.
    rows = l2p.Rows(jnp.ones((900, 1)), jnp.ones(900), jnp.ones(900))
    card = l2p.private_train(rows, "noisygd", Budget(1.0, 1e-5), accountant="new", key=jax.random.key(0)).card
    assert (card.accountant, card.theorem) == ("new", find("new").theorem)
    assert card.filter().certify(card.answered(), card.adaptive_noise) == card.epsilon_certified
    # It has the properties of every accountant.
    for holds in properties.PROPERTIES:
        holds("new")


def test_an_accountant_that_prices_too_little_is_caught(new):
    new(0.5)
    assert Filter("new", Budget(1.0, 1e-6)).limit > 0
    with pytest.raises(AssertionError, match="gaussian"):
        properties.a_certificate_is_never_below_dp_accountings("new")


def test_a_price_list_that_undercuts_the_certificate_is_caught(new, monkeypatch):
    new(1.0)
    monkeypatch.setattr("l2p.privacy.accountants.base.float32_up", lambda value: jnp.float32(value * (1 - 1e-5)))
    with pytest.raises(AssertionError, match="FullBatch"):
        properties.prices_inside_the_run_bound_the_float64_ones("new")


def test_an_accountant_says_which_epochs_and_neighbours_it_covers():
    epochs = PermutationEpochs(10, 200)
    assert find("gdp").covers(epochs, Adjacency.ZERO_OUT)
    assert not find("gdp").covers(epochs, Adjacency.ADD_REMOVE)
    assert not find("gdp").covers(FullBatch(), Adjacency.ZERO_OUT, "gumbel")
    assert find("pld").covers(Poisson(0.1), Adjacency.ADD_REMOVE)
    assert not find("pld").covers(Poisson(0.1), Adjacency.REPLACE_ONE)


#: Those that price a Gaussian query on all rows by what it is.
BY_MU = [
    accountant.name
    for accountant in for_runs()
    if "gaussian" in accountant.coefficients and accountant.mu(Budget(1.0, 1e-6)) is not None
]


@pytest.mark.parametrize("name", BY_MU)
def test_one_gaussian_query_of_the_stated_mu_costs_the_whole_budget(name):
    """`mu` decides schedules, and `per_rho` what a zCDP run is charged: both must fit the prices."""
    budget, accountant = Budget(1.0, 1e-6), find(name)
    prices = Filter(name, budget).price_list()
    assert float(prices.price(Event("gaussian", jnp.float32(1 / accountant.mu(budget))))) == pytest.approx(
        float(prices.budget), rel=1e-3
    )
    if accountant.per_rho is not None:
        assert accountant.per_rho * accountant.mu(budget) ** 2 / 2 == pytest.approx(float(prices.budget), rel=1e-3)


def test_which_accountants_bind_and_which_price_by_mu_alone():
    assert {accountant.name for accountant in for_runs() if not accountant.binds} == {"gdp", "rdp", "zcdp"}
    assert {accountant.name for accountant in for_runs() if accountant.by_mu} >= {"gdp", "zcdp", "ctcdp"}
