"""A small table to run `l2p apply` on, and a check of refusals."""

import pytest

from l2p.release import private_run
from tests.commands.small_tables import SCHEMA, write_table


@pytest.fixture
def options(tmp_path):
    """Options of an `apply` that works, as a dictionary to change."""
    SCHEMA.write(tmp_path / "schema.json")
    return {
        "--protector": "noisygd",
        "--data": str(write_table(tmp_path / "ward.csv")),
        "--schema": str(tmp_path / "schema.json"),
        "--epsilon": "2",
        "--delta": "1e-6",
        "--out": str(tmp_path / "run"),
    }


@pytest.fixture
def refused(capsys, monkeypatch):
    """Runs a command line that must be refused before a query is asked; returns its sentence."""

    def refuse(run, *args):
        with monkeypatch.context() as patch:
            patch.setattr(private_run, "_start", lambda *_: pytest.fail("a query was asked"))
            assert run(*args) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert "61.06" not in err
        return err

    return refuse
