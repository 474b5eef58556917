"""l2p beside diffprivlib, Opacus, jax-privacy, interpret and OpenDP on raw Adult: lines of code and scores.

    python -m benchmarks.side_by_side FOLDER [--out runs/side_by_side] [--jobs 1] [--only PROGRAM]
    python -m benchmarks.side_by_side --page     # writes the table of pages/side_by_side.md again, and runs nothing

FOLDER holds adult.data.gz and adult.test.gz, with a header line. The programs are in benchmarks/peers; each is run in a
virtual environment of its own, made from the line `# requires:` in its head, once per epsilon and seed. Rows of
adult.data are private. Of adult.test every other row is public, for encodings and tuning, and the rest is for scores.

A peer is run with its defaults and with the settings that are best, by log loss, on public rows: three quarters of the
public part, repeated until they are as many as the private rows, stand in for those, and the last quarter for the test
part. So the tuned program is the program that is run, with the same noise. The settings tried are in `PROGRAMS`.

What is done already in --out is not done again, and a failed run is tried again. With --only, runs of the other
programs stay as they are committed.
"""

import argparse
import ast
import gzip
import io
import itertools
import json
import os
import platform
import subprocess
import sys
import time
import tokenize
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "benchmarks" / "peers"
RUNS, PAGE = PEERS / "runs.jsonl", ROOT / "benchmarks" / "pages" / "side_by_side.md"
FROM_HERE = "<!-- From here on benchmarks/side_by_side.py writes. -->"
EPSILONS, SEEDS = ("0.1", "1", "3"), range(3)
PARTS = ("private", "public", "test")


@dataclass(frozen=True)
class Program:
    """A program in benchmarks/peers.

    Attributes:
      script: its file, without the ending.
      environment: the name of its virtual environment.
      lines: the files that a user has to write.
      settings: arguments of its `train` that are not its defaults.
      grid: the settings to choose from; empty for what is run as it comes.
      seeds: those it is run with; fewer where a run takes minutes.
    """

    script: str
    environment: str
    lines: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    grid: tuple[dict[str, Any], ...] = ()
    seeds: Sequence[int] = SEEDS


ENCODED = "encoding.py"
PROGRAMS = {
    "l2p": Program("with_l2p", "l2p", ("with_l2p.py",)),
    "l2p, straight lines": Program("with_l2p", "l2p", ("with_l2p.py",), {"curve": 0}),
    "l2p, commands": Program("with_l2p_commands", "l2p", ("with_l2p_commands.sh",)),
    "diffprivlib": Program(
        "with_diffprivlib",
        "diffprivlib",
        ("with_diffprivlib.py", ENCODED),
        grid=tuple({"C": C, "norm": norm} for norm in (1, 2, 14**0.5) for C in (1e-4, 1e-3, 1e-2, 1e-1, 1)),
    ),
    "Opacus": Program(
        "with_opacus",
        "opacus",
        ("with_opacus.py", ENCODED),
        grid=(
            {"optimizer": "SGD", "rate": 1, "epochs": 10, "batch": 4096, "clip": 1},
            {"optimizer": "SGD", "rate": 4, "epochs": 10, "batch": 4096, "clip": 1},
            {"optimizer": "SGD", "rate": 8, "epochs": 20, "batch": 4096, "clip": 1},
            {"optimizer": "Adam", "rate": 0.02, "epochs": 10, "batch": 4096, "clip": 1},
            {"optimizer": "Adam", "rate": 0.05, "epochs": 10, "batch": 4096, "clip": 1},
            {"optimizer": "Adam", "rate": 0.05, "epochs": 10, "batch": 4096, "clip": 3},
        ),
    ),
    "jax-privacy": Program(
        "with_jax_privacy",
        "jax_privacy",
        ("with_jax_privacy.py", ENCODED),
        grid=(
            {"rate": 1, "iterations": 80, "batch": 4096},
            {"rate": 4, "iterations": 80, "batch": 4096},
            {"rate": 8, "iterations": 160, "batch": 4096},
            {"rate": 8, "iterations": 500, "batch": 4096},
            {"rate": 4, "iterations": 500, "batch": 4096, "clip": 3},
        ),
    ),
    "interpret": Program(
        "with_interpret",
        "interpret",
        ("with_interpret.py",),
        grid=(
            {"learning_rate": 0.01, "max_rounds": 300},
            {"learning_rate": 0.03, "max_rounds": 300},
            {"learning_rate": 0.1, "max_rounds": 300},
            {"learning_rate": 0.1, "max_rounds": 100},
            {"learning_rate": 0.1, "max_rounds": 30},
            {"learning_rate": 0.3, "max_rounds": 100},
            {"learning_rate": 0.1, "max_rounds": 100, "max_bins": 16},
            {"learning_rate": 0.1, "max_rounds": 100, "max_leaves": 2},
        ),
    ),
    "OpenDP": Program("with_opendp", "opendp", ("with_opendp.py", ENCODED), seeds=SEEDS[:1]),
}


