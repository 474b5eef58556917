"""Committed pages are what their commands make of committed results."""

from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.redraw import config_of
from l2p.commands.cli import main
from l2p.compare import summary
from l2p.compare.leaderboard import command, page, read_all
from l2p.compare.summary import report

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def test_the_committed_page_is_what_the_command_makes(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    text = page(Path("benchmarks/results"), Path("benchmarks/pages/leaderboard.md"))
    assert (ROOT / "benchmarks" / "pages" / "leaderboard.md").read_text(encoding="utf-8") == text
    for comparison in read_all(Path("benchmarks/results")):
        assert f"../results/{comparison.folder.name}/summary.md" in text
        assert command(comparison) in text
        assert (RESULTS / comparison.folder.name / "summary.md").is_file()
    assert main(["leaderboard", "benchmarks/results"]) == 0
    assert capsys.readouterr().out == text.replace("(../results/", "(benchmarks/results/")


def test_committed_summaries_are_what_the_command_makes_of_their_results(tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "against_epsilon", lambda *_, **__: Figure())  # which takes most of the time
    for comparison in read_all(RESULTS):
        report(comparison.rows, config_of(comparison, tmp_path))
        for name in ("summary.md", "figure.svg"):
            assert (comparison.folder / name).exists()
        assert (tmp_path / "summary.md").read_bytes() == (comparison.folder / "summary.md").read_bytes()
