"""The package from outside: its names, version, types and dependencies."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import l2p
from l2p.commands.cli import main

ROOT = Path(l2p.__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("before", ["import l2p", "import l2p.models, l2p.base.errors; l2p.Budget"])
def test_dir_shows_the_public_names_alone(before):
    show = f"{before}; print(*dir(l2p))"
    shown = subprocess.run([sys.executable, "-c", show], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.split() == sorted(l2p.__all__)
    assert {"private_train", "Budget", "__version__"} <= set(shown.split())
    assert not {"Any", "importlib", "models"} & set(shown.split())


@pytest.mark.parametrize("name", l2p.__all__)
def test_every_public_name_is_there(name):
    assert getattr(l2p, name) is not None


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'privat_train'"):
        l2p.privat_train  # noqa: B018


def test_the_version_is_written_once(capsys):
    assert re.fullmatch(r"\d+\.\d+\.\d+", l2p.__version__)
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert ROOT / PROJECT["tool"]["hatch"]["version"]["path"] == Path(l2p.__file__)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"l2p {l2p.__version__}\n"


def test_the_wheel_says_that_the_package_is_typed():
    """PEP 561 requires the marker inside the package; the wheel has the whole folder except what `exclude` names."""
    assert (ROOT / "l2p" / "py.typed").is_file()
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "l2p" in wheel["only-include"]
    assert not [pattern for pattern in wheel["exclude"] if "l2p" in pattern or "typed" in pattern]
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]


def test_the_changelog_has_the_version_and_what_comes_after_it():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert headings[0] == "Unreleased"
    assert headings[1].split()[0] == l2p.__version__


def test_the_citation_agrees_with_the_package_and_names_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)  # what the format requires
    assert citation["version"] == l2p.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    assert citation["keywords"] == PROJECT["project"]["keywords"]
    [paper] = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Hong", "Wang", "Wang", "Zhou"]


def test_what_contributors_are_told_to_run_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    scripts = set(re.findall(r"\.ci/\w+(?:\.\w+)?", text))
    assert scripts == {f".ci/{path.name}" for path in (ROOT / ".ci").iterdir() if path.is_file()}
    assert "pip install -e '.[dev]' && pre-commit install" in text
    assert "dev" in PROJECT["project"]["optional-dependencies"]


def imported():
    """Top-level modules that the package imports anywhere, lazily too."""
    for path in [*ROOT.glob("l2p/**/*.py"), *ROOT.glob("meta_train/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (name.name.partition(".")[0] for name in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield node.module.partition(".")[0]


@pytest.mark.slow
def test_every_core_dependency_is_imported():
    exceptions = {"jaxlib": "of jax: listed to leave out a version"}
    needed = {re.match(r"[\w-]+", line)[0].lower() for line in PROJECT["project"]["dependencies"]}
    modules, distributions = importlib.metadata.packages_distributions(), set()
    for module in set(imported()):
        distributions |= {name.lower() for name in modules.get(module, [])}
    assert needed - distributions == set(exceptions)


#: Modules of extras, which whole files are about: nobody imports these files without the extra.
OF_EXTRAS = {"pyarrow": "spark", "pyspark": "spark", "py4j": "spark"}


def test_nothing_but_core_dependencies_is_needed_to_import_a_module():
    # A test's own environment has more, so that a missing one would be noticed by users alone.
    modules = importlib.metadata.packages_distributions()
    core = {re.split(r"[\[<>=! ]", line)[0] for line in PROJECT["project"]["dependencies"]}
    for path in [*ROOT.glob("l2p/**/*.py"), *ROOT.glob("meta_train/**/*.py")]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in {each.split(".")[0] for each in names} - {"l2p", "meta_train", *sys.stdlib_module_names}:
                is_extra = name in OF_EXTRAS and OF_EXTRAS[name] in path.parts
                assert is_extra or core & set(modules.get(name, ())), f"{path.relative_to(ROOT)} imports {name}"


def test_figures_are_made_by_scripts_that_need_no_arguments_and_the_others_are_left_out():
    left_out = (ROOT / ".ci" / "figures").read_text().partition("case $name in")[2].partition(")")[0]
    left_out = {name.strip(" \\\n") for name in left_out.split("|")}
    scripts = {path.stem: path.read_text() for path in ROOT.glob("benchmarks/[a-z]*.py")}
    assert left_out < scripts.keys()
    for name in scripts.keys() - left_out:
        functions = {node.name: node for node in ast.parse(scripts[name]).body if isinstance(node, ast.FunctionDef)}
        assert "subcommand" not in scripts[name]
        if "tyro.cli(main)" in scripts[name]:
            arguments = functions["main"].args
            assert len(arguments.args) == len(arguments.defaults), name
