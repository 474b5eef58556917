"""The parts of meta_train are layered: none imports from a part above it."""

import re
from pathlib import Path

import meta_train

ROOT = Path(meta_train.__file__).parent
#: From the lowest layer up.
LAYERS = (
    "constants",
    "tasks",
    "config",
    "planning",
    "evaluation",
    "training",
    "recipes",
    "fine_tuning",
    "fold_training",
    "__init__",
    "__main__",
)


def test_parts_import_only_from_below():
    files = {path: path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")}
    assert set(files.values()) == set(LAYERS)
    for path, part in files.items():
        for imported in re.findall(r"^\s*(?:from|import) meta_train\.?(\w+)", path.read_text(), re.M):
            assert LAYERS.index(imported) <= LAYERS.index(part), f"{path.relative_to(ROOT)} imports {imported}"
