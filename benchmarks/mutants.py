"""Plant bugs in every query, accountant, sampler and protector, and see which tests notice.

    pip install cosmic-ray
    python -m benchmarks.mutants --out benchmarks/mutants.jsonl

Cosmic Ray makes the mutants (an operator, a number or a condition changed); a fixed seed draws some of each place. Each
is planted in a copy of the checkout and run against the fast tests of its part of the code; those that pass are then
run against the slow ones. Both stop at the first failure. A line of the output is one verdict: the mutant's file, its
changed line, what killed it ("fast", "slow" or nothing), the first test that failed, and the sets that it was run
against. A mutant's last line counts, and a set that it was run against is not run again.
"""

import argparse
import difflib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

ROOT = Path(__file__).resolve().parent.parent
OPERATORS = [
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Pow_Mul")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Lt_GtE", "Gt_LtE", "LtE_Gt", "GtE_Lt", "Eq_NotEq", "NotEq_Eq")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Is_IsNot", "IsNot_Is", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
    *("ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "AddNot", "NumberReplacer"),
]
#: Places with files to mutate, and the tests of that part of the code. A mutant that they miss may fail others, of the
#: commands or of comparisons: they take too long to run for every one.
PLACES = {
    "l2p/queries/*.py": [
        "tests/privacy/test_unit_prices.py",
        "tests/queries",
        "tests/task",
        "tests/protectors",
    ],
    "l2p/privacy/accountants/*.py": ["tests/privacy", "l2p/privacy"],
    "l2p/privacy/cost/sampling.py": ["tests/run", "tests/privacy", "l2p/privacy"],
    "l2p/protectors/**/*.py": ["tests/protectors", "tests/checkpoints", "l2p/protectors"],
}
#: A mutant for so many lines of a place. Some fifty in all take an afternoon on one core.
LINES_PER_MUTANT = {"l2p/privacy/cost/sampling.py": 50}
DEFAULT_LINES_PER_MUTANT = 230
#: A mutant may run forever; that counts as killed.
MAX_SECONDS = {"fast": 900, "slow": 2400}


def mutants(place: str) -> list[tuple[Path, str, str]]:
    """Some mutants of the files of a place: (file, changed line, whole new source)."""
    sources = {path: path.read_text() for path in sorted(ROOT.glob(place))}
    positions = [
        (path, operator, occurrence)
        for path, source in sources.items()
        for operator in OPERATORS
        for occurrence in range(num_positions(operator, source))
    ]
    num_lines = sum(len(source.splitlines()) for source in sources.values())
    wanted = round(num_lines / LINES_PER_MUTANT.get(place, DEFAULT_LINES_PER_MUTANT))
    mutated = []
    for path, operator, occurrence in random.Random(f"mutants of {place}").sample(positions, wanted):
        changed = mutate_code(sources[path], operator_of(operator), occurrence)
        lines = difflib.ndiff(sources[path].splitlines(), changed.splitlines())
        change = " => ".join(line[2:].strip() for line in lines if line.startswith(("- ", "+ ")))
        mutated.append((path, change, changed))
    return mutated


def num_positions(operator: str, source: str) -> int:
    """The number of places in a source that an operator can change."""
    return sum(len(list(operator_of(operator).mutation_positions(node))) for node in ast_nodes(get_ast(source)))


def operator_of(operator: str) -> Operator:
    """Cosmic Ray's operator of that name."""
    return get_operator(f"core/{operator}")()


def methods_of(source: str) -> str:
    """The methods that a file registers, as pytest selects cases by name; empty for parts that methods share."""
    return " or ".join(re.findall(r"^@hand_designed\b.*\ndef (\w+)", source, re.MULTILINE))


def first_failure(copy: Path, kind: str, source: str, tests: list[str]) -> str | None:
    """The first test of the fast or slow set that fails among `tests`; nothing where all pass.

    Slow cases that name another method than a file's own never run the file, and are left out.
    """
    only = ["-m", "slow"] if kind == "slow" else []
    if kind == "slow" and (methods := methods_of(source)):
        only += ["-k", methods]
    command = [sys.executable, "-m", "pytest", "-n0", "-x", "-q", "--no-header", *only, *tests]
    try:
        outcome = subprocess.run(
            command, cwd=copy, capture_output=True, text=True, timeout=MAX_SECONDS[kind], check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end in {MAX_SECONDS[kind]} s"
    if outcome.returncode in (0, 5):  # 5: no test of this kind here
        return None
    failed = [line for line in outcome.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else f"exit {outcome.returncode}"


def killer(kind: str, path: str, source: str, tests: list[str]) -> str | None:
    """The first test of a set that notices a mutant; nothing where none does."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "l2p-mutant")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "runs", "__pycache__"))
        (copy / path).write_text(source)
        # The tests of the file itself come first, since they are the likeliest to notice.
        own = [
            str(test_path.relative_to(ROOT)) for test_path in sorted(ROOT.glob(f"tests/**/test_{Path(path).stem}.py"))
        ]
        return first_failure(copy, kind, source, [*own, *tests])


def main() -> None:
    """Run the mutants that have no line yet, and print the score of both sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/mutants.jsonl")
    parser.add_argument("--shard", default="1/1", help="this process's part, as in 1/2")
    parser.add_argument("--list", action="store_true", help="print the mutants and run none")
    arguments = parser.parse_args()
    part, parts = map(int, arguments.shard.split("/"))
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir(), "l2p-mutants-jax-cache")))
    out = arguments.out
    earlier = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    verdicts = {(verdict["file"], verdict["change"]): verdict for verdict in earlier}
    jobs = [(path, change, source, tests) for place, tests in PLACES.items() for path, change, source in mutants(place)]
    if arguments.list:
        print("\n".join(f"{path.relative_to(ROOT)}: {change}" for path, change, *_ in jobs))
    for kind in () if arguments.list else ("fast", "slow"):
        for path, change, source, tests in jobs[part - 1 :: parts]:
            file = str(path.relative_to(ROOT))
            before = verdicts.get((file, change), {"killed_by": None, "run": []})
            if before["killed_by"] or kind in before["run"]:
                continue
            test = killer(kind, file, source, tests)
            verdict = {"file": file, "change": change, "killed_by": kind if test else None, "test": test}
            verdicts[file, change] = verdict | {"run": [*before["run"], kind]}
            with out.open("a") as lines:
                lines.write(json.dumps(verdicts[file, change]) + "\n")
            print(f"{file}: {change}: {kind}, {test}", flush=True)
    score = [verdict["killed_by"] for verdict in verdicts.values()]
    killed = len(score) - score.count(None)
    print(f"{len(score)} mutants; the whole set kills {killed}, the fast one {score.count('fast')}")


if __name__ == "__main__":
    main()
