import tomllib
from pathlib import Path

import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.checkpoints.control import control_of
from l2p.checkpoints.overlaps import overlaps
from l2p.commands import demo
from l2p.compare import results
from l2p.privacy.card.card import Card

PROJECT = Path(demo.__file__).parents[2] / "pyproject.toml"
WHEEL = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]


@pytest.mark.long
def test_the_demo_shows_who_wins_releases_one_model_and_says_what_to_type_next(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "HAND_DESIGNED", ("noisygd",))
    monkeypatch.setattr(demo, "EPSILONS", (1.0, 3.0))
    monkeypatch.setattr(demo, "SEEDS", 2)
    demo.main(tmp_path)
    assert {"results.csv", "figure.svg", "release"} <= {path.name for path in tmp_path.iterdir()}
    card = Card.from_json(tmp_path / "release" / "card.json")
    assert card.private_release
    assert card.table == {"name": demo.DATA, "target": "odd"}
    assert (tmp_path / "release" / "card.html").is_file()
    out, err = capsys.readouterr()
    out = out.replace(str(tmp_path), "l2p-demo")
    assert "Now on your table" in out
    assert max(map(len, out.splitlines())) <= 80
    assert [line.split("]")[0] for line in err.splitlines()[1:]] == ["[1/4", "[2/4", "[3/4", "[4/4"]
    rows = results.by_method(results.read(tmp_path / "results.csv"), "test_accuracy")
    shown = [line.split()[-2:] for line in out.splitlines() if "best hand-designed" in line and "Means" not in line]
    assert shown[0] == [f"{100 * rows['noisygd'][epsilon].mean:.1f}" for epsilon in (1.0, 3.0)]


def test_what_the_demo_is_scored_with_never_saw_its_data_and_is_in_the_wheel():
    card = checkpoint.load(demo.LEARNED).card
    assert not any(overlaps(source, (demo.DATA,)) for source in card["sources"])
    control = control_of(card)
    assert control is not None
    for name in (demo.LEARNED, control.name):
        inner = checkpoint.find(name).relative_to(PROJECT.parent)
        assert not any(part.match(pattern) for pattern in WHEEL["exclude"] for part in (inner, *inner.parents))


def test_a_missing_protector_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "LEARNED", "nosuch")
    with pytest.raises(InputError, match="nosuch"):
        demo.main(tmp_path)
