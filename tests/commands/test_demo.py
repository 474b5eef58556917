import pytest

from l2p.commands import demo
from l2p.errors import InputError


def test_the_demo_writes_its_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "METHODS", ("noisygd",))
    monkeypatch.setattr(demo, "SEEDS", 2)
    demo.main(tmp_path)
    names = {"results.csv", "summary.md", "figure.png", "steps.png", "card.json", "card.txt"}
    assert names <= {path.name for path in tmp_path.iterdir()}
    said = capsys.readouterr().out
    assert "PRIVACY CARD" in said
    assert "NOT A PRIVATE RELEASE" not in said


def test_a_missing_protector_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "METHODS", ("nosuch", "noisygd"))
    with pytest.raises(InputError, match="nosuch"):
        demo.main(tmp_path)
