"""Has anything changed that the tests of a part import, since they last passed?

    python .ci/part.py spark          # exit status 0 and a line that says so if nothing has
    python .ci/part.py spark --run    # run them, and if they pass, write that down in .ci/passed.json, to be committed

A part is a folder of tests that needs a cluster or a server: tests/estimators/spark, tests/estimators/database.
"""

import argparse
import ast
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PASSED = ROOT / ".ci" / "passed.json"
#: Set for the tests of a part so that a missing cluster or server is a failure.
REQUIRED = {"spark": "L2P_SPARK", "database": "L2P_SERVERS"}


def file_of(module: str) -> Path | None:
    """Path of a module of this project; None for a module of another project or a name inside a module."""
    path = ROOT / module.replace(".", "/")
    candidates = [path.with_suffix(".py"), path / "__init__.py"]
    return next((file for file in candidates if file.is_file()), None)


def imports(file: Path) -> Iterator[Path]:
    """Files of this project that a file imports anywhere, with the packages around them."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            words = name.split(".")
            for end in range(1, len(words) + 1):
                if (path := file_of(".".join(words[:end]))) is not None:
                    yield path


def closure(part: str) -> list[Path]:
    """Every file that the tests of a part are or import, directly or not, and those of the package that they test."""
    waiting = [
        *(ROOT / "tests" / "estimators" / part).rglob("*.py"),
        *(ROOT / "l2p" / "estimators" / part).rglob("*"),
        ROOT / "tests/conftest.py",
    ]
    files: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file in files or not file.is_file() or "__pycache__" in file.parts:
            continue
        files.add(file)
        if file.suffix == ".py":
            waiting.extend(imports(file))
    return sorted(files)


def digest(files: list[Path]) -> str:
    """SHA-256 of names and contents."""
    lines = [f"{file.relative_to(ROOT)} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def main() -> int:
    """Answer, or run and write down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=sorted(REQUIRED))
    parser.add_argument("--run", action="store_true", help="run the tests, and record that they passed")
    options = parser.parse_args()
    files = closure(options.part)
    now = digest(files)
    if not options.run:
        unchanged = json.loads(PASSED.read_text()).get(options.part) == now
        state = "is as it was when they passed: left out" if unchanged else "has changed since they passed: run"
        print(f"tests/estimators/{options.part}: what they import, {len(files)} files, {state}")
        return 0 if unchanged else 1
    command = [sys.executable, "-m", "pytest", "-n0", "-m", "slow or not slow", f"tests/estimators/{options.part}"]
    status = subprocess.run(command, cwd=ROOT, env=os.environ | {REQUIRED[options.part]: "required"}).returncode
    if status == 0:
        recorded = json.loads(PASSED.read_text())  # again: another part may have passed meanwhile
        PASSED.write_text(json.dumps(recorded | {options.part: now}, indent=2, sort_keys=True) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
