"""The four additions of docs/extending.md, applied to a copy: tests pass, and fail if a part is forgotten."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from l2p.privacy.accountants import tables
from tests.conftest import ROOT

#: Of a protector, a query, an accountant and a data set, in this order.
DIFFS = re.findall(r"^```diff\n(.*?)^```", (ROOT / "docs/extending.md").read_text(encoding="utf-8"), re.M | re.S)
PROTECTOR, QUERY, ACCOUNTANT, DATA_SET = (
    {re.match(r"diff --git a/(\S+)", part)[1]: part for part in re.split(r"^(?=diff --git)", diff, flags=re.M)[1:]}
    for diff in DIFFS
)
PROPERTIES = [
    "tests/protectors/test_conformance_protectors.py",
    "tests/protectors/test_without_noise.py",
    "tests/protectors/test_meta_gradients.py",
    "tests/protectors/test_register.py",
    "tests/queries/test_conformance_queries.py",
    "tests/queries/test_ranges.py",
    "tests/queries/test_noise_and_price.py",
    "tests/privacy/accountants/test_registry.py",
    "tests/privacy/accountants/test_properties.py",
    "tests/tables/test_catalog.py",
]
#: What tests of registration and completeness are called.
COMPLETE = (
    "is_registered or has_its_line or a_row or face or has_its_row or listed_accountant or tables_in_the_docs"
    " or in_the_list or says_everything"
)


@pytest.fixture
def copy(tmp_path):
    """A copy of the code, its tests and the page whose tables accountants fill."""
    for folder in ("l2p", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    for name in ("pyproject.toml", "docs/accounting.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def apply(folder, addition, but=()):
    """Apply the parts of a diff, but for some files."""
    text = "".join(part for name, part in addition.items() if name not in but)
    # A folder inside a repository would be taken for a part of it, and left as it is.
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
    command = ["git", "apply", "-"]
    git = subprocess.run(command, cwd=folder, env=environment, input=text, capture_output=True, text=True, check=False)
    assert git.returncode == 0, f"docs/extending.md is out of date; make its diff again with git diff -U1: {git.stderr}"


def outcome(folder, *options):
    """(exit status, output) of the copy's own tests."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n0",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "slow or not slow",
        *options,
    ]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


def test_every_addition_is_a_file_and_what_names_it(copy):
    for addition in (PROTECTOR, QUERY, ACCOUNTANT, DATA_SET):
        apply(copy, addition)
        new = [part for part in addition.values() if "\nnew file mode" in part]
        assert len(new) == 1
        assert len(addition) == (2 if addition is ACCOUNTANT else 3)  # the file, its line, its row
        assert not re.search(r"^-(?!--)", "".join(addition.values()), re.M)  # nothing else changes


def write_tables(folder):
    """The page's command, which writes an accountant's rows."""
    command = [sys.executable, *tables.COMMAND.split()[1:]]
    subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)}, check=True)


@pytest.mark.slow
def test_every_addition_has_every_property(copy):
    for addition in (PROTECTOR, QUERY, ACCOUNTANT, DATA_SET):
        apply(copy, addition)
    write_tables(copy)
    names = f"unit_descent or (squared and residuals) or SquaredResiduals or zcdp_simple or iris or {COMPLETE}"
    status, output = outcome(copy, *PROPERTIES, "-rA", "-k", names)
    assert status == 0, output
    for name in ("unit_descent", "squared residuals", "SquaredResiduals", "zcdp_simple", "iris"):
        assert len(re.findall(rf"^PASSED .*{name}", output, re.M)) >= (2 if name == "iris" else 4), output


#: What is forgotten, and the test that fails.
FORGOTTEN = [
    (PROTECTOR, "l2p/protectors/__init__.py", "every_file_that_registers_has_its_line"),
    (PROTECTOR, "tests/protectors/conformance.py", "every_hand_designed_method_has_a_row"),
    (QUERY, "l2p/queries/__init__.py", "every_query_can_be_had_from_the_face"),
    (QUERY, "tests/queries/conformance.py", "every_field_of_every_query_has_its_row"),
    (ACCOUNTANT, "l2p/privacy/accountants/__init__.py", "every_file_is_one_listed_accountant"),
    (ACCOUNTANT, tables.COMMAND, "the_tables_in_the_docs"),
    (DATA_SET, "l2p/tables/sets/__init__.py", "every_file_of_a_set_is_in_the_list"),
    (DATA_SET, "tests/tables/test_catalog.py", "a_set_says_everything_of_itself.iris"),
]


@pytest.mark.long
@pytest.mark.parametrize("part", [0, 1], ids=["line", "row"])
def test_forgetting_the_line_or_the_row_fails_a_test(copy, part):
    """All four additions are tested in one process, since each imports JAX."""
    for addition, name, _ in FORGOTTEN[part::2]:
        # Without its line a part has no row that could be collected.
        apply(copy, addition, but=[name] if part else [path for path in addition if "test" in path or path == name])
    files = [name for name in PROPERTIES if not name.endswith(("gradients.py", "noise.py", "price.py"))]
    status, output = outcome(copy, *files, "-k", COMPLETE)
    assert status == 1, output
    for _, _, test in FORGOTTEN[part::2]:
        assert re.search(rf"^FAILED .*{test}", output, re.M), output
