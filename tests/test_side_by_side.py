"""The comparison with other libraries: what its driver counts, keeps and prints."""

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "side_by_side.py"


@pytest.fixture(scope="module")
def driver():
    spec = importlib.util.spec_from_file_location("side_by_side", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_lines_of_code_are_those_that_hold_code(driver, tmp_path):
    python, shell = tmp_path / "a.py", tmp_path / "a.sh"
    python.write_text(
        '"""Said\n\nof it."""\n# why\n\nimport os  # here\n\ndef f():\n    """Doc."""\n    return (\n  os\n  )\n'
    )
    shell.write_text("# why\n\nset -e\nls\n")
    assert (driver.code_lines(python), driver.code_lines(shell)) == (5, 2)


def test_a_failure_is_tried_again_and_a_result_is_not(driver, tmp_path):
    answers = iter([[{"failed": "no such wheel"}], [{"log_loss": 0.5}]])
    path = tmp_path / "runs" / "one.jsonl"
    assert driver.kept(path, lambda: next(answers)) == [{"failed": "no such wheel"}]
    for _ in range(2):  # a third answer would raise StopIteration
        assert driver.kept(path, lambda: next(answers)) == [{"log_loss": 0.5}]


def test_a_row_holds_means_and_errors_of_the_seeds_that_ran_or_why_none_did(driver):
    done = [{"accuracy": a, "auc": 0.5, "log_loss": 1.0} for a in (0.7, 0.9)]
    assert driver.cells(done)[0] == "80.0 ± 10.0"
    assert driver.cells([*done, {"failed": "killed"}])[0] == "80.0 ± 10.0 (2 of 3 seeds)"
    assert driver.cells([{"install": {"failed": "no such wheel"}}])[0] == "none: no such wheel"


def test_the_private_part_is_no_part_of_what_is_tuned_on(driver, tmp_path):
    lines = {"data": [f"p{i}" for i in range(20)], "test": [f"t{i}" for i in range(16)]}
    for part, rows in lines.items():
        (tmp_path / f"adult.{part}.gz").write_bytes(driver.gzip.compress("\n".join(["head", *rows, ""]).encode()))
    driver.split(tmp_path, tmp_path)
    held = {path.stem: path.read_text().split()[1:] for path in tmp_path.glob("*.csv")}
    assert held["private"] == lines["data"]
    assert set(held["public"]).isdisjoint(held["test"])
    assert set(held["tuning_private"]) | set(held["tuning_test"]) == set(held["public"])
    assert set(held["tuning_private"]).isdisjoint(held["tuning_test"])
    assert len(held["tuning_private"]) == len(held["private"])


def test_the_committed_runs_make_the_committed_page(driver):
    runs = [json.loads(line) for line in driver.RUNS.read_text().splitlines()]
    page = driver.PAGE.read_text().partition(driver.FROM_HERE)[2]
    assert page == f"\n{driver.table(runs)}"


def test_a_program_that_is_run_alone_leaves_the_runs_of_others(driver, tmp_path, monkeypatch):
    runs, other = tmp_path / "runs.jsonl", {"library": "l2p", "seed": 0, "epsilon": 1.0}
    runs.write_text(json.dumps(other) + "\n" + json.dumps({"library": "OpenDP", "seed": 0, "epsilon": 9.0}) + "\n")
    monkeypatch.setattr(driver, "RUNS", runs)
    monkeypatch.setattr(driver, "install", lambda name, out: [{"seconds": 1.0}])
    monkeypatch.setattr(driver, "run", lambda *asked: [{"log_loss": 0.5}])
    driver.run_all(tmp_path, 1, ["OpenDP"])
    first, *rest = [json.loads(line) for line in runs.read_text().splitlines()]
    assert first == other
    assert [(run["library"], run["seed"], run["epsilon"]) for run in rest] == [
        ("OpenDP", seed, float(epsilon)) for seed in driver.PROGRAMS["OpenDP"].seeds for epsilon in driver.EPSILONS
    ]


def test_the_page_on_other_libraries_has_the_figures_of_this_one(driver):
    runs = {}
    for run in map(json.loads, driver.RUNS.read_text().splitlines()):
        runs.setdefault((run["library"], run["form"], run["epsilon"]), []).append(run)
    lines = (driver.ROOT / "docs" / "libraries.md").read_text().splitlines()
    shown = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    for title, library, form in [
        ("l2p, nothing set", "l2p", "default"),
        ("l2p, straight lines", "l2p, straight lines", "default"),
        ("OpenDP (synthetic rows by AIM, then a logistic regression)", "OpenDP", "default"),
        *(
            (f"{name}, {form}", name, form)
            for name in ("jax-privacy", "Opacus", "diffprivlib")
            for form in ("default", "tuned")
        ),
    ]:
        (row,) = [cells for cells in shown if cells[0] == title]
        means = [float(driver.cells(runs[library, form, epsilon])[2].split()[0]) for epsilon in (0.1, 1.0, 3.0)]
        assert [float(cell) for cell in row[1:4]] == means
        if form == "default" and len(row) > 4:
            count = sum(driver.code_lines(driver.PEERS / name) for name in driver.PROGRAMS[library].lines)
            assert row[4].split(",")[0].split()[0] == str(count)