def main() -> None:
    """Install, tune, run, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "side_by_side")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--only", choices=PROGRAMS, help="run this program alone")
    parser.add_argument("--page", action="store_true", help="write the page from the committed runs, and stop")
    args = parser.parse_args()
    if not args.page:
        if args.folder is None:
            parser.error("name the folder that holds adult.data.gz and adult.test.gz")
        (args.out / "tables").mkdir(parents=True, exist_ok=True)
        split(args.folder, args.out / "tables")
        run_all(args.out, args.jobs, [args.only] if args.only else list(PROGRAMS))
    page = table([json.loads(line) for line in RUNS.read_text().splitlines()])
    PAGE.write_text(PAGE.read_text().partition(FROM_HERE)[0] + f"{FROM_HERE}\n{page}")
    print(page, f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}", sep="\n")


def split(folder: Path, out: Path) -> None:
    """The private, public and test parts, and those that stand in for them while a peer is tuned."""
    (head, *private), (_, *rest) = (
        [line for line in gzip.decompress((folder / name).read_bytes()).decode().splitlines() if line.strip()]
        for name in ("adult.data.gz", "adult.test.gz")
    )
    public, test = rest[::2], rest[1::2]
    known, held_out = public[: len(public) * 3 // 4], public[len(public) * 3 // 4 :]
    parts = {
        "private": private,
        "public": public,
        "test": test,
        "tuning_private": list(itertools.islice(itertools.cycle(known), len(private))),
        "tuning_public": known,
        "tuning_test": held_out,
    }
    for name, lines in parts.items():
        (out / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")


def run_all(out: Path, jobs: int, names: Sequence[str]) -> None:
    """Every run of these programs that `out` does not hold yet; RUNS is made of them, and of the others' in it."""
    programs = {name: PROGRAMS[name] for name in names}
    installs = {
        name: kept(out / "installs" / f"{program.environment}.jsonl", partial(install, name, out))[0]
        for name, program in programs.items()
    }
    settings = {
        (name, epsilon): tuned(name, epsilon, out)
        for name, program in programs.items()
        for epsilon in EPSILONS
        if program.grid and "failed" not in installs[name]
    }

    def scored(seed: int, name: str, form: str, epsilon: str) -> dict[str, Any]:
        about = {"library": name, "form": form, "epsilon": float(epsilon), "seed": seed, "install": installs[name]}
        if "failed" in about["install"]:
            return about
        chosen = [settings[name, epsilon] if form == "tuned" else PROGRAMS[name].settings]
        lines = kept(
            out / "scores" / f"{name}-{form}-{epsilon}-{seed}.jsonl", lambda: run(name, epsilon, seed, chosen, out)
        )
        return about | lines[0]

    forms = [
        (name, form) for name, p in programs.items() for form in ("default", "tuned") if form == "default" or p.grid
    ]
    wanted = [
        (seed, *form, epsilon)
        for seed in SEEDS
        for form in forms
        for epsilon in EPSILONS
        if seed in PROGRAMS[form[0]].seeds
    ]
    others = [run for run in map(json.loads, RUNS.read_text().splitlines()) if run["library"] not in programs]
    with ThreadPoolExecutor(jobs) as pool:
        runs = [*others, *pool.map(lambda each: scored(*each), wanted)]
    order = list(PROGRAMS)
    runs.sort(key=lambda run: (run["seed"], order.index(run["library"])))
    RUNS.write_text("".join(json.dumps(run) + "\n" for run in runs))


