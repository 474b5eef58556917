"""Tables to run commands on, and a check of refusals."""

import gzip

import pytest

from l2p.release import private_run
from tests.commands.raw_tables import HEADER, lines
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ward")
    (folder / "private.csv").write_text("\n".join([HEADER, *lines(1500, 0)]))
    sample = [*lines(299, 1), "7; a; somebody; yes."]
    (folder / "public.csv.gz").write_bytes(gzip.compress("\n".join([HEADER, *sample]).encode()))
    (folder / "test.csv").write_text("\n".join([HEADER, *lines(500, 2, dotted=True)]))
    return folder
