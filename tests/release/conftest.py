"""`l2p account --verify`, run on a card."""

import json

import pytest

from l2p.commands.cli import main


@pytest.fixture
def verify(tmp_path, capsys):
    """Writes a card and verifies it; returns the exit code and the output as one line."""

    def run(content, *words):
        path = tmp_path / "card.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        code = main(["account", "--card", str(path), "--verify", *words])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, " ".join((out + err).split())

    return run