def kept(path: Path, made: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The JSON lines in `path`; made, and written unless they failed, if there is no such file."""
    if not path.exists():
        lines = made()
        if "failed" in lines[0]:
            return lines
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return [json.loads(line) for line in path.read_text().splitlines()]


def install(name: str, out: Path) -> list[dict[str, Any]]:
    """Make the environment of a program; how long that took, or pip's last error."""
    script = (PEERS / f"{PROGRAMS[name].script}.py").read_text().splitlines()
    line = next(line for line in script if line.startswith("# requires: "))
    wanted = [str(ROOT) if word == "{checkout}" else word for word in line.removeprefix("# requires: ").split()]
    environment, start = python_of(name, out).parent.parent, time.perf_counter()
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
    command = [str(python_of(name, out)), "-m", "pip", "install", "--quiet", *wanted]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return [{"failed": (errors or ["pip said nothing"])[-1]}]
    return [{"seconds": time.perf_counter() - start}]


def python_of(name: str, out: Path) -> Path:
    return out.resolve() / "environments" / PROGRAMS[name].environment / "bin" / "python"


def tuned(name: str, epsilon: str, out: Path) -> dict[str, Any]:
    """The settings of the grid with the smallest log loss on public rows."""
    grid = list(PROGRAMS[name].grid)
    tried = kept(out / "tuning" / f"{name}-{epsilon}.jsonl", lambda: run(name, epsilon, 0, grid, out, prefix="tuning_"))
    if "failed" in tried[0]:
        raise SystemExit(f"{name} could not be tuned at epsilon {epsilon}: {tried[0]['failed']}")
    return min(tried, key=lambda each: each["log_loss"])["settings"]


def run(
    name: str, epsilon: str, seed: int, settings: Sequence[dict[str, Any]], out: Path, prefix: str = ""
) -> list[dict[str, Any]]:
    """Scores of each of the settings."""
    tables = [str((out / "tables" / f"{prefix}{part}.csv").resolve()) for part in PARTS]
    script = str(PEERS / f"{PROGRAMS[name].script}.py")
    command = [str(python_of(name, out)), script, *tables, "--epsilon", epsilon, "--seed", str(seed)]
    command += ["--settings", json.dumps(settings)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    printed = done.stdout.strip().splitlines()
    if done.returncode:
        return [{"failed": (printed or ["it printed nothing"])[-1]}]
    return [json.loads(line) for line in printed if line.startswith("{")]


def code_lines(path: Path) -> int:
    """Lines that hold code: no blank ones, comments or docstrings."""
    text = path.read_text()
    if path.suffix != ".py":
        return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.splitlines())
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in nothing]
    held = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            held -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(held)


def table(runs: list[dict[str, Any]]) -> str:
    """One table per epsilon, in Markdown: means over seeds and their standard errors."""
    blocks = []
    for epsilon in sorted({run["epsilon"] for run in runs}):
        blocks += [f"\n## Epsilon {epsilon:g}\n", "| program | settings | accuracy | AUC | log loss |"]
        blocks.append("|---|---|---|---|---|")
        majority = next((run["majority"] for run in runs if "majority" in run), float("nan"))
        blocks.append(f"| the larger class | | {100 * majority:.1f} | .5 | |")
        for name, form in dict.fromkeys((run["library"], run["form"]) for run in runs):
            same = [r for r in runs if (r["library"], r["form"], r["epsilon"]) == (name, form, epsilon)]
            blocks.append(f"| {name} | {form} | {' | '.join(cells(same))} |")
    blocks += ["\n## Code and installation\n", "| program | lines of code | install s |", "|---|---|---|"]
    for name, program in PROGRAMS.items():
        lines = sum(code_lines(PEERS / path) for path in program.lines)
        installs = next(run["install"] for run in runs if run["library"] == name)
        seconds = installs["failed"] if "failed" in installs else f"{installs['seconds']:.0f}"
        blocks.append(f"| {name} | {lines} | {seconds} |")
    blocks += ["\n## Tuned settings\n", "| program | epsilon | settings |", "|---|---|---|"]
    for run in runs:
        if run["form"] == "tuned" and run["seed"] == SEEDS[0] and "settings" in run:
            said = ", ".join(
                f"{key} {value:.4g}" if key != "optimizer" else value for key, value in run["settings"].items()
            )
            blocks.append(f"| {run['library']} | {run['epsilon']:g} | {said} |")
    return "\n".join(blocks) + "\n"


def cells(same: list[dict[str, Any]]) -> list[str]:
    """Scores of one row; the reason where there are none."""
    done = [run for run in same if "log_loss" in run]
    if not done:
        reason = next((run.get("failed") or run["install"].get("failed") for run in same), "")
        return [f"none: {reason}", "", ""]
    scores = []
    for score, factor, places in (("accuracy", 100, 1), ("auc", 1, 3), ("log_loss", 1, 3)):
        values = factor * np.array([run[score] for run in done])
        error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.{places}f}" if len(values) > 1 else ""
        scores.append(f"{values.mean():.{places}f}{error}")
    missing = "" if len(done) == len(same) else f" ({len(done)} of {len(same)} seeds)"
    scores[0] += missing
    return scores


if __name__ == "__main__":
    main()
