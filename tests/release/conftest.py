"""`l2p account --verify`, run on a card; and trainings that are refused."""

import json

import pytest

import l2p
from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.release import private_run
from tests.release.losses import DATA, START, logistic


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


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """Trains with other arguments than good ones, and returns the sentence by which it was refused."""
    monkeypatch.setattr(private_run, "_train", lambda *_: pytest.fail("a row was read"))
    allowed = l2p.Budget(1.0, 1e-5)
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", allowed, "gdp", limit_of("gdp", allowed))
    before = ledger.path.read_bytes()

    def train(data=DATA, protector="noisygd", budget=allowed, model=logistic, params=START, **options):
        with pytest.raises(InputError) as error:
            l2p.private_train(data, protector, budget, model=model, params=params, ledger=ledger, **options)
        assert ledger.path.read_bytes() == before
        assert not ledger.entries()
        return str(error.value)

    return train
