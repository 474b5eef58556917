"""Every command and Python block of README.md, docs/*.md and benchmarks/pages/*.md, run as written, in the order of its
page, on small files; and where their links lead. `pytest -n0 -m "" -v tests/test_docs.py` says how much time each took.

A block that is not run says why in a comment before it, `<!-- not run: REASON -->`; a comment in the first lines of a
page, `<!-- no block is run: REASON -->`, says so for all of them. Their `l2p` command lines are parsed all the same.
"""

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import meta_train
from l2p.commands import cli
from meta_train import fine_tuning, planning
from meta_train.recipes import own
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/pages/*.md")])]
_FENCE = re.compile(r"(?:<!-- not run: ([^\n]+?) -->\n+)?^```(\w*)\n(.*?)^```", re.M | re.S)
_WHOLE = re.compile(r"<!-- no block is run: ([^\n]+?) -->")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.S)
_ASSIGNMENT = re.compile(r"[A-Z_0-9]+=\S*")
#: Of blocks that are run.
LANGUAGES = ("bash", "python")


class Block(NamedTuple):
    """A fenced block: where it stands, its language, its text, and why it is not run, if it is not."""

    place: str
    language: str
    text: str
    reason: str | None


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    whole_page = _WHOLE.search(text)
    return [
        Block(
            f"{name_of(page)}:{text[: fence.start(2)].count(chr(10)) + 1}",
            fence[2],
            fence[3],
            whole_page[1] if whole_page else fence[1],
        )
        for fence in _FENCE.finditer(text)
    ]


def commands_of(block):
    """The commands of a bash block as lists of words, without assignments of variables before them."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            end = words.index("&&")
            yield words[:end]
            words = words[end + 1 :]
        while words and _ASSIGNMENT.fullmatch(words[0]):
            words = words[1:]
        if words:
            yield words


ALL = [block for page in PAGES for block in blocks_of(page)]


def test_commands_and_python_are_fenced_as_what_they_are():
    assert len(ALL) > 30
    for block in ALL:
        if block.language not in LANGUAGES:
            assert not re.search(r"^(l2p|python|pip) |^(import|from) \w+", block.text, re.M), block.place


def test_blocks_that_are_not_run_say_why_and_their_command_lines_are_valid(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    Path("FILE").write_text('{"data": "digits:odd"}')  # stands for any configuration in docs/comparing.md
    reasons = {}
    for block in (block for block in ALL if block.reason and block.language == "bash"):
        for words in (words for words in commands_of(block) if words[0] == "l2p"):
            parsed = cli._parsed(words[1 : words.index(">")] if ">" in words else words[1:])
            assert not isinstance(parsed, int) or parsed == 0, f"{block.place}: {words} {capsys.readouterr()}"
    for block in ALL:
        if block.reason:
            reasons.setdefault(block.reason, []).append(block.place)
    assert all(len(reason) > 15 for reason in reasons)
    with capsys.disabled():
        print()
        for reason, places in reasons.items():
            print(f"not run: {', '.join(places[:4])}{' and more' if len(places) > 4 else ''}: {reason}")


def anchors_of(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


OTHERS = [
    ROOT / name
    for name in ("benchmarks/README.md", "checkpoints/README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
]


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name_of)
def test_links_lead_to_files_and_headings_that_exist(page):
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    links = [link.partition("#") for link in _LINK.findall(text) if not re.match(r"https?:", link)]
    for path, _, anchor in links:
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors_of(target), f"{path}#{anchor}"


def test_docs_stay_short_enough_to_be_read():
    """By hand, 30,000 words of docs in all; figures of studies belong into benchmarks/pages, which a command prints."""
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in ROOT.glob("docs/*.md")) <= 30_000


SCHEMA = "schema.json"
HEADER = "age,dose,ward,name,readmitted"


def lines(count, seed):
    random = np.random.default_rng(seed)
    for place in range(count):
        age, dose, ward = random.integers(18, 95), random.uniform(0, 10), random.choice(["heart", "eyes", "surgery"])
        yield f"{age},{dose:.6f},{ward},patient {seed} {place},{'yes' if age + 6 * dose > 85 else 'no'}"


def write_files(blocks):
    """The small files that a page speaks of, in the folder in which it runs; and data frames."""
    pandas = pytest.importorskip("pandas", reason="blocks take data frames of pandas")
    for seed, (name, count) in enumerate(
        {
            "patients.csv": 1500,
            "public.csv": 300,
            "public_sample.csv": 300,
            "volunteers.csv": 300,
            "new.csv": 20,
            "a.csv": 300,
            "b.csv": 300,
        }.items()
    ):
        Path(name).write_text("\n".join([HEADER, *lines(count, seed)]) + "\n")
    for name, english in (("patienten.csv", "patients.csv"), ("sample_de.csv", "public_sample.csv")):
        text = Path(english).read_text().replace(",", ";").replace(".", ",").replace("eyes", "Ohr für Ohr")
        Path(name).write_text(text, encoding="cp1252")
    patients, new = (pandas.read_csv(name, dtype=str) for name in ("patients.csv", "new.csv"))
    if not any(f"--out {SCHEMA}" in block.text for block in blocks):
        assert (
            cli.main(["schema", "patients.csv", "--target", "readmitted", "--from", "public.csv", "--out", SCHEMA]) == 0
        )
    Path("ward").mkdir()
    for part in range(2):
        patients[part::2].to_parquet(f"ward/{part}.parquet")
    return {"patients": patients, "new_patients": new.drop(columns="readmitted"), "meta_train": meta_train}


def runnable(page):
    return [block for block in blocks_of(page) if block.reason is None]


def cpu_seconds():
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


@pytest.fixture
def timed(request, capsys):
    """A list of what was run, `[(block, CPU seconds)]`, which ends as a table where pytest is verbose."""
    blocks = []
    yield blocks
    if request.config.getoption("verbose") > 0:
        with capsys.disabled():
            print("\n| block | first line | CPU seconds |\n|---|---|---|")
            for block, seconds in blocks:
                print(f"| {block.place} | `{block.text.splitlines()[0]}` | {seconds:.1f} |")


def run(blocks, folder, monkeypatch, capsys, timed):
    """Run blocks in an empty folder, in their order; a block's failure names its place."""
    monkeypatch.chdir(folder)
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    held = write_files(blocks)
    for block in blocks:
        began = cpu_seconds()
        if block.language == "python":
            exec(compile("\n" * int(block.place.split(":")[1]) + block.text, block.place, "exec"), held)
        elif block.language == "bash":
            for words in commands_of(block):
                assert words[0] == "l2p", f"{block.place}: {words}"
                assert cli.main(words[1:]) == 0, f"{block.place}: {' '.join(words)}\n{capsys.readouterr().err}"
        if block.language in LANGUAGES:
            timed.append((block, cpu_seconds() - began))


def test_readme_runs_as_it_is_written(tmp_path, monkeypatch, capsys, timed):
    run(runnable(ROOT / "README.md"), tmp_path, monkeypatch, capsys, timed)


RUN = {block.place.split(":")[0] for block in ALL if block.reason is None and block.language in LANGUAGES}


@pytest.mark.slow
@pytest.mark.long(cases=["docs/comparing.md", "docs/public_rows.md"])
@pytest.mark.parametrize("page", [page for page in PAGES[1:] if name_of(page) in RUN], ids=name_of)
def test_a_page_runs_as_it_is_written(page, tmp_path, monkeypatch, capsys, timed):
    run(runnable(page), tmp_path, monkeypatch, capsys, timed)


@pytest.mark.long
def test_ten_minutes_on_tables_of_ones_own_run_as_they_are_written_for_two_steps(tmp_path, monkeypatch, capsys, timed):
    """Of the blocks that fine-tune, as written, the first trains, and the others go on with what it did."""
    blocks = [block for block in reversed(ALL) if "tests take two steps" in (block.reason or "")]
    assert [block.place.split(":")[0] for block in blocks] == ["docs/own_tables.md"] * 2 + ["README.md"]
    blocks = [blocks[1], blocks[0], blocks[2]]  # the first makes the schemas
    short = {"steps": 2, "rows": 64, "num_steps": 3, "eval_every": 1, "eval_tasks": 16, "gain_rounds": 1}
    config_for = own.config_for
    monkeypatch.setattr(own, "config_for", lambda *args: config_for(*args).but(**short))
    monkeypatch.setattr(planning, "steps_for", lambda minutes: short["steps"])
    monkeypatch.setattr(planning, "has_networks", lambda *args: False)  # whose steps take longest to compile
    monkeypatch.setattr(fine_tuning, "OWN_TASKS", 2)
    run(blocks, tmp_path, monkeypatch, capsys, timed)
