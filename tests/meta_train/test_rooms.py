"""The rooms of meta_train lie above one another: none imports from one above it."""

import re
from pathlib import Path

import meta_train

ROOT = Path(meta_train.__file__).parent
#: From the ground up.
ROOMS = ("tasks", "config", "evaluation", "training", "recipes", "fine_tuning", "__init__", "__main__")


def test_rooms_import_from_below_alone():
    files = {path: path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")}
    assert set(files.values()) == set(ROOMS)
    for path, room in files.items():
        for imported in re.findall(r"^\s*(?:from|import) meta_train\.?(\w+)", path.read_text(), re.M):
            assert ROOMS.index(imported) <= ROOMS.index(room), f"{path.relative_to(ROOT)} imports {imported}"
