"""The rooms of l2p/: each imports only rooms below it, and no circle of imports has more than two files."""

import ast

from tests.conftest import ROOT

#: From the ground up, as in README.md.
ROOMS = (
    "base", "privacy", "task", "models", "tables", "queries", "oracle", "run", "protectors", "checkpoints", "release",
    "compare", "estimators", "commands",
)  # fmt: skip
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "l2p").rglob("*.py")
}


def imported_by(module):
    """The files of l2p that a file imports, anywhere in it."""
    modules = set()
    for node in ast.walk(ast.parse(FILES[module].read_bytes())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: imports are absolute"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules |= {name if name in FILES else node.module for name in names}
    return {name for name in modules if name in FILES and name != module}


IMPORTS = {module: imported_by(module) for module in FILES}


def room_of(module):
    """The number of a module's room; the face of l2p, which imports on first use alone, lies below all."""
    return ROOMS.index(module.split(".")[1]) if "." in module else -1


def upward(imports):
    """Imports of a higher room."""
    return {
        (module, imported)
        for module, others in imports.items()
        for imported in others
        if room_of(module) < room_of(imported)
    }


def reached(module, imports):
    """Every file that a file imports, directly or not."""
    files, waiting = set(), [module]
    while waiting:
        for imported in imports.get(waiting.pop(), set()) - files:
            files.add(imported)
            waiting.append(imported)
    return files


def circles(imports):
    """Sets of more than two files of which each imports each other, directly or not."""
    files = {module: reached(module, imports) for module in imports}
    rings = {frozenset(imported for imported in files[module] if module in files[imported]) for module in imports}
    return [sorted(ring) for ring in rings if len(ring) > 2]


def test_the_top_floor_has_fourteen_rooms_and_at_most_five_files():
    entries = [path for path in (ROOT / "l2p").iterdir() if path.name != "__pycache__"]
    assert {path.name for path in entries if path.is_dir()} == set(ROOMS)
    assert sum(path.is_file() for path in entries) <= 5


def test_no_import_points_upwards():
    inside = {module: others for module, others in IMPORTS.items() if module not in ("l2p", "l2p.__main__")}
    assert upward(inside) == set()
    assert upward({"l2p.oracle.oracle": {"l2p.run.run"}})


def test_no_circle_of_imports_has_more_than_two_files():
    # Without the faces of rooms, which import their rooms, and which their rooms may import.
    faces = {module for module, path in FILES.items() if path.name == "__init__.py"}
    files = {module: others - faces for module, others in IMPORTS.items() if module not in faces}
    assert circles(files) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not circles({"a": {"b"}, "b": {"a"}})


def test_the_map_in_the_readme_names_the_rooms_in_order():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    places = [text.index(f"\n  {room:<12} ") for room in ROOMS]
    assert places == sorted(places)
