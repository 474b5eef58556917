"""The protector that docs/submitting.md adds: its file, line and row are applied to a copy of the code and tested."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = "tests/protectors/conformance.py"
PROPERTIES = [
    f"tests/protectors/test_{name}.py" for name in ("conformance_protectors", "without_noise", "meta_gradients")
]
REGISTER = "tests/protectors/test_register.py"
TRAITS = [
    line
    for name in PROPERTIES
    for line in re.findall(r"^@every_(?:case|derivative)", (ROOT / name).read_text("utf-8"), re.M)
]
FILE, LINE, ROW = re.findall(r"```python\n(.*?)```", (ROOT / "docs/submitting.md").read_text(encoding="utf-8"), re.S)


@pytest.fixture
def copy(tmp_path):
    """A copy of the code and of what tests protectors."""
    shutil.copytree(ROOT / "l2p", tmp_path / "l2p", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests/protectors").mkdir(parents=True)
    for name in ("pyproject.toml", "tests/conftest.py", "tests/contracts.py", TABLE, *PROPERTIES, REGISTER):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def insert(path, before, text):
    """Insert lines before the first line that starts with `before`."""
    old = path.read_text(encoding="utf-8")
    at = re.search(rf"^{re.escape(before)}", old, re.M).start()
    path.write_text(old[:at] + text + old[at:], encoding="utf-8")


def add(folder, name="unit_descent", file=FILE, line=LINE, row=ROW):
    """Apply the documented change, or parts of it, with a method of this name."""
    file, line, row = (
        part.replace("unit_descent", name).replace("UnitDescent", name.title().replace("_", ""))
        for part in (file, line, row)
    )
    (folder / f"l2p/protectors/{name}.py").write_text(file, encoding="utf-8")
    insert(folder / "l2p/protectors/__init__.py", "from l2p.protectors.stepwise.stepwise", line)
    insert(folder / TABLE, '    "noisygd": Case', row)


def outcome(folder, *options):
    """(exit status, output) of the copy's own tests."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", *options]
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return found.returncode, found.stdout + found.stderr


@pytest.mark.slow
def test_the_documented_protector_has_every_property(copy):
    add(copy)
    names = "unit_descent or is_registered or has_its_line or a_row"
    status, said = outcome(copy, *PROPERTIES, REGISTER, "-m", "slow or not slow", "-k", names)
    assert status == 0, said
    assert int(re.search(r"(\d+) passed", said)[1]) >= len(TRAITS) + 5
    assert "skipped" not in said


DECORATOR = '@hand_designed(form="rival")\n'


FORGOTTEN = {
    # Without the decorator there is no method for a row.
    "no_decorator": {"file": FILE.replace(DECORATOR, ""), "row": ""},
    "no_line": {"line": ""},
    "no_row": {"row": ""},
}
FAILING = "every_class_of_protectors", "every_file_that_registers_has_its_line", "every_hand_designed_method_has_a_row"


@pytest.mark.slow
def test_forgetting_a_part_of_it_fails_a_test_that_says_so(copy):
    """In one process, since each imports JAX. The register imports every file, those without a line, too."""
    for name, parts in FORGOTTEN.items():
        add(copy, name, **parts)
    status, said = outcome(copy, REGISTER, PROPERTIES[0], "-k", "is_registered or has_its_line or has_a_row")
    assert status == 1, said
    for name, failing in zip(FORGOTTEN, FAILING, strict=True):
        failure = re.search(rf"^_+ test_{failing}\w* _+$(.*?)(?=^_{{5,}} |^=+ )", said, re.M | re.S)
        assert failure, said
        assert name in failure[1].lower() or name.title().replace("_", "") in failure[1], failure[1]
